package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"sync"
)

// A spool stores the requests of some callers in any order and returns them in order of time. It is
// an external merge sort. A request that arrives in order is appended to the current run, at about
// five bytes; the others fill a buffer, which is sorted and becomes a run. A stream merges the
// runs. Runs over a number of bytes are kept in a temporary file.
//
// A stream sorts by stamp, then by code. The order does not depend on the order in which requests
// were added, so a report does not depend on the order of the lines in a log.
type spool struct {
	ordered    encoder
	buf, spare []event    // one is filled while the other is sorted
	late       encoder    // encodes spare as a run
	sorted     chan error // receives when spare is free again
	limits     spoolLimits

	mu       sync.Mutex // guards the rest while requests are added
	runs     []sortedRun
	inMemory int // bytes
	file     *os.File
	fileSize int64
}

type spoolLimits struct {
	events   int // of a buffer
	run      int // bytes after which a run of requests in order ends
	inMemory int // bytes of runs in memory
}

// event is a request in a buffer.
type event struct {
	at   stamp
	code uint32
}

// code holds the number of a request's caller and whether the request counts.
func codeOf(caller uint32, uncounted bool) uint32 {
	if uncounted {
		return caller<<1 | 1
	}
	return caller << 1
}

// sortedRun is a sorted sequence of encoded requests.
type sortedRun struct {
	data     []byte // nil if the run is in the file, between the offsets
	from, to int64
}

func newSpool(limits spoolLimits) *spool {
	s := &spool{limits: limits, sorted: make(chan error, 1), ordered: encoder{at: math.MinInt64}}
	s.sorted <- nil
	return s
}

// add adds a request.
func (s *spool) add(at stamp, code uint32) error {
	if s.ordered.follows(at, code) {
		s.ordered.add(at, code)
		if len(s.ordered.data) < s.limits.run {
			return nil
		}
		return s.end()
	}
	s.buf = append(s.buf, event{at, code})
	if len(s.buf) < s.limits.events {
		return nil
	}
	return s.flush()
}

// end ends the current run of requests in order.
func (s *spool) end() error {
	run := s.ordered.end()
	if len(run) == 0 {
		return nil
	}
	kept, err := s.keep(run)
	if kept {
		run = make([]byte, 0, len(run))
	}
	s.ordered.reset(run)
	return err
}

// flush waits until the buffer flushed before is sorted, then sorts this one in another goroutine.
func (s *spool) flush() error {
	if err := <-s.sorted; err != nil {
		s.sorted <- err
		return err
	}
	s.buf, s.spare = s.spare[:0], s.buf
	go func() { s.sorted <- s.sort(s.spare) }()
	return nil
}

// close ends adding. Call it before open.
func (s *spool) close() error {
	if err := s.end(); err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	err := <-s.sorted
	s.sorted <- err
	s.buf, s.spare, s.ordered, s.late = nil, nil, encoder{}, encoder{}
	return err
}

// remove waits for the sorting and removes the temporary file. It returns the first error.
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
	s.late.reset(s.late.data)
	for _, e := range events {
		s.late.add(e.at, e.code)
	}
	run := s.late.end()
	kept, err := s.keep(run)
	if kept {
		run = make([]byte, 0, len(run))
	}
	s.late.data = run
	return err
}

// compareEvents orders events by stamp, and events of one instant with a fraction of a second by
// code. A stream sorts the events of a whole second itself: they are few, and in an ordered log
// nothing else needs to be sorted.
func compareEvents(a, b event) int {
	if a.at != b.at || a.at&1 == 0 {
		return cmp.Compare(a.at, b.at)
	}
	return cmp.Compare(a.code, b.code)
}

// keep stores a run and reports whether it retains the slice.
func (s *spool) keep(run []byte) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inMemory += cap(run); s.inMemory <= s.limits.inMemory {
		s.runs = append(s.runs, sortedRun{data: run})
		return true, nil
	}
	if s.file == nil {
		var err error
		if s.file, err = os.CreateTemp("", "weir-replay-"); err != nil {
			return false, fmt.Errorf("the log is too long to be sorted in memory: %w", err)
		}
		// Where the system allows it, so that no file remains if the process is killed.
		_ = os.Remove(s.file.Name())
	}
	if _, err := s.file.Write(run); err != nil {
		return false,
			fmt.Errorf("sorting the log in the directory for temporary files, which TMPDIR names: %w", err)
	}
	s.runs = append(s.runs, sortedRun{from: s.fileSize, to: s.fileSize + int64(len(run))})
	s.fileSize += int64(len(run))
	return false, nil
}
