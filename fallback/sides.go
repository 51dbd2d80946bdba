package fallback

import (
	"fmt"

	"github.com/weirgo/weir"
)

// checkSides returns an error if p and l, of primary and local, cannot be meant as the two sides of
// a Fallback of n instances. One that does not tell its kind, by its name, is never refused.
func checkSides(p, l *weir.About, n uint64) error {
	switch {
	case p.Name == "" || l.Name == "":
		return nil
	case p.Limiter != nil && l.Limiter == nil:
		return mistake("primary counts in this process and local does not: swap them")
	case canonical(p.Name) != canonical(l.Name):
		return mistake("the algorithm of primary is %s and local's %s: make them equal", p.Name, l.Name)
	case p.Window > 0 && l.Window > 0 && p.Period != l.Period:
		return mistake("primary counts by %s and local by %s: make them equal", p.Period, l.Period)
	}
	return checkNumbers(p, l, n)
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

// checkNumbers checks that the numbers of local are its share of primary's, or less, where
// these are not in a request: each limit and its duration, and the burst.
func checkNumbers(primary, local *weir.About, n uint64) error {
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
	w, p := primary.Burst, local.Burst
	if most := share(w, n); w > 0 && p > most {
		return mistake("the burst of local is %d, and its share of %d is %d: give it that", p, w, most)
	}
	return nil
}

// numbers returns the limits that a Counter has of its own, as far as these are known.
func numbers(a *weir.About) (all []weir.Tier) {
	switch {
	case a.Tiers != nil:
		return a.Tiers
	case a.Numbers.Duration > 0:
		return []weir.Tier{a.Numbers}
	}
	for _, part := range a.Parts {
		all = append(all, numbers(part)...)
	}
	return all
}
