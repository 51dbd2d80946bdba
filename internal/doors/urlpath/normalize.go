package urlpath

import (
	"errors"
	"strings"
)

// The reasons why Normalize refuses a path: servers read it differently, whatever its spelling.
var (
	ErrSlash     = errors.New("the path has an escaped slash")
	ErrBackslash = errors.New("the path has a backslash")
	ErrNUL       = errors.New("the path has a NUL byte")
	ErrTwice     = errors.New("the path is escaped twice")
	ErrDots      = errors.New("the path has a dot segment that servers read differently")
)

// Normalize returns a path as RFC 3986 section 6.2.2 normalizes it: escapes are in capital letters
// and only where they are needed, and dot segments are removed. It also merges slashes. It fails if
// servers read the path differently even so. Parameters, letter case and a final slash stay: a
// limit must still match any of the Readings of the result.
func Normalize(path string) (string, error) {
	if plain(path) {
		return path, nil
	}
	path = rooted(path)
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c, ok := escaped(path[i:])
		if !ok {
			c = path[i]
		}
		switch {
		case c == '\\':
			return "", ErrBackslash
		case c == 0:
			return "", ErrNUL
		case ok && c == '/':
			return "", ErrSlash
		case ok && !unreserved(c):
			b.WriteString(strings.ToUpper(path[i : i+3]))
		case ok || classes[c] != other || c == ';' || c == '%':
			b.WriteByte(c)
		default:
			b.WriteString(escape(path[i : i+1]))
		}
		if ok {
			i += 2
		}
	}
	path = b.String()
	for rest := path; ; {
		_, after, found := strings.Cut(rest, "%25")
		if !found {
			break
		}
		if _, twice := escaped("%" + after); twice {
			return "", ErrTwice
		}
		rest = after
	}
	for segment := range strings.SplitSeq(path, "/") {
		name, _, found := strings.Cut(strings.ReplaceAll(segment, "%3B", ";"), ";")
		if found && (name == "." || name == "..") {
			return "", ErrDots
		}
	}
	merges, removes := step(mergeSlashes), step(removeDots)
	merged := removes.of(merges.of(path))
	if merges.of(removes.of(path)) != merged {
		return "", ErrDots // .. follows an empty segment
	}
	return merged, nil
}

// unreserved reports whether c never needs an escape (RFC 3986 section 2.3).
func unreserved(c byte) bool {
	return classes[c] == ordinary && strings.IndexByte("!$&'()*+,=:@", c) < 0 || c == '.'
}
