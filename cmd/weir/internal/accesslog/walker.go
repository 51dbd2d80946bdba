package accesslog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
)

// maxDepth bounds the nesting of a line, so that a hostile line cannot exhaust the stack. A Caddy
// line has depth 4.
const maxDepth = 64

// walker parses one JSON text in one pass and returns the values that its caller asks for.
// encoding/json would take ten times as long, most of it for unused headers. All text that walker
// accepts is valid for encoding/json.
type walker struct {
	s       []byte
	i       int
	key     []byte                // an unescaped key
	scratch [scratchBlocks][]byte // unescaped values, each with its own memory: the caller holds several
	used    int                   // number of blocks of scratch in use
}

// scratchBlocks bounds the number of values with escapes that are read from a line; a line with
// more is an error.
const scratchBlocks = 2 * slots

func (w *walker) reset(s []byte) { w.s, w.i, w.used = s, 0, 0 }

// peek skips white space and returns the next byte, or 0 at the end. Servers write no white space,
// so the loop is in a separate function.
func (w *walker) peek() byte {
	if w.i < len(w.s) && w.s[w.i] > ' ' {
		return w.s[w.i]
	}
	return w.skipSpace()
}

func (w *walker) skipSpace() byte {
	for ; w.i < len(w.s); w.i++ {
		switch c := w.s[w.i]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// take skips white space and then c. It fails if c is not next.
func (w *walker) take(c byte) error {
	if w.peek() != c || w.i == len(w.s) {
		return ErrJSON
	}
	w.i++
	return nil
}

// end fails unless nothing but white space is left.
func (w *walker) end() error {
	w.peek()
	if w.i != len(w.s) {
		return ErrJSON
	}
	return nil
}

// object parses an object and calls field for each of its keys; field must parse the value.
func (w *walker) object(field func(key []byte) error) error {
	if err := w.take('{'); err != nil {
		return err
	}
	if w.peek() == '}' {
		w.i++
		return nil
	}
	for {
		if w.peek() != '"' {
			return ErrJSON
		}
		key, escaped, err := w.string()
		if err != nil {
			return err
		}
		if escaped {
			if key, err = unescape(w.key, key); err != nil {
				return err
			}
			w.key = key
		}
		if err := w.take(':'); err != nil {
			return err
		}
		if err := field(key); err != nil {
			return err
		}
		if w.peek() == '}' {
			w.i++
			return nil
		}
		if err := w.take(','); err != nil {
			return err
		}
	}
}

// text parses a string value into dst. null leaves dst unchanged.
func (w *walker) text(dst *[]byte) error {
	if w.peek() == 'n' {
		return w.literal("null")
	}
	if w.peek() != '"' {
		return ErrField
	}
	raw, escaped, err := w.string()
	if err != nil {
		return err
	}
	if escaped {
		if w.used == scratchBlocks {
			return ErrField
		}
		block := &w.scratch[w.used]
		w.used++
		if *block, err = unescape(*block, raw); err != nil {
			return err
		}
		raw = *block
	}
	*dst = raw
	return nil
}

// list parses an array and stores its strings in dst, with commas between them.
func (w *walker) list(dst *[]byte) error {
	return w.array(func() error {
		if w.peek() != '"' {
			return w.skip(1)
		}
		first := *dst
		if err := w.text(dst); err != nil || len(first) == 0 {
			return err
		}
		*dst = append(append(append([]byte(nil), first...), ", "...), *dst...)
		return nil
	})
}

// string parses a string. It returns the text between the quotes and reports whether it has
// escapes.
func (w *walker) string() (raw []byte, escaped bool, err error) {
	s, from := w.s, w.i+1
	for i := from; ; {
		i += plain(s[i:])
		if i == len(s) || s[i] < ' ' {
			return nil, false, ErrJSON
		}
		if s[i] == '"' {
			w.i = i + 1
			return s[from:i], escaped, nil
		}
		n := escapeLen(s[i:])
		if n == 0 {
			return nil, false, ErrJSON
		}
		escaped = true
		i += n
	}
}

// plain returns the length of the prefix of s without quotes, backslashes and control characters.
// It tests eight bytes at a time, since strings are most of a line: byte by byte this took two
// thirds of the time.
func plain(s []byte) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := binary.LittleEndian.Uint64(s[i:])
		quote, slash := x^ones*'"', x^ones*'\\'
		// v-ones&^v has the high bit set in the lowest zero byte of v; a borrow can mark only bytes
		// above it. The same holds for bytes below a space.
		if m := ((quote-ones)&^quote | (slash-ones)&^slash | (x-ones*' ')&^x) & high; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(s) && s[i] != '"' && s[i] != '\\' && s[i] >= ' ' {
		i++
	}
	return i
}

// escapeLen returns the length of the escape at the start of s, or 0 if it is invalid.
func escapeLen(s []byte) int {
	if len(s) < 2 {
		return 0
	}
	if s[1] != 'u' {
		if bytes.IndexByte([]byte(`"\/bfnrt`), s[1]) < 0 {
			return 0
		}
		return 2
	}
	if len(s) < 6 {
		return 0
	}
	for _, c := range s[2:6] {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return 0
		}
	}
	return 6
}

// unescape decodes a string with escapes into buf and returns it. Escapes are rare, so it uses
// encoding/json.
func unescape(buf, raw []byte) ([]byte, error) {
	var s string
	if err := json.Unmarshal(append(append([]byte{'"'}, raw...), '"'), &s); err != nil {
		return nil, ErrJSON
	}
	return append(buf[:0], s...), nil
}

// skip parses any value and drops it. depth is the number of skipped values around it.
func (w *walker) skip(depth int) error {
	if depth > maxDepth {
		return ErrJSON
	}
	switch w.peek() {
	case '"':
		_, _, err := w.string()
		return err
	case '{':
		return w.object(func([]byte) error { return w.skip(depth + 1) })
	case '[':
		return w.array(func() error { return w.skip(depth + 1) })
	case 't':
		return w.literal("true")
	case 'f':
		return w.literal("false")
	case 'n':
		return w.literal("null")
	}
	if _, err := w.number(); err != nil {
		return ErrJSON
	}
	return nil
}

// array parses an array and calls element for each of its elements; element must parse it.
func (w *walker) array(element func() error) error {
	w.i++
	if w.peek() == ']' {
		w.i++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if w.peek() == ']' {
			w.i++
			return nil
		}
		if err := w.take(','); err != nil {
			return err
		}
	}
}

func (w *walker) literal(word string) error {
	if !bytes.HasPrefix(w.s[w.i:], []byte(word)) {
		return ErrJSON
	}
	w.i += len(word)
	return nil
}

// number parses a number and returns its text: -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)?
func (w *walker) number() ([]byte, error) {
	w.peek()
	s, i := w.s[w.i:], 0
	if i < len(s) && s[i] == '-' {
		i++
	}
	whole := run(s[i:])
	if whole == 0 || whole > 1 && s[i] == '0' {
		return nil, ErrField
	}
	i += whole
	if i < len(s) && s[i] == '.' {
		n := run(s[i+1:])
		if n == 0 {
			return nil, ErrJSON
		}
		i += 1 + n
	}
	if i < len(s) && s[i]|0x20 == 'e' {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		n := run(s[i:])
		if n == 0 {
			return nil, ErrJSON
		}
		i += n
	}
	w.i += i
	return s[:i], nil
}

// run returns the number of digits at the start of s.
func run(s []byte) int {
	for i, c := range s {
		if c < '0' || c > '9' {
			return i
		}
	}
	return len(s)
}
