package urlpath

// This file writes paths in escaped form.

// escape escapes the bytes of s that may not stand in a path, including percent signs.
func escape(s string) string { return string(encode(nil, s, percentsStand)) }

// Escape escapes the bytes of a path that may not stand in it. Its escapes stay.
func Escape(path string) string { return string(encode(nil, path, percentsStay)) }

// percents says what encode makes of percent signs.
type percents uint8

const (
	// Each stands for itself, and is escaped.
	percentsStand percents = iota

	// None is escaped.
	percentsStay

	// As percentsStand, but an escape stays if the byte needs one, for servers that compare escaped
	// text.
	escapesStay

	// As escapesStay, but the other escapes are decoded, for servers that decode each segment.
	escapesAgain
)

// encode appends s to b, with escapes for the bytes that may not stand in a path.
func encode(b []byte, s string, percents percents) []byte {
	const hex = "0123456789ABCDEF"
	from := 0 // of the part that b lacks
	for i := 0; i < len(s); i++ {
		if !escapes[s[i]] {
			continue
		}
		b = append(b, s[from:i]...)
		c, escape := s[i], true
		if c == '%' {
			switch of, ok := escaped(s[i:]); {
			case percents == percentsStay:
				escape = false
			case percents == percentsStand || !ok:
			case escapes[of] || of == '/':
				c, i = of, i+2
			case percents == escapesAgain:
				c, i, escape = of, i+2, false
			}
		}
		if escape {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
		from = i + 1
	}
	return append(b, s[from:]...)
}

// escapes has the bytes that are escaped in a path where they stand for themselves.
var escapes = func() (of [256]bool) {
	for i := range of {
		of[i] = classes[i] == other && i != ';'
	}
	return of
}()

// Lower returns a path, escaped as a Reading is, in small letters.
func Lower(path string) string {
	b, changed := []byte(path), false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '%' && i+1 < len(b) && b[i+1] >= '8': // a byte over 0x7F
			return string(encode(b[:0], lower(step(decodeLetters).of(path)), escapesStay))
		case c == '%':
			i += 2
		case 'A' <= c && c <= 'Z':
			b[i], changed = c+'a'-'A', true
		}
	}
	if !changed {
		return path
	}
	return string(b)
}
