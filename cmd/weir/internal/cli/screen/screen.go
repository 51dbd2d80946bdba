// Package screen makes text fit to be shown in a terminal.
package screen

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable escapes what a terminal would interpret or not show: control characters, characters
// that change the direction of text, and invalid UTF-8. It does not escape a backslash, so the
// result is for people, not programs.
func Printable(s string) string {
	ascii := func(c byte) bool { return ' ' <= c && c <= '~' }
	i := 0
	for i < len(s) && ascii(s[i]) {
		i++
	}
	if i == len(s) {
		return s
	}
	b := append(make([]byte, 0, len(s)+16), s[:i]...)
	for i < len(s) {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = appendHex(append(b, `\x`...), rune(s[i]), 2)
		case unicode.IsPrint(r) || r == utf8.RuneError:
			b = append(b, s[i:i+size]...)
		case r < utf8.RuneSelf:
			b = appendHex(append(b, `\x`...), r, 2)
		default:
			b = appendHex(append(b, `\u`...), r, 4)
		}
		i += size
	}
	return string(b)
}

// appendHex appends r in hexadecimal, with at least so many digits.
func appendHex(b []byte, r rune, digits int) []byte {
	for n := r >> (4 * digits); n > 0; n >>= 4 {
		digits++
	}
	for digits--; digits >= 0; digits-- {
		b = append(b, "0123456789abcdef"[r>>(4*digits)&15])
	}
	return b
}

// Lines applies [Printable] to each line of text.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}
