package conformance

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirgo/weir"
)

// step is one request of a history, made so long after the one before it.
type step struct {
	after time.Duration
	r     weir.Request
}

type history []step

func (h history) with(i int, changed step) history {
	h = slices.Clone(h)
	h[i] = changed
	return h
}

// divided returns h with every limit and cost divided, if no limit becomes 0.
func (h history) divided(by uint64) []history {
	h = slices.Clone(h)
	for i := range h {
		r := &h[i].r
		if r.Limit < by {
			return nil
		}
		r.Limit /= by
		r.Cost = (r.Cost + by - 1) / by
	}
	return []history{h}
}

// trace is a history with its Results on a strategy of its own.
type trace struct {
	history  history
	verdicts []weir.Result
	events   []event
}

// last returns the last request, its Result and its time.
func (t trace) last() (weir.Request, weir.Result, time.Time) {
	n := len(t.history) - 1
	return t.history[n].r, t.verdicts[n], t.events[n].at
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

// dice throws random histories of the limits and durations of Laws.
type dice struct {
	*rand.Rand
	laws *Laws
}

// history returns one of up to 16 requests, and whether its caller retries without delay. It favors
// the cases in which strategies fail: several requests at one instant, the edges of windows, costs
// that just fit, pauses in which everything expires, and such retries.
func (d dice) history(v variety) (h history, eager bool) {
	if len(v.keys) == 0 {
		v.keys = []string{key}
	}
	if len(v.limits) == 0 {
		v.limits = []uint64{d.pick()}
	}
	if len(v.durations) == 0 {
		v.durations = []time.Duration{d.pickDuration()}
	}
	eager = d.IntN(4) == 0
	h = make(history, 1+d.IntN(16))
	var now time.Duration
	for i := range h {
		r := weir.Request{
			Key:      v.keys[d.IntN(len(v.keys))],
			Limit:    v.limits[d.IntN(len(v.limits))],
			Duration: v.durations[d.IntN(len(v.durations))],
		}
		r.Cost = d.cost(d.laws.Burst(r.Limit))
		if eager && i > 0 {
			r = costing(h[0].r, 1)
		}
		h[i] = step{d.pause(now, r), r}
		now += h[i].after
	}
	return h, eager
}

// pick returns a limit, the first with probability 1/2 or more.
func (d dice) pick() uint64 {
	if d.IntN(2) == 0 {
		return d.laws.Limits[0]
	}
	return d.laws.Limits[d.IntN(len(d.laws.Limits))]
}

func (d dice) pickDuration() time.Duration {
	if d.IntN(2) == 0 {
		return d.laws.Durations[0]
	}
	return d.laws.Durations[d.IntN(len(d.laws.Durations))]
}

// cost returns a random cost up to most, which is the most that can be admitted; 0 stands for 1.
func (d dice) cost(most uint64) uint64 {
	switch d.IntN(8) {
	case 0, 1:
		return 0
	case 2:
		return most
	case 3:
		return max(most, 1) - 1
	default:
		return 1 + d.Uint64N(max(most, 1))
	}
}

// pause returns a random delay between now and r.
func (d dice) pause(now time.Duration, r weir.Request) time.Duration {
	switch d.IntN(10) {
	case 0, 1, 2:
		return 0
	case 3:
		return d.laws.Granule
	case 4:
		return d.laws.grain(time.Millisecond)
	case 5:
		return d.laws.grain(d.within(2 * r.Duration / time.Duration(min(max(r.Limit, 1), 1000))))
	case 6:
		return d.laws.grain(d.within(3 * r.Duration))
	case 7, 8:
		edge := r.Duration - now%r.Duration
		return d.laws.grain(edge - []time.Duration{0, d.laws.Granule, time.Millisecond}[d.IntN(3)])
	default:
		return d.laws.grain(d.within(r.Duration))
	}
}

// within returns a random time in [0, span].
func (d dice) within(span time.Duration) time.Duration {
	return time.Duration(d.Int64N(int64(span) + 1))
}
