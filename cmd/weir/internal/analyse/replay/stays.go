package replay

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// stay is a request in flight.
type stay struct {
	start, end int64 // in nanoseconds since the Unix epoch
	caller     uint32
	marks      marks
}

// tookBits holds a duration, to one part in 16 million. Its order is that of the durations.
func tookBits(ns int64) uint32 { return math.Float32bits(float32(ns)) }

func tookOf(bits uint32) int64 { return int64(math.Float32frombits(bits)) }

// stays returns the stays of a log in order of their starts. The spool has the durations in place
// of routes, and of a request with whole seconds the instant that the line has.
//
// Requests of a whole second are spread evenly over it, all callers together: what was in flight is
// then right on average, and no burst is seen that never was. Those of one caller follow each other
// in the sequence of the golden ratio, of which each part is spread evenly too.
//
// Callers are numbered anew, in the order of their names, since the spool's numbers depend on the
// order of the lines.
func stays(s *spool, names []string) (out *spool, sorted []string) {
	sorted = slices.Sorted(slices.Values(names))
	number := make([]uint32, len(names))
	for i, name := range names {
		at, _ := slices.BinarySearch(sorted, name)
		number[i] = uint32(at)
	}
	for _, run := range s.runs {
		for i := range run {
			e := &run[i]
			e.code = codeOf(number[e.code>>markBits], marksOf(e.code))
		}
	}
	s.sort()
	out = &spool{most: s.most}
	runs := s.open(nil).runs
	s.runs = nil // each is free once it is read
	var second []event
	for len(runs) > 0 {
		e := runs[0][0]
		runs.drop(1)
		if e.at&1 == 1 {
			out.add(e.at, e.code, e.route)
			continue
		}
		second = append(second, e)
		if len(runs) == 0 || runs[0][0].at != e.at {
			spreadOver(out, second)
			second = second[:0]
		}
	}
	out.sort()
	return out, sorted
}

// golden is 2^64 divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// spreadOver adds the requests of one whole second to a spool.
func spreadOver(to *spool, requests []event) {
	slices.SortFunc(requests, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.code, b.code), cmp.Compare(a.route, b.route))
	})
	place := uint64(1) << 63 // the middle
	for _, e := range requests {
		at := e.at.nanoseconds() + int64(float64(place>>11)/(1<<53)*float64(time.Second))
		if marksOf(e.code)&ended != 0 {
			at -= tookOf(e.route)
		}
		to.add(stampOf(at, false), e.code, e.route)
		place += golden
	}
}

// eachStay calls enter for each request as it arrives, in order of time, and leave as it ends, with
// what enter returned. Of one instant, what ends comes first. The spool is one of stays.
func eachStay[T any](s *spool, enter func(*stay) (T, error), leave func(*stay, T)) error {
	var in inFlight[T]
	runs := s.open(nil).runs
	for len(runs) > 0 {
		e := runs[0][0]
		runs.drop(1)
		start := e.at.nanoseconds()
		one := held[T]{stay: stay{start, start + tookOf(e.route), e.code >> markBits, marksOf(e.code)}}
		in.leave(start, leave)
		var err error
		one.with, err = enter(&one.stay)
		if err != nil {
			return err
		}
		in.add(one)
	}
	in.leave(math.MaxInt64, leave)
	return nil
}

// held is a stay, with what belongs to it.
type held[T any] struct {
	stay
	with T
}

// inFlight is a heap of the requests in flight, with the first to end at index 0.
type inFlight[T any] []held[T]

func (h inFlight[T]) less(i, j int) bool {
	a, b := &h[i], &h[j]
	return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.start, b.start),
		cmp.Compare(a.caller, b.caller)) < 0
}

func (h *inFlight[T]) add(one held[T]) {
	*h = append(*h, one)
	all := *h
	for i := len(all) - 1; i > 0 && all.less(i, (i-1)/2); i = (i - 1) / 2 {
		all[i], all[(i-1)/2] = all[(i-1)/2], all[i]
	}
}

// leave removes what has ended by an instant, and calls f for it.
func (h *inFlight[T]) leave(by int64, f func(*stay, T)) {
	for len(*h) > 0 && (*h)[0].end <= by {
		one := h.remove()
		f(&one.stay, one.with)
	}
}

// remove removes the first.
func (h *inFlight[T]) remove() held[T] {
	all := *h
	first, last := all[0], len(all)-1
	all[0], all[last] = all[last], held[T]{}
	all = all[:last]
	*h = all
	for i := 0; ; {
		least := i
		for kid := 2*i + 1; kid <= 2*i+2 && kid < len(all); kid++ {
			if all.less(kid, least) {
				least = kid
			}
		}
		if least == i {
			return first
		}
		all[i], all[least] = all[least], all[i]
		i = least
	}
}
