package urlpath

import "strings"

// This file has the steps of reading a path. Each is what some server of the table in docs/paths.md
// does.

// decode decodes all escapes once. Invalid ones stay.
func decode(s string) string { return unescape(s, func(byte) bool { return true }) }

// decodeSegments decodes all escapes but those of slashes once.
func decodeSegments(s string) string { return unescape(s, func(c byte) bool { return c != '/' }) }

// decodeUnreserved decodes the escapes of bytes that never need one (RFC 3986 section 6.2.2.2).
func decodeUnreserved(s string) string { return unescape(s, unreserved) }

func unescape(s string, these func(byte) bool) string {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		if c, ok := escaped(s[i:]); ok && these(c) {
			b = append(b, c)
			i += 2
			continue
		}
		b = append(b, s[i])
	}
	return string(b)
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
	if strings.IndexByte(s, ';') < 0 {
		return s
	}
	return eachSegment(s, func(segment string) string {
		segment, _, _ = strings.Cut(segment, ";")
		return segment
	})
}

func eachSegment(s string, change func(string) string) string {
	segments := strings.Split(s, "/")
	for i, segment := range segments {
		segments[i] = change(segment)
	}
	return strings.Join(segments, "/")
}

// unescapeSlashes decodes only the escapes of slashes and backslashes, both to slashes.
func unescapeSlashes(s string) string { return slashEscapes.Replace(s) }

var slashEscapes = strings.NewReplacer("%2f", "/", "%2F", "/", "%5c", "/", "%5C", "/")

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
	return removeSegments(s, func(segment string) string { return segment })
}

// removeEscapedDots also removes them if a dot is written %2E.
func removeEscapedDots(s string) string {
	return removeSegments(s, func(segment string) string {
		if len(segment) > len("%2e%2e") {
			return segment
		}
		return strings.ReplaceAll(strings.ToLower(segment), "%2e", ".")
	})
}

// removeSegments removes the segments that read returns . or .. for.
func removeSegments(s string, read func(string) string) string {
	if !strings.Contains(s, "/.") && !strings.Contains(s, "/%2") {
		return s
	}
	segments := strings.Split(s[1:], "/")
	kept, removed := segments[:0], false
	for i, segment := range segments {
		dots := read(segment)
		if dots != "." && dots != ".." {
			kept = append(kept, segment)
			continue
		}
		removed = true
		if dots == ".." && len(kept) > 0 {
			kept = kept[:len(kept)-1]
		}
		if i == len(segments)-1 {
			kept = append(kept, "") // they name a directory
		}
	}
	if !removed {
		return s
	}
	return "/" + strings.Join(kept, "/")
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

// escape escapes the bytes of s that may not stand in a path, including percent signs.
func escape(s string) string { return appendEscaped(nil, s, false) }

// Escape escapes the bytes of a path that may not stand in it. Its escapes stay.
func Escape(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; classes[c] == other && c != ';' && c != '%' {
			b.WriteString(escape(path[i : i+1]))
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// keepEscapes is for servers that compare escaped text: an escape stays if the byte needs one, and
// otherwise its percent sign stands for itself.
func keepEscapes(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return escape(s)
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if c, ok := escaped(s[i:]); ok && (classes[c] == other && c != ';' || c == '/') {
			b.WriteString(strings.ToUpper(s[i : i+3]))
			i += 2
			continue
		}
		b.WriteString(escape(s[i : i+1]))
	}
	return b.String()
}

// escapeSegments decodes each segment of s and escapes it again.
func escapeSegments(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return escape(s)
	}
	return eachSegment(s, func(segment string) string {
		return appendEscaped(nil, decode(segment), true)
	})
}

// appendEscaped appends the escaped form of s to b and returns the result as a string; slashes too
// says whether slashes are escaped. It returns s if there is nothing to escape.
func appendEscaped(b []byte, s string, slashesToo bool) string {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		c := s[i]
		if classes[c] != other && (c != '/' || !slashesToo) || c == ';' {
			if b != nil {
				b = append(b, c)
			}
			continue
		}
		if b == nil {
			b = append(make([]byte, 0, len(s)+16), s[:i]...)
		}
		b = append(b, '%', hex[c>>4], hex[c&15])
	}
	if b == nil {
		return s
	}
	return string(b)
}
