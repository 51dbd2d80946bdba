package replay

import (
	"bufio"
	"bytes"
	"io"
	"regexp"
)

// A log may be one JSON array of records, as gcloud prints them, or an object with one, as Azure
// stores them. elements writes each record as one line, without reading the whole.
type elements struct {
	in     *bufio.Reader
	level  int // brackets around a record: 1 of an array, 2 of an object with one
	depth  int // brackets around the next byte
	text   bool
	escape bool
	inside bool // a record
}

// arrays matches the beginning of a log that is one array, and of one that is an object with one.
var arrays = [2]*regexp.Regexp{regexp.MustCompile(`^\s*\[\s*\{`),
	regexp.MustCompile(`^\s*\{\s*"(?:records|Records)"\s*:\s*\[`)}

// elementsOf returns a reader of the records of a JSON array, one a line, or nil if in has none.
func elementsOf(in *bufio.Reader) io.Reader {
	first, _ := in.Peek(256)
	for i, array := range arrays {
		if array.Match(first) {
			return bufio.NewReader(&elements{in: in, level: i + 1}) // Read needs room for two bytes
		}
	}
	return nil
}

// Read reads some of the records into b, which has room for two bytes at least.
func (e *elements) Read(b []byte) (n int, err error) {
	for n == 0 {
		_, err := e.in.Peek(1)
		if err != nil {
			return 0, err
		}
		most := min(e.in.Buffered(), len(b)/2) // a byte and an end of line for each
		raw, _ := e.in.Peek(max(1, most))
		out := b[:0]
		for _, c := range raw {
			out = e.byte(out, c)
		}
		n = len(out)
		_, _ = e.in.Discard(len(raw)) // these bytes were peeked, so this cannot fail
	}
	return n, nil
}

// byte appends what the next byte of the array adds to its records.
func (e *elements) byte(out []byte, c byte) []byte {
	if e.inside && bytes.IndexByte([]byte("\r\n"), c) < 0 {
		out = append(out, c)
	}
	switch {
	case e.escape:
		e.escape = false
	case e.text:
		e.escape = c == '\\'
		e.text = c != '"'
	case c == '"':
		e.text = true
	case c == '{' || c == '[':
		e.depth++
		if c == '{' && !e.inside && e.depth == e.level+1 {
			e.inside = true
			out = append(out, c)
		}
	case c == '}' || c == ']':
		e.depth--
		if e.inside && e.depth == e.level {
			e.inside = false
			out = append(out, '\n')
		}
	}
	return out
}
