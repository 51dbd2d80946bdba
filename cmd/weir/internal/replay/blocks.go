package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
)

// Stdin is the file name of the standard input.
const Stdin = "-"

const (
	// blockSize is how much of a file is parsed at once, unless a line is longer.
	blockSize = 128 << 10

	// maxLine is the longest line that is read. Web servers refuse request headers far shorter than
	// that. It is below maxBlock, so a full block without an end of line holds a line that is too
	// long.
	maxLine  = 256 << 10
	maxBlock = maxLine + blockSize
)

// block is a piece of a file and the content of its lines.
type block struct {
	buf    []byte // blockSize
	data   []byte // whole lines
	source *source
	fields []byte        // the directive of a W3C log that precedes data
	last   bool          // it is the last of its source
	err    error         // from reading
	parsed chan struct{} // receives when content is set
	content
}

// source cuts one file into blocks of whole lines.
type source struct {
	name     string
	file     io.Closer
	raw      counter
	in       io.Reader
	rest     []byte // the beginning of a line that continues in the next block
	w3c      bool   // it begins as a W3C log
	fields   []byte // the last directive of a W3C log
	skipping bool   // the rest of a line that is too long is to be dropped
}

// open opens a file, or stdin if name is Stdin. It recognizes gzip and zstd by the first bytes, not
// by the name, and skips a byte order mark. The source is not nil; after an error it has only a
// name.
func open(name string, stdin io.Reader) (*source, error) {
	s := &source{name: UTF8(name)}
	if name == Stdin {
		s.raw.r = stdin
	} else {
		f, err := os.Open(name)
		if err != nil {
			return s, &InputError{err}
		}
		if info, err := f.Stat(); err == nil && info.IsDir() {
			f.Close()
			return s, &InputError{fmt.Errorf("%s is a directory", name)}
		}
		s.raw.r, s.file = f, f
	}
	in := bufio.NewReaderSize(&s.raw, 64<<10)
	magic, _ := in.Peek(4)
	var unpacked io.Reader
	var err error
	switch {
	case bytes.HasPrefix(magic, []byte("\x1f\x8b")):
		unpacked, err = gzip.NewReader(in)
	case string(magic) == "\x28\xb5\x2f\xfd":
		unpacked, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
	}
	if err != nil {
		s.close()
		return s, &InputError{fmt.Errorf("%s: %w", name, err)}
	}
	if unpacked != nil {
		in = bufio.NewReaderSize(unpacked, 64<<10)
	}
	if mark, _ := in.Peek(3); string(mark) == "\xef\xbb\xbf" {
		_, _ = in.Discard(3) // these bytes were peeked, so this cannot fail
	}
	first, _ := in.Peek(1)
	s.in, s.w3c = in, string(first) == "#"
	return s, nil
}

func (s *source) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// fill reads the next lines into b, also those before an error. It sets b.last for the last block
// of a file, which may be empty. If a line is too long, the block holds only its beginning.
func (s *source) fill(b *block) error {
	buf := b.buf
	n := copy(buf, s.rest)
	s.rest = s.rest[:0]
	end := 0
	for !b.last && n < len(buf) && (n < blockSize || end == 0) {
		m, err := s.in.Read(buf[n:max(blockSize, min(2*n, len(buf)))])
		n += m
		if err != nil && err != io.EOF {
			b.data, b.fields = buf[:bytes.LastIndexByte(buf[:n], '\n')+1], s.fields
			return fmt.Errorf("%s: %w", s.name, err)
		}
		b.last = err == io.EOF
		if s.skipping {
			n = s.skip(buf[:n])
		}
		end = bytes.LastIndexByte(buf[:n], '\n') + 1
	}
	switch {
	case b.last:
		end = n
	case end == 0:
		end, s.skipping = n, true
	}
	s.rest = append(s.rest, buf[end:n]...)
	b.data, b.fields = buf[:end], s.fields
	if s.w3c {
		if fields := accesslog.Fields(b.data); fields != nil {
			s.fields = bytes.Clone(fields)
		}
	}
	return nil
}

// skip drops the rest of a line that is too long and returns the bytes of buf that follow it.
func (s *source) skip(buf []byte) int {
	end := bytes.IndexByte(buf, '\n')
	if end < 0 {
		return 0
	}
	s.skipping = false
	return copy(buf, buf[end+1:])
}

// counter counts the bytes read, for the progress bar.
type counter struct {
	r io.Reader
	n atomic.Uint64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(uint64(n))
	return n, err
}

// InputError is an error in the input, which the user can correct.
type InputError struct{ error }

// Unwrap returns the error itself.
func (e *InputError) Unwrap() error { return e.error }
