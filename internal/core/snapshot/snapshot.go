// Package snapshot frames a snapshot: a version, records of numbers and texts, and a checksum
// (CRC-32C) of all that. Numbers are varints, and texts follow their lengths.
package snapshot

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Writer writes a snapshot. After an error it writes nothing more.
type Writer struct {
	Buf []byte // what comes next; callers append to it
	Err error  // of the writer below

	w   io.Writer
	sum uint32
}

// most is how many bytes are kept before they are written.
const most = 1 << 16

// NewWriter returns a Writer to w that begins with a version.
func NewWriter(w io.Writer, version string) *Writer { return &Writer{w: w, Buf: []byte(version)} }

// Byte writes a byte.
func (w *Writer) Byte(b byte) { w.Buf = append(w.Buf, b) }

// Int writes a number.
func (w *Writer) Int(n int64) { w.Buf = binary.AppendVarint(w.Buf, n) }

// Text writes a text.
func (w *Writer) Text(s string) { w.Int(int64(len(s))); w.Buf = append(w.Buf, s...) }

// Flush writes what has come together, if that is worth a call.
func (w *Writer) Flush() {
	if len(w.Buf) > most {
		w.flush()
	}
}

func (w *Writer) flush() {
	if w.Err == nil {
		_, w.Err = w.w.Write(w.Buf)
	}
	w.sum = crc32.Update(w.sum, castagnoli, w.Buf)
	w.Buf = w.Buf[:0]
}

// Close writes the rest and the checksum, and returns Err. It does not close the writer below.
func (w *Writer) Close() error {
	w.flush()
	w.Buf = binary.LittleEndian.AppendUint32(w.Buf, w.sum)
	w.flush()
	return w.Err
}

// Reader reads a snapshot. Once something is Bad, it reads zeros.
type Reader struct {
	Data []byte // what is left
	Bad  bool
	end  int // where the checksum stands
}

// Offset returns how many bytes of the snapshot are before what is left.
func (r *Reader) Offset() int { return r.end - len(r.Data) }

// Open returns a Reader of what follows the version. It fails for another version, and for a wrong
// checksum.
func Open(data []byte, version string) (r Reader, err error) {
	end := len(data) - crc32.Size
	switch {
	case end < len(version) || string(data[:len(version)]) != version:
		return r, fmt.Errorf("it does not begin with %q", version)
	case crc32.Checksum(data[:end], castagnoli) != binary.LittleEndian.Uint32(data[end:]):
		return r, fmt.Errorf("checksum of %d bytes is wrong", len(data))
	}
	return Reader{Data: data[len(version):end], end: end}, nil
}

// Int reads a number from least to most.
func (r *Reader) Int(least, most int64) int64 {
	v, n := binary.Varint(r.Data)
	if n <= 0 || v < least || v > most {
		r.Bad = true
		return 0
	}
	r.Data = r.Data[n:]
	return v
}

// Any reads any number.
func (r *Reader) Any() int64 { return r.Int(math.MinInt64, math.MaxInt64) }

// Text reads a text of at least so many bytes.
func (r *Reader) Text(least int64) string {
	n := r.Int(least, int64(len(r.Data)))
	s := string(r.Data[:min(n, int64(len(r.Data)))])
	r.Data = r.Data[len(s):]
	return s
}

// Byte reads a byte.
func (r *Reader) Byte() byte {
	r.Bad = r.Bad || len(r.Data) == 0
	if r.Bad {
		return 0
	}
	b := r.Data[0]
	r.Data = r.Data[1:]
	return b
}
