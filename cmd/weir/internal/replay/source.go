package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
)

// maxLine is the longest line that is read. Web servers refuse request headers long before.
const maxLine = 256 << 10

var errTooLong = fmt.Errorf("the line is over %d KiB", maxLine>>10)

// Stdin is the name that stands for the standard input.
const Stdin = "-"

// source reads the requests of one file. Its entry holds until the next call of next.
type source struct {
	name     string
	file     io.Closer
	raw      *counter
	lines    *bufio.Reader
	parser   accesslog.Parser
	entry    accesslog.Entry
	number   uint64 // of the line last read, from 1
	readable uint64
	rejects  *Unreadable
}

// open opens a file, or stdin if name is Stdin. Gzip is told by its first two bytes, not by its name.
func open(name string, stdin io.Reader, rejects *Unreadable) (*source, error) {
	s := &source{name: name, rejects: rejects}
	if name == Stdin {
		s.raw = &counter{r: stdin}
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, &InputError{err}
		}
		if info, err := f.Stat(); err == nil && info.IsDir() {
			f.Close()
			return nil, &InputError{fmt.Errorf("%s is a directory", name)}
		}
		s.raw, s.file = &counter{r: f}, f
	}
	s.lines = bufio.NewReaderSize(s.raw, maxLine)
	if magic, _ := s.lines.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return s, nil
	}
	z, err := gzip.NewReader(s.lines)
	if err != nil {
		s.close()
		return nil, &InputError{fmt.Errorf("%s: %w", name, err)}
	}
	s.lines = bufio.NewReaderSize(z, maxLine)
	return s, nil
}

func (s *source) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// next reads on to the next readable line. It returns io.EOF at the end of a file that had one, and an InputError at
// the end of one that had none.
func (s *source) next() error {
	for {
		line, err := s.line()
		switch {
		case err == io.EOF && s.readable > 0:
			return io.EOF
		case err == io.EOF:
			return &InputError{fmt.Errorf("%s: none of its %d lines is of an access log%s", s.name, s.number, s.rejects.why(s.name))}
		case err != nil && err != errTooLong:
			return fmt.Errorf("%s: after line %d: %w", s.name, s.number, err)
		}
		s.number++
		if err == nil {
			err = s.parser.Parse(line, &s.entry)
		}
		if err == nil {
			s.readable++
			return nil
		}
		s.rejects.add(s.name, s.number, line, err)
	}
}

// line returns the next line. Of one that is too long it returns the beginning, and drops the rest.
func (s *source) line() ([]byte, error) {
	line, err := s.lines.ReadSlice('\n')
	if err == nil || err == io.EOF && len(line) > 0 {
		return line, nil
	}
	if err != bufio.ErrBufferFull {
		return nil, err
	}
	head := bytes.Clone(line[:maxExcerpt])
	for err == bufio.ErrBufferFull {
		_, err = s.lines.ReadSlice('\n')
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	return head, errTooLong
}

// counter counts what was read, for the progress bar.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// InputError says that what was given to replay is not usable: the user's to mend, and not a failure at run time.
type InputError struct{ err error }

func (e *InputError) Error() string { return e.err.Error() }
func (e *InputError) Unwrap() error { return e.err }

// Unreadable are the lines that are not of an access log.
type Unreadable struct {
	Count    uint64
	Examples []Example // the first few
}

// Example is a line that could not be read.
type Example struct {
	File   string
	Line   uint64 // from 1
	Reason string
	Text   string // its beginning; any bytes
}

// why tells the first example of a file, as the end of a sentence.
func (u *Unreadable) why(file string) string {
	for _, e := range u.Examples {
		if e.File == file {
			return fmt.Sprintf("; line %d: %s: %q", e.Line, e.Reason, e.Text)
		}
	}
	return ""
}

const (
	maxExamples = 5
	maxExcerpt  = 160
)

func (u *Unreadable) add(file string, number uint64, line []byte, reason error) {
	u.Count++
	if len(u.Examples) == maxExamples {
		return
	}
	line = bytes.TrimRight(line, "\r\n")
	text := string(line[:min(len(line), maxExcerpt)])
	u.Examples = append(u.Examples, Example{File: file, Line: number, Reason: reason.Error(), Text: text})
}

// merged reads several sources in the order of their requests' times, as far as each is in order itself: rotated logs
// can be given in any order, and the logs of several servers are one traffic.
type merged struct {
	sources []*source // those not at their end; each holds an entry that was not handed out
	current *source   // the one whose entry was handed out last
	limit   int64     // the earliest Start of the others
}

// newMerged reads the first entry of each source.
func newMerged(sources []*source) (*merged, error) {
	m := &merged{}
	for _, s := range sources {
		if err := s.next(); err != nil {
			return nil, err
		}
		m.sources = append(m.sources, s)
	}
	return m, nil
}

// next returns the earliest entry, or io.EOF when there is none left.
func (m *merged) next() (*accesslog.Entry, error) {
	if m.current != nil {
		err := m.current.next()
		if err == nil && m.current.entry.Start <= m.limit {
			return &m.current.entry, nil
		}
		if errors.Is(err, io.EOF) {
			m.drop(m.current)
		} else if err != nil {
			return nil, err
		}
	}
	if len(m.sources) == 0 {
		return nil, io.EOF
	}
	m.choose()
	return &m.current.entry, nil
}

// choose makes the source with the earliest entry the current one. It is asked only when the current one has passed
// another's entry, so that a linear search is good enough for a year of rotated logs.
func (m *merged) choose() {
	const never = 1<<63 - 1
	m.current, m.limit = m.sources[0], never
	for _, s := range m.sources[1:] {
		if s.entry.Start < m.current.entry.Start {
			m.current, m.limit = s, m.current.entry.Start
		} else {
			m.limit = min(m.limit, s.entry.Start)
		}
	}
}

func (m *merged) drop(gone *source) {
	for i, s := range m.sources {
		if s == gone {
			m.sources = append(m.sources[:i], m.sources[i+1:]...)
			gone.close()
			return
		}
	}
}
