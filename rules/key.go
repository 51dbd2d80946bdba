package rules

import (
	"crypto/sha256"
	"strconv"
)

// maxKeyLen is the length above which a key is hashed. weir accepts 1024 bytes, but storing more of
// a long header would waste memory.
const maxKeyLen = 256

// appendKey appends the key of a descriptor's counter: the domain and the entries. Each part is
// preceded by its length, so that different parts never give the same key. If the values of a rule
// share a counter, the pattern replaces the value. A long key is replaced by its SHA-256 hash.
//
// The key contains neither the limit nor the rule. Counts are therefore kept when the limit of a
// rule changes, and when a value gets its own rule.
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
	return shorten(dst)
}

// shorten replaces a long key by its hash.
func shorten(key []byte) []byte {
	if len(key) > maxKeyLen {
		sum := sha256.Sum256(key)
		key = append(append(key[:0], '#'), sum[:]...) // no other key begins with this
	}
	return key
}

func appendPart(dst []byte, mark byte, s string) []byte {
	dst = strconv.AppendInt(dst, int64(len(s)), 10)
	return append(append(dst, mark), s...)
}
