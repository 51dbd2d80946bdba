package conformance

import (
	"slices"
	"time"

	"github.com/weirgo/weir"
)

// maxTries bounds how often shrink checks a law: enough for histories of 16 steps, and bearable
// over a network.
const maxTries = 3000

// shrinker makes histories smaller on which a law fails.
type shrinker struct {
	laws *Laws
	law  func(history)
}

// shrink returns the failure of the shortest history it finds. It starts from h, whose failure is
// b, and goes on with the first smaller history on which the law fails, until there is none.
func (s shrinker) shrink(h history, b *failure) *failure {
	tries := 0
	for smaller := true; smaller; {
		smaller = false
		for _, candidate := range s.smaller(h) {
			tries++
			if tries > maxTries {
				return b
			}
			if err := catch(func() { s.law(candidate) }); err != nil {
				h, b, smaller = candidate, err.(*failure), true
				break
			}
		}
	}
	return b
}

// smaller returns histories that are one change simpler than h, the greatest simplifications first.
func (s shrinker) smaller(h history) []history {
	var all []history
	for i := range h {
		if len(h) == 1 {
			break
		}
		all = append(all, slices.Delete(slices.Clone(h), i, i+1))
		if i+1 < len(h) { // the same, with what follows at the same time as before
			later := slices.Delete(slices.Clone(h), i, i+1)
			later[i].after += h[i].after
			all = append(all, later)
		}
	}
	if !s.laws.Fixed {
		for _, limit := range []uint64{1, 2, 3, 5} {
			all = append(all, s.lowered(h, limit)...)
		}
		for _, divisor := range []uint64{10, 2} {
			all = append(all, h.divided(divisor)...)
		}
	}
	for i := range h {
		for _, r := range cheaper(h[i].r) {
			all = append(all, h.with(i, step{h[i].after, r}))
		}
		for _, after := range s.shorter(h[i].after, h[i].r.Duration) {
			all = append(all, h.with(i, step{after, h[i].r}))
		}
	}
	return all
}

// lowered returns h with no limit above this one and costs that fit, if that lowers any limit.
func (s shrinker) lowered(h history, limit uint64) []history {
	h = slices.Clone(h)
	lower := false
	for i := range h {
		if h[i].r.Limit > limit {
			h[i].r.Limit, lower = limit, true
		}
		h[i].r.Cost = min(h[i].r.Cost, s.laws.Burst(h[i].r.Limit))
	}
	if !lower {
		return nil
	}
	return []history{h}
}

func cheaper(r weir.Request) (all []weir.Request) {
	for _, cost := range []uint64{1, r.Cost / 2, r.Cost - min(r.Cost, 1)} {
		if cost > 0 && cost < r.Cost {
			r.Cost = cost
			all = append(all, r)
		}
	}
	return all
}

// shorter returns pauses that are rounder than after or shorter: half of it, three quarters, seven
// eighths, down to a millisecond less.
func (s shrinker) shorter(after, d time.Duration) (all []time.Duration) {
	all = []time.Duration{0, after / d * d, after.Truncate(time.Second),
		after.Truncate(time.Millisecond)}
	for less := after / 2; less >= time.Millisecond; less /= 2 {
		all = append(all, (after - less).Truncate(time.Millisecond))
	}
	for i := range all {
		all[i] = s.laws.grain(all[i])
	}
	return slices.DeleteFunc(all, func(p time.Duration) bool { return p >= after })
}
