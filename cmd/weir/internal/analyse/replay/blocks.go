package replay

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
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
	number int           // of its source, from 0
	last   bool          // it is the last of its source
	err    error         // from reading
	parsed chan struct{} // receives when content is set
	content
}

// inspects returns how many requests of the block are inspected.
func (b *block) inspects() uint64 {
	if b.number < firstBlocks {
		return maxInspected
	}
	return lessInspected
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
	blocks   int    // that were filled
	skipping bool   // the rest of a line that is too long is to be dropped
}

// open opens a file, or stdin if name is Stdin. It recognizes compressed files by the first
// bytes, not by the name, and skips a byte order mark. The source is not nil; after an error it has
// only a name.
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
	unpacked, err := unpack(in)
	if err != nil {
		s.close()
		return s, &InputError{fmt.Errorf("%s: %w", s.name, err)}
	}
	if unpacked != nil {
		in = bufio.NewReaderSize(unpacked, 64<<10)
	}
	if mark, _ := in.Peek(3); string(mark) == "\xef\xbb\xbf" {
		_, _ = in.Discard(3) // these bytes were peeked, so this cannot fail
	}
	first, _ := in.Peek(1)
	s.in, s.w3c = in, string(first) == "#"
	if array := elementsOf(in); array != nil {
		s.in = array
	}
	return s, nil
}

// packed are the compressed formats, by their first bytes. Those without a function are only named
// in an error.
var packed = []struct {
	magic, name string
	unpack      func(io.Reader) (io.Reader, error)
}{
	{"\x1f\x8b", "gzip", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{"\x28\xb5\x2f\xfd", "zstd", func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	}},
	{"BZh", "bzip2", func(r io.Reader) (io.Reader, error) { return bzip2.NewReader(r), nil }},
	{"\xfd7zXZ\x00", "xz", nil},
	{"\x04\x22\x4d\x18", "lz4", nil},
	{"LZIP", "lzip", nil},
	{"7z\xbc\xaf\x27\x1c", "7z", nil},
	{"PK\x03\x04", "zip", nil},
	{"\x1f\x9d", "compress", nil},
}

const longestMagic = 6

// unpack returns a reader of the content of a compressed file, or nil if it is not compressed.
func unpack(in *bufio.Reader) (io.Reader, error) {
	first, _ := in.Peek(longestMagic)
	for _, f := range packed {
		if !bytes.HasPrefix(first, []byte(f.magic)) {
			continue
		}
		if f.unpack == nil {
			return nil, fmt.Errorf("it is compressed (%s), and only gzip, zstd and bzip2 are read; "+
				"decompress it into the standard input, which is named -", f.name)
		}
		return f.unpack(in)
	}
	return nil, nil
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
	b.number = s.blocks
	s.blocks++
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
