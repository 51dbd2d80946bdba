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
	codes  []uint32 // of one second's requests without a fraction
	second int64    // in nanoseconds
	spread []uint64 // the same requests: nanoseconds in the second, then code
	handed int      // entries of spread that were returned
}

func (s *spool) open() *stream { return &stream{runs: newMerged(s.runs)} }

func questionOf(ns int64, code uint32) question {
	return question{caller: code >> 1, ns: ns, counted: code&1 == 0}
}

// next returns the instant and the code of the next request. It returns false at the end.
func (s *stream) next() (ns int64, code uint32, ok bool) {
	left := s.handed < len(s.spread)
	if !left && len(s.runs) > 0 && s.runs[0][0].at&1 == 0 {
		s.gather()
		left = true
	}
	if len(s.runs) > 0 {
		head := s.runs[0][0]
		if !left || head.at&1 == 1 && head.at.nanoseconds() < s.first() {
			s.runs.drop(1)
			return head.at.nanoseconds(), head.code, true
		}
	}
	if !left {
		return 0, 0, false
	}
	ns, code = s.first(), uint32(s.spread[s.handed])
	s.handed++
	return ns, code, true
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
		n := 1
		for n < len(rest) && rest[n] == rest[0] {
			n++
		}
		for i := range uint64(n) {
			s.spread = append(s.spread, i*1e9/uint64(n)<<32|uint64(rest[0]))
		}
		rest, several = rest[n:], several || n > 1
	}
	if several {
		slices.Sort(s.spread)
	}
}
