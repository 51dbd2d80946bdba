package urlpath

import (
	"bytes"
	"strings"
)

// This file has the steps of reading a path. Each is what some server of the table in docs/paths.md
// does. A step takes one pass and returns its argument if it does not apply.

// decode decodes all escapes once. Invalid ones stay.
func decode(s string) string { return unescape(s, &decodesAll) }

// decodeSegments decodes all escapes but those of slashes once.
func decodeSegments(s string) string { return unescape(s, &decodesSegments) }

// decodeUnreserved decodes the escapes of bytes that never need one (RFC 3986 section 6.2.2.2).
func decodeUnreserved(s string) string { return unescape(s, &decodesUnreserved) }

// unescapeSlashes decodes only the escapes of slashes and backslashes, both to slashes.
func unescapeSlashes(s string) string { return unescape(s, &decodesSlashes) }

// decoding has the byte that the escape of each byte is replaced by, and decoded set, or 0 for an
// escape that stays.
type decoding [256]uint16

const decoded = 1 << 8

var (
	decodesAll        = decodes(func(byte) bool { return true })
	decodesSegments   = decodes(func(c byte) bool { return c != '/' })
	decodesUnreserved = decodes(unreserved)
	decodesSlashes    = decoding{'/': decoded | '/', '\\': decoded | '/'}

	// decodesLetters leaves what would be read differently if it were decoded.
	decodesLetters = decodes(func(c byte) bool { return c != '/' && c != '%' })
)

func decodes(these func(byte) bool) (of decoding) {
	for i := range of {
		if these(byte(i)) {
			of[i] = decoded | uint16(i)
		}
	}
	return of
}

func unescape(s string, of *decoding) string {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		return s
	}
	b := make([]byte, len(s))
	n := copy(b, s[:i])
	for i < len(s) {
		if b[n] = s[i]; b[n] == '%' {
			if c, ok := escaped(s[i:]); ok && of[c] != 0 {
				b[n] = byte(of[c])
				i += 2
			}
		}
		i++
		n++
	}
	if n == len(s) {
		return s
	}
	return string(b[:n])
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
func dropParameters(s string) string {
	semicolon := strings.IndexByte(s, ';')
	if semicolon < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for semicolon >= 0 {
		b = append(b, s[:semicolon]...)
		slash := strings.IndexByte(s[semicolon:], '/')
		if slash < 0 {
			return string(b)
		}
		s = s[semicolon+slash:]
		semicolon = strings.IndexByte(s, ';')
	}
	return string(append(b, s...))
}

func backslashesToSlashes(s string) string { return strings.ReplaceAll(s, `\`, "/") }

func mergeSlashes(s string) string {
	i := strings.Index(s, "//")
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i+1]...)
	for i++; i < len(s); i++ {
		if s[i] != '/' || s[i-1] != '/' {
			b = append(b, s[i])
		}
	}
	return string(b)
}

// removeDots removes the segments . and .. (RFC 3986 section 5.2.4).
func removeDots(s string) string {
	if !strings.Contains(s, "/.") {
		return s
	}
	return removeSegments(s, func(segment string) int {
		if segment == "." || segment == ".." {
			return len(segment)
		}
		return 0
	})
}

// removeEscapedDots also removes them if a dot is written %2E.
func removeEscapedDots(s string) string {
	if !strings.Contains(s, "/.") && !strings.Contains(s, "/%2") {
		return s
	}
	return removeSegments(s, func(segment string) (dots int) {
		for ; segment != ""; dots++ {
			if c, ok := escaped(segment); ok && c == '.' {
				segment = segment[3:]
			} else if segment[0] == '.' {
				segment = segment[1:]
			} else {
				return 0
			}
			if dots == 2 {
				return 0
			}
		}
		return dots
	})
}

// removeSegments removes the segments that dots returns 1 for, and those that it returns 2 for with
// the segments before them. It asks only about segments that begin with a dot or an escape.
func removeSegments(s string, dots func(segment string) int) string {
	var b []byte
	from := 0 // of the part that b lacks
	for i := 0; i+1 < len(s); i++ {
		if s[i] != '/' || s[i+1] != '.' && s[i+1] != '%' {
			continue
		}
		end := i + 1
		if slash := strings.IndexByte(s[end:], '/'); slash >= 0 {
			end += slash
		} else {
			end = len(s)
		}
		n := dots(s[i+1 : end])
		if n == 0 {
			i = end - 1
			continue
		}
		if b == nil {
			b = make([]byte, 0, len(s))
		}
		if b = append(b, s[from:i]...); n == 2 {
			b = b[:max(0, bytes.LastIndexByte(b, '/'))]
		}
		if end == len(s) {
			b = append(b, '/') // they name a directory
		}
		from, i = end, end-1
	}
	if b == nil {
		return s
	}
	return string(append(b, s[from:]...))
}

// dropLeadingSlashes leaves one slash at the start.
func dropLeadingSlashes(s string) string {
	if !strings.HasPrefix(s, "//") {
		return s
	}
	return "/" + strings.TrimLeft(s, "/")
}

// dropAuthority removes the first segment of a path that begins with two slashes: read as a
// reference, it begins with the name of a host.
func dropAuthority(s string) string {
	if !strings.HasPrefix(s, "//") {
		return s
	}
	s = strings.TrimLeft(s, "/")
	if i := strings.IndexByte(s, '/'); i >= 0 {
		return s[i:]
	}
	return "/"
}
