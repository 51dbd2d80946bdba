package weir

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/core/forlimits"
)

// counts identifies where a Strategy counts.
type counts = forlimits.Counts

// countsOf returns where s counts. Strategies of this package count together wherever they are
// made, and so do those of another one on one store; any other Strategy is equal to itself only.
func countsOf(s Strategy) counts {
	if of, ok := s.(keyed); ok {
		c := countsOf(of.strategy)
		if c.Of == nil {
			return c
		}
		return counts{Of: c, Scale: of.d.Milliseconds(), Bound: true, Plan: of.label}
	}
	if own, ok := asOwn(s); ok {
		return ownCounts(own)
	}
	if b, ok := s.(interface{ Store() (any, Strategy) }); ok {
		if store, of := b.Store(); equal(of, s) && equal(store, store) {
			return counts{Of: store, Algorithm: NameOf(s), Plan: planOf(s)}
		}
	}
	if !equal(s, s) { // as a NaN is not, which no map finds again
		return counts{}
	}
	return counts{Of: s}
}

func ownCounts(s own) counts {
	l, series := s.of()
	c := counts{Of: l, Series: series, Algorithm: NameOf(s)}
	if bound, ok := s.(interface {
		bounded
		ownScale() int64
	}); ok && bound.Bound() {
		c.Bound, c.Scale = true, bound.ownScale()
	}
	if t, ok := s.(*Tiers); ok {
		c.Bound, c.Plan = true, t.plan
	}
	return c
}

// planOf returns the periods of a strategy on a store, where those are none of a request.
func planOf(s Strategy) string {
	if c, ok := As[periodic](s); ok {
		return c.Period()
	}
	var plan strings.Builder
	for _, tier := range tiersOf(s) {
		fmt.Fprint(&plan, tier.Duration, " ")
	}
	if t, ok := As[interface{ Longest() time.Duration }](s); ok {
		fmt.Fprint(&plan, t.Longest()) // with the resolution
	}
	return plan.String()
}

// equal reports whether a == b. Where that panics, on types that cannot be compared, it is false.
func equal(a, b any) (ok bool) {
	defer func() { _ = recover() }()
	return a == b
}

// waitsFor identifies the counts of a strategy, or returns nil if they cannot be compared.
func waitsFor(s Strategy) any {
	if c := countsOf(s); c.Of != nil {
		return c
	}
	return nil
}
