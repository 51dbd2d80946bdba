package rules

import (
	"crypto/sha256"
	"strconv"
)

// maxKeyLen is the length above which a key is hashed. weir would take 1024 bytes; the rest of a
// long header is worth no memory.
const maxKeyLen = 256

// appendKey appends the name of a descriptor's counter: the domain and the entries, each part
// behind its length, so that no two lists of parts have the same name. Where a rule's values share
// a counter the pattern stands in for the value. A long name is replaced by its SHA-256 hash.
//
// Neither the limit nor the rule is in the key. A rule whose limit is raised goes on with its
// counts, and so does a value that gets a rule of its own.
func appendKey(dst []byte, domain string, entries []Entry, r *Rule) []byte {
	dst = appendPart(dst, ':', domain)
	for i, e := range entries {
		dst = appendPart(dst, ':', e.Key)
		if r != nil && r.shared != nil && r.shared[i] != "" {
			dst = appendPart(dst, '*', r.shared[i])
			continue
		}
		dst = appendPart(dst, ':', e.Value)
	}
	if len(dst) > maxKeyLen {
		sum := sha256.Sum256(dst)
		dst = append(append(dst[:0], '#'), sum[:]...) // no other key begins with this
	}
	return dst
}

func appendPart(dst []byte, mark byte, s string) []byte {
	dst = strconv.AppendInt(dst, int64(len(s)), 10)
	return append(append(dst, mark), s...)
}
