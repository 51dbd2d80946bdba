package replay

import (
	"cmp"
	"net/http"
	"slices"
)

// A spool stores the requests of some callers in any order and returns them in order of time. It
// keeps them in runs, which are sorted when all requests are added; a stream merges the runs. A run
// has a bounded size, so that a spool does not copy its requests to grow.
//
// A stream sorts by stamp, then by code, then by route. The order does not depend on the order in
// which requests were added, so a report does not depend on the order of the lines in a log.
type spool struct {
	runs [][]event // requests are added to the last
	most int       // requests in a run
}

// maxRun is the default of spool.most.
const maxRun = 1 << 17

// event is a request.
type event struct {
	at    stamp
	code  uint32
	route uint32 // in place of padding; of a stay how long it lasts, as tookBits has it
}

// marks say more about a request than its time and its caller. They are the low bits of its code.
type marks uint32

const (
	answered  marks = 1 << iota // with 429 by the server
	uncounted                   // its status does not count
	ended                       // of a stay with whole seconds: the instant is that of its end
	failed                      // with 5xx by the server; of a stay, and for a Follower
	left                        // its client left, or did not send all of it; likewise
	markBits  = iota
)

// unserved are the marks of requests that a server did not serve.
const unserved = answered | failed | left

// clientLeft is the status that nginx logs for a request whose client closed the connection.
const clientLeft = 499

// statusMarks returns the marks of a status that only some replays need.
func statusMarks(status int) marks {
	switch {
	case status == clientLeft, status == http.StatusRequestTimeout:
		return left
	case status >= 500:
		return failed
	}
	return 0
}

// codeOf holds the number of a request's caller, or of its description, and its marks.
func codeOf(number uint32, m marks) uint32 { return number<<markBits | uint32(m) }

func marksOf(code uint32) marks { return marks(code & (1<<markBits - 1)) }

func (m marks) counted() bool { return m&uncounted == 0 }

// add adds a request.
func (s *spool) add(at stamp, code, route uint32) {
	last := len(s.runs) - 1
	if last < 0 || len(s.runs[last]) == s.most {
		size := 0
		last++
		if last > 0 {
			size = s.most
		}
		s.runs = append(s.runs, make([]event, 0, size))
	}
	s.runs[last] = append(s.runs[last], event{at, code, route})
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
// code, then by route. A stream sorts the events of a whole second itself: they are few, and in an
// ordered log nothing else needs to be sorted.
func compareEvents(a, b event) int {
	if a.at != b.at || a.at&1 == 0 {
		return cmp.Compare(a.at, b.at)
	}
	return cmp.Or(cmp.Compare(a.code, b.code), cmp.Compare(a.route, b.route))
}

// merged reads runs in order. It is a heap with the run of the first event at index 0.
type merged [][]event

// drop removes the first n events, which must be of the first run.
func (m *merged) drop(n int) {
	h := *m
	h[0] = h[0][n:]
	if len(h[0]) == 0 {
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

// stream returns a spool's requests in order of time. Several streams can be open at the same time.
//
// Some logs have times in whole seconds only. A stream spreads one caller's requests of such a
// second evenly over it: if all came at its start they would form a burst that never happened. It
// spreads each caller's requests independently of other callers', so a report does not depend on
// the order of the lines.
type stream struct {
	runs   merged
	owners []uint32 // of descriptions; nil if the codes are of callers
	codes  []uint64 // of one second's requests without a fraction, each with its route
	second int64    // in nanoseconds
	spread []uint64 // the same requests: nanoseconds in the second, then the index in codes
	handed int      // entries of spread that were returned
}

// open returns a stream. Of descriptions, owners has the callers.
func (s *spool) open(owners []uint32) *stream {
	runs := slices.SortedFunc(slices.Values(s.runs), func(a, b []event) int {
		return compareEvents(a[0], b[0])
	})
	return &stream{runs: runs, owners: owners}
}

func (s *stream) hitOf(ns int64, code, route uint32) hit {
	return hit{s.owner(code), code >> markBits, ns, marksOf(code), route}
}

func (s *stream) owner(code uint32) uint32 {
	code >>= markBits
	if s.owners != nil {
		return s.owners[code]
	}
	return code
}

// next returns the next request. It returns false at the end.
func (s *stream) next() (h hit, ok bool) {
	left := s.handed < len(s.spread)
	if !left && len(s.runs) > 0 && s.runs[0][0].at&1 == 0 {
		s.gather()
		left = true
	}
	if len(s.runs) > 0 {
		head := s.runs[0][0]
		if !left || head.at&1 == 1 && head.at.nanoseconds() < s.first() {
			s.runs.drop(1)
			return s.hitOf(head.at.nanoseconds(), head.code, head.route), true
		}
	}
	if !left {
		return hit{}, false
	}
	code := s.codes[uint32(s.spread[s.handed])]
	h = s.hitOf(s.first(), uint32(code>>32), uint32(code))
	s.handed++
	return h, true
}

// first returns the instant of the next request in spread.
func (s *stream) first() int64 { return s.second + int64(s.spread[s.handed]>>32) }

// gather reads the requests without a fraction of the next second, and spreads them.
func (s *stream) gather() {
	at := s.runs[0][0].at
	s.codes, s.spread, s.handed, s.second = s.codes[:0], s.spread[:0], 0, at.nanoseconds()
	for len(s.runs) > 0 && s.runs[0][0].at == at {
		n := 0
		for run := s.runs[0]; n < len(run) && run[n].at == at; n++ {
			s.codes = append(s.codes, uint64(run[n].code)<<32|uint64(run[n].route))
		}
		s.runs.drop(n)
	}
	slices.Sort(s.codes)
	several := false
	for from := 0; from < len(s.codes); {
		// an owner's descriptions have numbers in a row
		to, owner := from+1, s.owner(uint32(s.codes[from]>>32))
		for to < len(s.codes) && s.owner(uint32(s.codes[to]>>32)) == owner {
			to++
		}
		n := uint64(to - from)
		for i := range n {
			s.spread = append(s.spread, i*1e9/n<<32|uint64(from)+i)
		}
		from, several = to, several || n > 1
	}
	if several {
		slices.Sort(s.spread)
	}
}
