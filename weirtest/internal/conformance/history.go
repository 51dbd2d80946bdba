package conformance

import (
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/arith"
)

// step is one request of a history, made so long after the one before it.
type step struct {
	after time.Duration
	r     weir.Request
}

type history []step

// play runs the requests of h and returns their Results.
func (tr *trial) play(h history) []weir.Result {
	verdicts := make([]weir.Result, len(h))
	for i, s := range h {
		tr.clock.Advance(s.after)
		verdicts[i] = tr.run(s.r)
	}
	return verdicts
}

// trace is a history with its Results on a strategy of its own.
type trace struct {
	history  history
	verdicts []weir.Result
	events   []event
}

// trace plays h on a new strategy.
func (s *suite) trace(h history) trace {
	t := trace{history: h}
	s.try(func(tr *trial) {
		t.verdicts = tr.play(h)
		t.events = tr.events
	})
	return t
}

// against calls f with a new strategy. A failure shows t as its baseline.
func (s *suite) against(t trace, f func(*trial)) {
	s.try(func(tr *trial) {
		tr.baseline = t.events
		f(tr)
	})
}

// compare plays random histories, and calls check for each step of them on another strategy, at the
// same instant, with the Result that the step had.
func (s *suite) compare(v variety, check func(tr *trial, h history, i int, want weir.Result)) {
	s.search(v, func(h history) {
		full := s.trace(h)
		s.against(full, func(tr *trial) {
			for i, step := range h {
				tr.clock.Advance(step.after)
				check(tr, h, i, full.verdicts[i])
			}
		})
	})
}

// last returns the last request, its Result and its time.
func (t trace) last() (weir.Request, weir.Result, time.Time) {
	n := len(t.history) - 1
	return t.history[n].r, t.verdicts[n], t.events[n].at
}

// search checks the law on random histories. It panics with the failure of the shortest history it
// finds.
func (s *suite) search(v variety, law func(history)) {
	s.searchIn(func() history { return s.random(v) }, law)
}

func (s *suite) searchIn(next func() history, law func(history)) {
	for range s.Histories {
		h := next()
		if err := catch(func() { law(h) }); err != nil {
			panic(s.shrink(h, err.(*failure), law))
		}
	}
}

// variety lists what the requests of one random history may differ in, apart from time and cost. An
// empty list means one value.
type variety struct {
	keys      []string
	limits    []uint64
	durations []time.Duration
}

// key is the key of most requests.
const key = "caller"

// random returns a history of up to 16 requests. It favors the cases in which strategies fail:
// several requests at one instant, the edges of windows, costs that just fit, pauses in which
// everything expires, and retries without delay.
func (s *suite) random(v variety) history {
	if len(v.keys) == 0 {
		v.keys = []string{key}
	}
	if len(v.limits) == 0 {
		v.limits = []uint64{s.pick(s.Limits)}
	}
	if len(v.durations) == 0 {
		v.durations = []time.Duration{s.pickDuration()}
	}
	eager := s.rng.IntN(4) == 0
	h := make(history, 1+s.rng.IntN(16))
	var now time.Duration
	for i := range h {
		r := weir.Request{
			Key:      v.keys[s.rng.IntN(len(v.keys))],
			Limit:    v.limits[s.rng.IntN(len(v.limits))],
			Duration: v.durations[s.rng.IntN(len(v.durations))],
		}
		r.Cost = s.cost(s.Burst(r.Limit))
		if eager && i > 0 {
			r = costing(h[0].r, 1)
		}
		h[i] = step{s.pause(now, r), r}
		now += h[i].after
	}
	if eager {
		return s.eager(h)
	}
	return h
}

// eager returns h with the pauses of a caller that retries without delay: at once after an
// admission, and at ExpiresAt after a denial.
func (s *suite) eager(h history) history {
	s.try(func(tr *trial) {
		for i := range h {
			if i > 0 {
				h[i].after = 0
			}
			if last := len(tr.events) - 1; i > 0 && !tr.events[last].res.Allowed() {
				h[i].after = s.grain(tr.events[last].res.ExpiresAt.Sub(tr.clock.Now()))
			}
			tr.clock.Advance(h[i].after)
			tr.run(h[i].r)
		}
	})
	return h
}

// pick returns the first limit with probability 1/2 or more.
func (s *suite) pick(limits []uint64) uint64 {
	if s.rng.IntN(2) == 0 {
		return limits[0]
	}
	return limits[s.rng.IntN(len(limits))]
}

func (s *suite) pickDuration() time.Duration {
	if s.rng.IntN(2) == 0 {
		return s.Durations[0]
	}
	return s.Durations[s.rng.IntN(len(s.Durations))]
}

// cost returns a random cost up to most, which is the most that can be admitted; 0 stands for 1.
func (s *suite) cost(most uint64) uint64 {
	switch s.rng.IntN(8) {
	case 0, 1:
		return 0
	case 2:
		return most
	case 3:
		return max(most, 1) - 1
	default:
		return 1 + s.rng.Uint64N(max(most, 1))
	}
}

// pause returns a random delay between now and r.
func (s *suite) pause(now time.Duration, r weir.Request) time.Duration {
	d := r.Duration
	switch s.rng.IntN(10) {
	case 0, 1, 2:
		return 0
	case 3:
		return s.Granule
	case 4:
		return s.grain(time.Millisecond)
	case 5:
		return s.grain(s.within(2 * d / time.Duration(min(max(r.Limit, 1), 1000))))
	case 6:
		return s.grain(s.within(3 * d))
	case 7, 8:
		edge := d - now%d
		return s.grain(edge - []time.Duration{0, s.Granule, time.Millisecond}[s.rng.IntN(3)])
	default:
		return s.grain(s.within(d))
	}
}

// within returns a random span in [0, d].
func (s *suite) within(d time.Duration) time.Duration {
	return time.Duration(s.rng.Int64N(int64(d) + 1))
}

// grain rounds d down to a multiple of Granule.
func (s *suite) grain(d time.Duration) time.Duration { return max(0, d.Truncate(s.Granule)) }

// origin returns the instant at which histories start: the last one before 2000-01-01 at which
// windows of all Durations begin, as far as there is one.
func (s *suite) origin() time.Time {
	latest := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	edge := int64(1)
	for _, d := range s.Durations {
		ms := max(d.Milliseconds(), 1)
		if factor := ms / arith.GCD(edge, ms); edge <= latest/factor {
			edge *= factor
		}
	}
	return time.UnixMilli(latest / edge * edge).UTC()
}
