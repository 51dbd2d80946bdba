package urlpath

import "strings"

// This file writes paths in escaped form.

// escape escapes the bytes of s that may not stand in a path, including percent signs.
func escape(s string) string { return encode(s, percentsStand) }

// Escape escapes the bytes of a path that may not stand in it. Its escapes stay.
func Escape(path string) string { return encode(path, percentsStay) }

// keepEscapes is for servers that compare escaped text: an escape stays if the byte needs one, and
// otherwise its percent sign stands for itself.
func keepEscapes(s string) string { return encode(s, escapesStay) }

// escapeSegments decodes each segment of s and escapes it again.
func escapeSegments(s string) string { return encode(s, escapesAgain) }

// percents says what encode makes of percent signs.
type percents uint8

const (
	percentsStand percents = iota // each stands for itself, and is escaped
	percentsStay                  // none is escaped
	escapesStay                   // as percentsStand, but escapes of bytes that need one stay
	escapesAgain                  // as escapesStay, but the other escapes are decoded
)

// encode escapes the bytes of s that may not stand in a path. It returns s if there are none.
func encode(s string, percents percents) string {
	const hex = "0123456789ABCDEF"
	n := 0
	for i := range len(s) {
		if needsEscape(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*n)
	for i := 0; i < len(s); i++ {
		c, escapes := s[i], needsEscape(s[i])
		if c == '%' {
			switch of, ok := escaped(s[i:]); {
			case percents == percentsStay:
				escapes = false
			case percents == percentsStand || !ok:
			case needsEscape(of) || of == '/':
				c, i = of, i+2
			case percents == escapesAgain:
				c, i, escapes = of, i+2, false
			}
		}
		if escapes {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// needsEscape reports whether a byte that stands for itself is escaped in a path.
func needsEscape(c byte) bool { return classes[c] == other && c != ';' }

// Lower returns a path, escaped as a Reading is, in small letters.
func Lower(path string) string {
	if strings.IndexByte(path, '%') < 0 {
		return lower(path)
	}
	return encode(lower(unescape(path, &decodesLetters)), escapesStay)
}
