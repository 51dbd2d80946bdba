package replay

import "slices"

// stream returns a spool's requests in order of time. Several streams can be open at the same time.
//
// Some logs have times in whole seconds only. A stream spreads one caller's requests of such a
// second evenly over it: if all came at its start they would form a burst that never happened. It
// spreads each caller's requests independently of other callers', so a report does not depend on
// the order of the lines.
type stream struct {
	runs   merged
	owners []uint32 // of descriptions; nil if the codes are of callers
	codes  []uint32 // of one second's requests without a fraction
	second int64    // in nanoseconds
	spread []uint64 // the same requests: nanoseconds in the second, then code
	handed int      // entries of spread that were returned
}

// open returns a stream. Of descriptions, owners has the callers.
func (s *spool) open(owners []uint32) *stream {
	runs := slices.SortedFunc(slices.Values(s.runs), func(a, b []event) int {
		return compareEvents(a[0], b[0])
	})
	return &stream{runs: runs, owners: owners}
}

func (s *stream) hitOf(ns int64, code uint32) hit {
	m := marks(code & (1<<markBits - 1))
	return hit{caller: s.owner(code), code: code >> markBits, ns: ns, marks: m,
		counted: m&uncounted == 0}
}

func (s *stream) owner(code uint32) uint32 {
	if code >>= markBits; s.owners != nil {
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
			return s.hitOf(head.at.nanoseconds(), head.code), true
		}
	}
	if !left {
		return hit{}, false
	}
	h = s.hitOf(s.first(), uint32(s.spread[s.handed]))
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
			s.codes = append(s.codes, run[n].code)
		}
		s.runs.drop(n)
	}
	slices.Sort(s.codes)
	several := false
	for rest := s.codes; len(rest) > 0; {
		n, owner := 1, s.owner(rest[0]) // an owner's descriptions have numbers in a row
		for n < len(rest) && s.owner(rest[n]) == owner {
			n++
		}
		for i, code := range rest[:n] {
			s.spread = append(s.spread, uint64(i)*1e9/uint64(n)<<32|uint64(code))
		}
		rest, several = rest[n:], several || n > 1
	}
	if several {
		slices.Sort(s.spread)
	}
}
