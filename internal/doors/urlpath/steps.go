package urlpath

import (
	"bytes"
	"strings"
)

// This file has the steps of reading a path. Each is what some server of the table in
// docs/SECURITY.md does.

// step appends what a server makes of s to b, or returns nil if that is s. It takes one pass, and
// what it makes is no longer than s.
type step func(b []byte, s string) []byte

// of returns what the step makes of s.
func (t step) of(s string) string {
	if b := t(nil, s); b != nil {
		return string(b)
	}
	return s
}

// decode decodes all escapes once. Invalid ones stay.
func decode(b []byte, s string) []byte { return unescape(b, s, &decodesAll) }

// decodeSegments decodes all escapes but those of slashes once.
func decodeSegments(b []byte, s string) []byte { return unescape(b, s, &decodesSegments) }

// decodeUnreserved decodes the escapes of bytes that never need one (RFC 3986 section 6.2.2.2).
func decodeUnreserved(b []byte, s string) []byte { return unescape(b, s, &decodesUnreserved) }

// unescapeSlashes decodes only the escapes of slashes and backslashes, both to slashes.
func unescapeSlashes(b []byte, s string) []byte { return unescape(b, s, &decodesSlashes) }

// decodeInert decodes what no other step reads, and what is escaped in each Reading.
func decodeInert(b []byte, s string) []byte { return unescape(b, s, &decodesInert) }

// decodeLetters leaves what would be read differently if it were decoded.
func decodeLetters(b []byte, s string) []byte { return unescape(b, s, &decodesLetters) }

// decoding has the byte that the escape of each byte is replaced by, and decoded set, or 0 for an
// escape that stays.
type decoding [256]uint16

const decoded = 1 << 8

var (
	decodesAll        = decodingOf(func(byte) bool { return true })
	decodesSegments   = decodingOf(func(c byte) bool { return c != '/' })
	decodesUnreserved = decodingOf(unreserved)
	decodesSlashes    = decoding{'/': decoded | '/', '\\': decoded | '/'}
	decodesInert      = decodingOf(func(c byte) bool { return escapes[c] && c != '\\' && c != '%' })
	decodesLetters    = decodingOf(func(c byte) bool { return c != '/' && c != '%' })
)

func decodingOf(these func(byte) bool) (of decoding) {
	for i := range of {
		if these(byte(i)) {
			of[i] = decoded | uint16(i)
		}
	}
	return of
}

func unescape(b []byte, s string, of *decoding) []byte {
	decodes := func(i int) bool {
		c, ok := escaped(s[i:])
		return ok && of[c] != 0
	}
	i := strings.IndexByte(s, '%')
	for i >= 0 && i < len(s) && (s[i] != '%' || !decodes(i)) {
		i++
	}
	if i < 0 || i == len(s) {
		return nil
	}
	b = append(b, s...)
	n := len(b) - len(s) + i
	for ; i < len(s); i, n = i+1, n+1 {
		b[n] = s[i]
		if b[n] == '%' {
			if c, ok := escaped(s[i:]); ok && of[c] != 0 {
				b[n] = byte(of[c])
				i += 2
			}
		}
	}
	return b[:n]
}

// escaped returns the byte that an escape at the start of s stands for.
func escaped(s string) (byte, bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	high, low := unhex[s[1]], unhex[s[2]]
	return (high-1)<<4 | (low - 1), high > 0 && low > 0
}

// unhex holds the value of hexadecimal digits plus 1, and 0 for other bytes.
var unhex = func() (of [256]byte) {
	for i := range byte(16) {
		of["0123456789abcdef"[i]], of["0123456789ABCDEF"[i]] = i+1, i+1
	}
	return of
}()

// dropParameters removes ;name=value from each segment (RFC 3986 section 3.3).
func dropParameters(b []byte, s string) []byte {
	semicolon := strings.IndexByte(s, ';')
	if semicolon < 0 {
		return nil
	}
	for semicolon >= 0 {
		b = append(b, s[:semicolon]...)
		slash := strings.IndexByte(s[semicolon:], '/')
		if slash < 0 {
			return b
		}
		s = s[semicolon+slash:]
		semicolon = strings.IndexByte(s, ';')
	}
	return append(b, s...)
}

func backslashesToSlashes(b []byte, s string) []byte {
	i := strings.IndexByte(s, '\\')
	if i < 0 {
		return nil
	}
	from := len(b)
	b = append(b, s...)
	for ; i < len(s); i++ {
		if s[i] == '\\' {
			b[from+i] = '/'
		}
	}
	return b
}

func mergeSlashes(b []byte, s string) []byte {
	i := strings.Index(s, "//")
	if i < 0 {
		return nil
	}
	b = append(b, s[:i+1]...)
	for i++; i < len(s); i++ {
		if s[i] != '/' || s[i-1] != '/' {
			b = append(b, s[i])
		}
	}
	return b
}

// removeDots removes the segments . and .. (RFC 3986 section 5.2.4).
func removeDots(b []byte, s string) []byte { return removeSegments(b, s, false) }

// removeEscapedDots also removes them if a dot is written %2E.
func removeEscapedDots(b []byte, s string) []byte {
	return removeSegments(b, s, strings.IndexByte(s, '%') >= 0)
}

func removeSegments(b []byte, s string, escapes bool) []byte {
	if !escapes && !strings.Contains(s, "/.") {
		return nil
	}
	start := len(b)
	from, removed := 0, false // from is that of the part which b lacks
	for i := 0; i+1 < len(s); i++ {
		if s[i] != '/' || s[i+1] != '.' && (!escapes || s[i+1] != '%') {
			continue
		}
		dots, end := dotsAt(s[i:], escapes)
		if dots == 0 {
			continue
		}
		removed = true
		b = append(b, s[from:i]...)
		if dots == 2 {
			b = b[:start+max(0, bytes.LastIndexByte(b[start:], '/'))]
		}
		from = i + end
		if from == len(s) {
			b = append(b, '/') // they name a directory
		}
		i = from - 1
	}
	if !removed {
		return nil
	}
	return append(b, s[from:]...)
}

// dotsAt returns the dots of the first segment of s, after its slash, if it is . or .., and where
// it ends, and else 0.
func dotsAt(s string, escapes bool) (dots, end int) {
	for end = 1; end < len(s) && s[end] != '/'; dots++ {
		switch {
		case dots == 2:
			return 0, 0
		case s[end] == '.':
			end++
		case escapes && len(s) >= end+3 && s[end:end+2] == "%2" && s[end+2]|0x20 == 'e':
			end += 3
		default:
			return 0, 0
		}
	}
	return dots, end
}

// dropLeadingSlashes leaves one slash at the start.
func dropLeadingSlashes(b []byte, s string) []byte {
	if !strings.HasPrefix(s, "//") {
		return nil
	}
	return append(append(b, '/'), strings.TrimLeft(s, "/")...)
}

// dropAuthority removes the first segment of a path that begins with two slashes: read as a
// reference, it begins with the name of a host.
func dropAuthority(b []byte, s string) []byte {
	if !strings.HasPrefix(s, "//") {
		return nil
	}
	s = strings.TrimLeft(s, "/")
	if i := strings.IndexByte(s, '/'); i >= 0 {
		return append(b, s[i:]...)
	}
	return append(b, '/')
}
