package accesslog

import (
	"bytes"
	"slices"
	"strings"
)

// forwardedNames are the folded names of fields with the address of the client behind the peer, the
// most trustworthy first: a proxy appends to X-Forwarded-For, and others only pass on the rest. An
// asterisk stands for any text.
var forwardedNames = []string{"*forwardedfor", "xff", "forwarded", "*connectingip*",
	"*connectionip", "trueclientip", "*vieweraddress", "*client*ip", "*real*ip*", "*externaladdress",
	"*client*addr", "*client*address", "*forwardedip", "*forwardedaddr*", "*userip", "*socketip",
	"originatingip", "cdnsrcip", "proxyprotocoladdr", "fwd"}

// otherNames are folded names that the ones above match, of a proxy, of a port or of a server.
var otherNames = []string{"*upstream*", "*server*", "*backend*", "*remoteaddr", "*port", "*local*"}

// forwardedRank returns the rank of a field with the address of the client behind the peer, by its
// name in any spelling: as a header, in CGI, in nginx, Traefik or W3C logs. It is 0 for others.
func forwardedRank(name string) int {
	folded := fold(name)
	matches := func(pattern string) bool { return matchesName(folded, pattern) }
	if slices.ContainsFunc(otherNames, matches) {
		return 0
	}
	return 1 + slices.IndexFunc(forwardedNames, matches)
}

// fold returns a name in lower case without hyphens and underscores, and without the words that
// only say that it is of a request header.
func fold(name string) string {
	name = strings.ToLower(name)
	if inner, ok := strings.CutPrefix(name, "cs("); ok { // of a W3C log
		name = strings.TrimSuffix(inner, ")")
	}
	name = strings.ReplaceAll(name, "-", "_")
	for cut := true; cut; {
		for _, prefix := range []string{"http_", "request_", "req_", "header_", "x_", "_"} {
			name, cut = strings.CutPrefix(name, prefix)
			if cut {
				break
			}
		}
	}
	return strings.ReplaceAll(name, "_", "")
}

// matchesName reports whether a name matches a pattern.
func matchesName(name, pattern string) bool {
	parts := strings.Split(pattern, "*")
	rest, ok := strings.CutPrefix(name, parts[0])
	if len(parts) == 1 {
		return ok && rest == ""
	}
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return ok && strings.HasSuffix(rest, parts[len(parts)-1])
}

// maybeForwarded reports whether the name of a JSON key can be in forwardedNames. It is cheap: most
// keys of a line are of other fields.
func maybeForwarded(key []byte) bool {
	if len(key) < 3 {
		return false
	}
	switch string([]byte{key[len(key)-2] | 0x20, key[len(key)-1] | 0x20}) {
	case "or", "ip", "ed", "dr", "ss", "ff", "wd", "v6", "v4":
		return true
	}
	return false
}

// forwardedList returns the addresses of an RFC 7239 field Forwarded as a list like
// X-Forwarded-For; other text unchanged.
func forwardedList(text []byte) []byte {
	if bytes.IndexByte(text, '=') < 0 {
		return text
	}
	var list [][]byte
	for hop := range bytes.SplitSeq(text, []byte(",")) {
		for pair := range bytes.SplitSeq(hop, []byte(";")) {
			name, value, _ := bytes.Cut(bytes.TrimSpace(pair), []byte("="))
			if strings.EqualFold(string(name), "for") {
				list = append(list, bytes.Trim(value, `\"`))
			}
		}
	}
	return bytes.Join(list, []byte(", "))
}
