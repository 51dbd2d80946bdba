package replay

import (
	"cmp"
	"math/bits"
	"slices"
)

// stream returns a spool's requests in order of time. Several streams can be open at the same time.
//
// Some logs have times in whole seconds only. A stream spreads one caller's requests of such a
// second evenly over it: if all came at its start they would form a burst that never happened. It
// spreads each caller's requests independently of other callers', so a report does not depend on
// the order of the lines.
type stream struct {
	runs    merged
	loose   []uint32 // codes of one second's requests without a fraction, in any order
	group   []tally  // the same requests, counted by code
	second  int64    // in nanoseconds
	part    int      // parts of the group that were spread
	parts   int      // number of parts of the group; they bound the memory of a busy second
	spread  []uint64 // the current part: nanoseconds in the second, then code
	handed  int      // entries of spread that were returned
	alone   int      // entries of spread that precede every request in the runs
	maxPart uint64
}

// maxPart bounds the requests in one part.
const maxPart = 1 << 19

func (s *spool) open() (*stream, error) {
	m, err := newMerged(s.runs, s.file)
	return &stream{runs: m, maxPart: maxPart}, err
}

// read appends the next requests to batch, up to its capacity. It appends none at the end.
func (s *stream) read(batch []question) ([]question, error) {
	for len(batch) < cap(batch) {
		for s.handed < s.alone && len(batch) < cap(batch) {
			ns, code := s.hand()
			batch = append(batch, questionOf(ns, code))
		}
		if len(batch) == cap(batch) {
			break
		}
		ns, code, ok, err := s.next()
		if err != nil || !ok {
			return batch, err
		}
		batch = append(batch, questionOf(ns, code))
	}
	return batch, nil
}

func questionOf(ns int64, code uint32) question {
	return question{caller: code >> 1, ns: ns, counted: code&1 == 0}
}

// next returns the instant and the code of the next request. It returns false at the end.
func (s *stream) next() (ns int64, code uint32, ok bool, err error) {
	for {
		if s.handed < s.alone {
			ns, code = s.hand()
			return ns, code, true, nil
		}
		if s.handed == len(s.spread) && s.part < s.parts {
			s.spreadPart()
			continue
		}
		if len(s.runs) > 0 {
			head := s.runs[0]
			coarse := head.at&1 == 0
			if coarse && s.handed == len(s.spread) {
				if err := s.gather(head.at); err != nil {
					return 0, 0, false, err
				}
				continue
			}
			if !coarse && (s.handed == len(s.spread) || head.at.nanoseconds() < s.first()) {
				ns, code = head.at.nanoseconds(), head.code
				return ns, code, true, s.runs.next()
			}
		}
		if s.handed == len(s.spread) {
			return 0, 0, false, nil
		}
		ns, code = s.hand()
		return ns, code, true, nil
	}
}

// first returns the instant of the next request in spread.
func (s *stream) first() int64 { return s.second + int64(s.spread[s.handed]>>32) }

// hand removes and returns the next request in spread.
func (s *stream) hand() (ns int64, code uint32) {
	ns, code = s.first(), uint32(s.spread[s.handed])
	s.handed++
	return ns, code
}

// tally is the number of requests of one code in a second.
type tally struct {
	code uint32
	n    uint64
}

// maxLoose bounds the requests of a second that are read before they are counted by code.
const maxLoose = 1 << 16

// gather reads the requests without a fraction of the second at.
func (s *stream) gather(at stamp) error {
	s.group, s.loose = s.group[:0], s.loose[:0]
	total := uint64(0)
	for len(s.runs) > 0 && s.runs[0].at == at {
		head := s.runs[0]
		total += uint64(head.left)
		for head.left > 0 {
			var err error
			if s.loose, err = head.codes(s.loose, maxLoose-len(s.loose)); err != nil {
				return err
			}
			if len(s.loose) == maxLoose {
				s.tally()
			}
		}
		if err := s.runs.next(); err != nil {
			return err
		}
	}
	s.second, s.part, s.parts = at.nanoseconds(), 0, int((total-1)/s.maxPart)+1
	if s.parts > 1 || len(s.group) > 0 || !s.spreadSingles() {
		s.tally()
	}
	return nil
}

// spreadSingles spreads a second in which no code has two requests, which is the most common case.
// It returns false if a code has several.
func (s *stream) spreadSingles() bool {
	slices.Sort(s.loose)
	s.spread, s.handed, s.alone = s.spread[:0], 0, 0
	last := uint32(0)
	for i, code := range s.loose {
		if i > 0 && code == last {
			s.spread = s.spread[:0]
			return false
		}
		s.spread, last = append(s.spread, uint64(code)), code
	}
	s.part = 1
	s.isolate()
	return true
}

// isolate sets alone after a part was spread.
func (s *stream) isolate() {
	s.alone = 0
	if len(s.runs) == 0 || s.runs[0].at.nanoseconds() >= s.second+1e9 {
		s.alone = len(s.spread)
	}
}

// tally adds the loose requests to the group.
func (s *stream) tally() {
	slices.Sort(s.loose)
	known := len(s.group)
	for _, code := range s.loose {
		if last := len(s.group) - 1; last >= known && s.group[last].code == code {
			s.group[last].n++
		} else {
			s.group = append(s.group, tally{code, 1})
		}
	}
	s.loose = s.loose[:0]
	if known > 0 {
		s.merge()
	}
}

// merge merges the tallies of the same code.
func (s *stream) merge() {
	slices.SortFunc(s.group, func(a, b tally) int { return cmp.Compare(a.code, b.code) })
	to := 0
	for _, t := range s.group[1:] {
		if t.code == s.group[to].code {
			s.group[to].n += t.n
			continue
		}
		to++
		s.group[to] = t
	}
	s.group = s.group[:to+1]
}

// spreadPart spreads the requests in the next part of the second.
func (s *stream) spreadPart() {
	from, to := uint64(s.part)*1e9/uint64(s.parts), uint64(s.part+1)*1e9/uint64(s.parts)
	s.part++
	s.spread, s.handed, s.alone = s.spread[:0], 0, 0
	for _, g := range s.group {
		if g.n == 1 {
			if from == 0 {
				s.spread = append(s.spread, uint64(g.code))
			}
			continue
		}
		for i, end := firstAt(from, g.n), firstAt(to, g.n); i < end; i++ {
			s.spread = append(s.spread, i*1e9/g.n<<32|uint64(g.code))
		}
	}
	if !slices.IsSorted(s.spread) {
		slices.Sort(s.spread)
	}
	s.isolate()
}

// firstAt returns the index of the first of n requests, spread over a second, at nanos or later.
func firstAt(nanos, n uint64) uint64 {
	hi, lo := bits.Mul64(nanos, n)
	quotient, rest := bits.Div64(hi, lo, 1e9)
	if rest > 0 {
		quotient++
	}
	return quotient
}
