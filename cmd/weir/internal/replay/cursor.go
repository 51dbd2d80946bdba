package replay

import (
	"encoding/binary"
	"errors"
	"io"
)

// cursor reads a run. It is positioned at a group, of which it has read some codes.
type cursor struct {
	at     stamp  // the group's
	code   uint32 // of the group's request if it has a fraction of a second, else 0
	left   int    // codes of the group that are not read yet
	second int64
	buf    []byte // read but not decoded
	file   io.ReaderAt
	from   int64 // what is not read yet
	to     int64
	space  []byte // the memory of buf
}

// cursorBuffer is the number of bytes of a run in the temporary file that are read at a time.
const cursorBuffer = 16 << 10

var errRun = errors.New("a temporary file of the sorting is damaged")

// newCursor returns a cursor at the first group of a run. The run must not be empty.
func newCursor(r sortedRun, file io.ReaderAt) (*cursor, error) {
	c := &cursor{buf: r.data, file: file, from: r.from, to: r.to}
	if r.data == nil {
		c.space = make([]byte, 0, cursorBuffer)
	}
	if err := c.fetch(); err != nil {
		return nil, err
	}
	second, n := binary.Varint(c.buf)
	if n <= 0 {
		return nil, errRun
	}
	c.buf, c.second = c.buf[n:], second
	_, err := c.next()
	return c, err
}

// fetch fills the buffer, or reads to the end of the run.
func (c *cursor) fetch() error {
	if c.from == c.to {
		return nil
	}
	n := copy(c.space[:cap(c.space)], c.buf)
	m := min(int64(cap(c.space)-n), c.to-c.from)
	c.buf = c.space[:n+int(m)]
	if _, err := c.file.ReadAt(c.buf[n:], c.from); err != nil {
		return err
	}
	c.from += m
	return nil
}

// next moves to the next group after all codes of this one were read. It returns false if there is
// none.
func (c *cursor) next() (bool, error) {
	if len(c.buf) < maxHead+codeSize {
		if err := c.fetch(); err != nil {
			return false, err
		}
		if len(c.buf) == 0 {
			return false, nil
		}
	}
	head, a := binary.Uvarint(c.buf)
	number, b := binary.Uvarint(c.buf[max(a, 0):])
	if a <= 0 || b <= 0 || len(c.buf) < a+b+codeSize {
		return false, errRun
	}
	c.buf = c.buf[a+b:]
	c.second += int64(head >> 1)
	c.at, c.code, c.left = stamp(c.second*2e9), 0, int(number)
	if head&1 == 1 {
		c.at, c.code, c.left = stamp((c.second*1e9+int64(number))*2+1), binary.LittleEndian.Uint32(c.buf), 0
		c.buf = c.buf[codeSize:]
	}
	return true, nil
}

// codes appends up to most of the group's remaining codes.
func (c *cursor) codes(dst []uint32, most int) ([]uint32, error) {
	if len(c.buf) < codeSize {
		if err := c.fetch(); err != nil {
			return dst, err
		}
	}
	n := min(c.left, most, len(c.buf)/codeSize)
	if n == 0 {
		return dst, errRun
	}
	for i := 0; i < n*codeSize; i += codeSize {
		dst = append(dst, binary.LittleEndian.Uint32(c.buf[i:]))
	}
	c.buf, c.left = c.buf[n*codeSize:], c.left-n
	return dst, nil
}

func (c *cursor) before(o *cursor) bool { return c.at < o.at || c.at == o.at && c.code < o.code }

// merged reads several runs in order. It is a heap of their cursors with the least at index 0.
type merged []*cursor

func newMerged(runs []sortedRun, file io.ReaderAt) (merged, error) {
	m := make(merged, 0, len(runs))
	for _, r := range runs {
		c, err := newCursor(r, file)
		if err != nil {
			return nil, err
		}
		m = append(m, c)
	}
	for i := len(m)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	return m, nil
}

// next moves past the first group.
func (m *merged) next() error {
	more, err := (*m)[0].next()
	if err != nil {
		return err
	}
	if !more {
		last := len(*m) - 1
		(*m)[0] = (*m)[last]
		*m = (*m)[:last]
	}
	m.down(0)
	return nil
}

func (m merged) down(i int) {
	for {
		least := i
		for kid := 2*i + 1; kid <= 2*i+2 && kid < len(m); kid++ {
			if m[kid].before(m[least]) {
				least = kid
			}
		}
		if least == i {
			return
		}
		m[i], m[least] = m[least], m[i]
		i = least
	}
}
