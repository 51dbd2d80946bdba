package replay

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// A spool holds the requests of some callers and hands them out in the order of time, whatever order they came in. It is
// an external merge sort: what fills a buffer is sorted and becomes a run, of about five bytes a request, and a stream
// merges the runs. Runs beyond a number of bytes are in a temporary file.
//
// A stream's order is by stamp and then by code. It does not depend on the order in which requests came, so a report does
// not depend on the order of a log's lines.
type spool struct {
	buf, spare []event // being filled, being sorted
	runs       []sortedRun
	inMemory   int // bytes
	file       *os.File
	fileSize   int64
	encoded    []byte     // of the run being made
	sorted     chan error // receives when spare is free again
	limits     spoolLimits
}

type spoolLimits struct {
	events   int // in a buffer
	inMemory int // bytes of runs
}

// event is a request in a buffer.
type event struct {
	at   stamp
	code uint32
}

// code says who made a request and whether it counts.
func codeOf(caller uint32, uncounted bool) uint32 {
	if uncounted {
		return caller<<1 | 1
	}
	return caller << 1
}

// sortedRun is a sorted sequence of encoded requests.
type sortedRun struct {
	data     []byte // nil: in the file, between
	from, to int64
}

func newSpool(limits spoolLimits) *spool {
	s := &spool{limits: limits, sorted: make(chan error, 1)}
	s.sorted <- nil
	return s
}

// add takes a request.
func (s *spool) add(at stamp, code uint32) error {
	s.buf = append(s.buf, event{at, code})
	if len(s.buf) < s.limits.events {
		return nil
	}
	return s.flush()
}

// flush has the buffer sorted beside the caller, when the one before is done.
func (s *spool) flush() error {
	if err := <-s.sorted; err != nil {
		s.sorted <- err
		return err
	}
	s.buf, s.spare = s.spare[:0], s.buf
	go func() { s.sorted <- s.sort(s.spare) }()
	return nil
}

// close ends adding. It must be called before streams are opened.
func (s *spool) close() error {
	if err := s.flush(); err != nil {
		return err
	}
	err := <-s.sorted
	s.sorted <- err
	s.buf, s.spare, s.encoded = nil, nil, nil
	return err
}

// remove waits for the sorting and removes the temporary file. It returns the error of either.
func (s *spool) remove() error {
	err := <-s.sorted
	if s.file != nil {
		s.file.Close()
		if gone := os.Remove(s.file.Name()); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

func (s *spool) sort(events []event) error {
	if len(events) == 0 {
		return nil
	}
	if !slices.IsSortedFunc(events, compareEvents) {
		slices.SortFunc(events, compareEvents)
	}
	s.encoded = encode(s.encoded[:0], events)
	return s.keep(s.encoded)
}

// compareEvents orders events by stamp, and those of one instant by code. A stream sorts those of one second itself: they
// are few, and an ordered log has nothing else to be sorted.
func compareEvents(a, b event) int {
	if a.at != b.at || a.at&1 == 0 {
		return cmp.Compare(a.at, b.at)
	}
	return cmp.Compare(a.code, b.code)
}

// keep stores a run.
func (s *spool) keep(encoded []byte) error {
	if s.inMemory += len(encoded); s.inMemory <= s.limits.inMemory {
		s.runs = append(s.runs, sortedRun{data: slices.Clone(encoded)})
		return nil
	}
	if s.file == nil {
		var err error
		if s.file, err = os.CreateTemp("", "weir-replay-"); err != nil {
			return fmt.Errorf("the log is too long to be sorted in memory: %w", err)
		}
		_ = os.Remove(s.file.Name()) // where the system can: then nothing stays if the process is killed
	}
	if _, err := s.file.Write(encoded); err != nil {
		return fmt.Errorf("sorting the log in the directory for temporary files, which TMPDIR names: %w", err)
	}
	s.runs = append(s.runs, sortedRun{from: s.fileSize, to: s.fileSize + int64(len(encoded))})
	s.fileSize += int64(len(encoded))
	return nil
}

// item is an encoded request, or several of one caller that have the same second and nothing finer.
type item struct {
	at   stamp
	code uint32
	n    uint32
}

// An item is encoded as four numbers: how many seconds it is after the item before it, doubled, with one more if it has a
// fraction; the fraction in nanoseconds, if so; the code; and how many requests it is, if it has no fraction.

// maxItem is the most bytes an encoded item takes.
const maxItem = 4 * binary.MaxVarintLen64

func encode(dst []byte, events []event) []byte {
	last, _ := floorDiv(events[0].at.nanoseconds(), 1e9)
	dst = binary.AppendVarint(dst, last)
	for i := 0; i < len(events); {
		e, n := events[i], 1
		second, nanos := floorDiv(e.at.nanoseconds(), 1e9)
		if e.at&1 == 1 {
			dst = binary.AppendUvarint(dst, uint64(second-last)<<1|1)
			dst = binary.AppendUvarint(dst, uint64(nanos))
			dst = binary.AppendUvarint(dst, uint64(e.code))
		} else {
			for i+n < len(events) && events[i+n] == e {
				n++
			}
			dst = binary.AppendUvarint(dst, uint64(second-last)<<1)
			dst = binary.AppendUvarint(dst, uint64(e.code))
			dst = binary.AppendUvarint(dst, uint64(n))
		}
		last = second
		i += n
	}
	return dst
}

// floorDiv returns the quotient of a and a positive b, rounded down, and the rest, which is never negative.
func floorDiv(a, b int64) (quotient, rest int64) {
	quotient, rest = a/b, a%b
	if rest < 0 {
		quotient, rest = quotient-1, rest+b
	}
	return quotient, rest
}
