package accesslog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// maxDepth bounds the nesting of a line, so that a hostile line cannot exhaust the stack. A Caddy
// line has depth 4.
const maxDepth = 64

// walker parses one JSON text in one pass and returns the values that its caller asks for.
// encoding/json would take ten times as long, most of it for unused headers. All text that walker
// accepts is valid for encoding/json.
type walker struct {
	s []byte
	i int
}

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

// object parses an object and calls field for each of its keys; field must parse the value.
func (w *walker) object(field func(key []byte) error) error {
	return w.members('}', func() error {
		if w.peek() != '"' {
			return ErrJSON
		}
		key, err := w.text()
		if err == nil {
			err = w.take(':')
		}
		if err != nil {
			return err
		}
		return field(key)
	})
}

// members parses what is between a bracket and the one that closes it, and calls member for each of
// what commas separate; member must parse it.
func (w *walker) members(closing byte, member func() error) error {
	w.i++
	if w.peek() == closing {
		w.i++
		return nil
	}
	for {
		if err := member(); err != nil {
			return err
		}
		if w.peek() == closing {
			w.i++
			return nil
		}
		if err := w.take(','); err != nil {
			return err
		}
	}
}

// list parses an array and returns its strings, with commas between them.
func (w *walker) list() (joined []byte, err error) {
	err = w.members(']', func() error {
		if w.peek() != '"' {
			return w.skip(1)
		}
		one, err := w.text()
		if len(joined) > 0 {
			one = slices.Concat(joined, []byte(", "), one)
		}
		joined = one
		return err
	})
	return joined, err
}

// text parses a string and returns its text. Escapes are rare, so encoding/json decodes them.
func (w *walker) text() ([]byte, error) {
	from := w.i
	escaped, err := w.string()
	if err != nil {
		return nil, err
	}
	if !escaped {
		return w.s[from+1 : w.i-1], nil
	}
	var decoded string
	err = json.Unmarshal(w.s[from:w.i], &decoded)
	return []byte(decoded), err
}

// string parses a string and reports whether it has escapes.
func (w *walker) string() (escaped bool, err error) {
	for i := w.i + 1; ; {
		i += plain(w.s[i:])
		if i == len(w.s) || w.s[i] < ' ' {
			return false, ErrJSON
		}
		if w.s[i] == '"' {
			w.i = i + 1
			return escaped, nil
		}
		n := escapeLen(w.s[i:])
		if n == 0 {
			return false, ErrJSON
		}
		escaped = true
		i += n
	}
}

// escapeLen returns the length of the escape at the start of s, or 0 if it is invalid.
func escapeLen(s []byte) int {
	if len(s) > 1 && strings.IndexByte(`"\/bfnrt`, s[1]) >= 0 {
		return 2
	}
	if len(s) > 5 && s[1] == 'u' {
		if _, err := strconv.ParseUint(string(s[2:6]), 16, 16); err == nil {
			return 6
		}
	}
	return 0
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

// skip parses any value and drops it. depth is the number of skipped values around it.
func (w *walker) skip(depth int) error {
	if depth > maxDepth {
		return ErrJSON
	}
	switch w.peek() {
	case '"':
		_, err := w.string()
		return err
	case '{':
		return w.object(func([]byte) error { return w.skip(depth + 1) })
	case '[':
		return w.members(']', func() error { return w.skip(depth + 1) })
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(w.s[w.i:], []byte(word)) {
			w.i += len(word)
			return nil
		}
	}
	if _, err := w.number(); err != nil {
		return ErrJSON
	}
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

// whole has walk parse a line that is one object.
func (w *walker) whole(line []byte, walk func() error) error {
	*w = walker{s: line}
	if w.peek() != '{' {
		return ErrJSON
	}
	if err := walk(); err != nil {
		return err
	}
	w.peek()
	if w.i < len(line) {
		return ErrJSON
	}
	return nil
}

// leaves calls found for the texts of the object that the walker is at. path precedes their keys.
func (w *walker) leaves(path string, found func(Field, []byte)) error {
	return w.object(func(key []byte) error {
		name := path + string(key)
		switch w.peek() {
		case '{':
			if strings.Count(path, ".") < maxDepth {
				return w.leaves(name+".", found)
			}
		case '[':
			from := w.i
			list, err := w.list()
			if err != nil { // of objects
				w.i = from
				break
			}
			found(Field{Key: name}, list)
			return nil
		case '"':
			text, err := w.text()
			found(Field{Key: name}, text)
			return err
		}
		return w.skip(0)
	})
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
