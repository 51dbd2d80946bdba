package fallback

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/wrap"
)

// checkSides returns an error if primary and local cannot be meant as the two sides of a Fallback
// of n instances. Of a Strategy that does not tell what it is, by its name, nothing is refused.
func checkSides(primary, local weir.Strategy, n uint64) error {
	if local == nil { // it would never decide
		return nil
	}
	p, named := weir.As[weir.Named](primary)
	l, both := weir.As[weir.Named](local)
	if !named || !both {
		return nil
	}
	type inLimiter interface{ Limiter() *weir.Limiter }
	_, primaryHere := weir.As[inLimiter](primary)
	_, localHere := weir.As[inLimiter](local)
	if primaryHere && !localHere {
		return mistake("primary counts in this process and local does not: swap them")
	}
	if a, b := p.Algorithm(), l.Algorithm(); canonical(a) != canonical(b) {
		return mistake("the algorithm of primary is %s and local's %s: make them equal", a, b)
	}
	return cmp.Or(checkNumbers(primary, local, n), checkCalendars(primary, local))
}

// mistake returns the error of two sides that cannot be meant.
func mistake(format string, args ...any) error {
	return fmt.Errorf("%w: "+format+", or set AllowUnlike", append([]any{ErrConfig}, args...)...)
}

// canonical returns the plain name of an algorithm: a sorted set on Redis is a sliding log.
func canonical(name string) string {
	if name == "sorted set" {
		return "sliding log"
	}
	return name
}

// checkNumbers checks that the numbers of local are its share of those of primary, or less, where
// they are not in a request: each limit and its duration, and the burst.
func checkNumbers(primary, local weir.Strategy, n uint64) error {
	whole, part := numbers(primary), numbers(local)
	if len(whole) > 0 && len(part) > 0 && len(whole) != len(part) {
		return mistake("primary has %d limits and local %d: give both the same", len(whole), len(part))
	}
	for i := range min(len(whole), len(part)) {
		w, p, most := whole[i], part[i], share(whole[i].Limit, n)
		switch {
		case w.Duration != p.Duration:
			return mistake("the limit of primary is for %v and local's for %v: make them equal",
				w.Duration, p.Duration)
		case p.Limit > most:
			return mistake("the limit of local is %d, and its share of %d is %d: give it that",
				p.Limit, w.Limit, most)
		}
	}
	w, p := wrap.Burst(primary), wrap.Burst(local)
	if most := share(w, n); w > 0 && p > most {
		return mistake("the burst of local is %d, and its share of %d is %d: give it that", p, w, most)
	}
	return nil
}

// numbers returns the limits that s has of its own, as far as they are known.
func numbers(s weir.Strategy) (all []weir.Tier) {
	if t, ok := weir.As[interface{ Tiers() []weir.Tier }](s); ok {
		all = slices.Clone(t.Tiers())
		slices.SortFunc(all, func(a, b weir.Tier) int { return cmp.Compare(a.Duration, b.Duration) })
	} else if several, ok := weir.As[interface{ Limits() []*weir.Limit }](s); ok {
		for _, m := range several.Limits() {
			all = append(all, numbers(m)...)
		}
	} else if m, ok := weir.As[*weir.Limit](s); ok {
		limit, d := m.Numbers()
		all = append(all, weir.Tier{Limit: limit, Duration: d})
	}
	return all
}

// checkCalendars checks that the windows of two Calendars begin and end together.
func checkCalendars(primary, local weir.Strategy) error {
	type calendar interface{ Period() string }
	p, of := weir.As[calendar](primary)
	l, both := weir.As[calendar](local)
	if !of || !both || wrap.Window(primary) == 0 || p.Period() == l.Period() {
		return nil
	}
	return mistake("primary counts by %s and local by %s: make them equal", p.Period(), l.Period())
}
