package replay

import (
	"cmp"
	"slices"
)

// A spool stores the requests of some callers in any order and returns them in order of time. It
// keeps them in runs, which are sorted when all requests are added; a stream merges the runs. A run
// has a bounded size, so that a spool does not copy its requests to grow.
//
// A stream sorts by stamp, then by code. The order does not depend on the order in which requests
// were added, so a report does not depend on the order of the lines in a log.
type spool struct {
	runs [][]event // requests are added to the last
	most int       // requests in a run
}

// maxRun is the default of spool.most.
const maxRun = 1 << 17

// event is a request.
type event struct {
	at   stamp
	code uint32
}

// marks say more about a request than its time and its caller. They are the low bits of its code.
type marks uint32

const (
	crawled   marks = 1 << iota // by a known crawler
	answered                    // with 429 by the server
	uncounted                   // its status does not count
	markBits  = iota
)

// codeOf holds the number of a request's caller, or of its description, and its marks.
func codeOf(number uint32, m marks) uint32 { return number<<markBits | uint32(m) }

// add adds a request.
func (s *spool) add(at stamp, code uint32) {
	last := len(s.runs) - 1
	if last < 0 || len(s.runs[last]) == s.most {
		size := 0
		if last++; last > 0 {
			size = s.most
		}
		s.runs = append(s.runs, make([]event, 0, size))
	}
	s.runs[last] = append(s.runs[last], event{at, code})
}

// sort sorts the runs. Call it once, before open.
func (s *spool) sort() {
	for _, run := range s.runs {
		if !slices.IsSortedFunc(run, compareEvents) {
			slices.SortFunc(run, compareEvents)
		}
	}
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

// merged reads runs in order. It is a heap with the run of the first event at index 0.
type merged [][]event

// drop removes the first n events, which must be of the first run.
func (m *merged) drop(n int) {
	h := *m
	if h[0] = h[0][n:]; len(h[0]) == 0 {
		last := len(h) - 1
		h[0], *m = h[last], h[:last]
	}
	m.down(0)
}

func (m merged) down(i int) {
	for {
		least := i
		for kid := 2*i + 1; kid <= 2*i+2 && kid < len(m); kid++ {
			if compareEvents(m[kid][0], m[least][0]) < 0 {
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
