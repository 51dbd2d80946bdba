package verify

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

// Each strategy admits at most so much in any span of one Duration as the table of strategies says,
// and an adversary that knows its arithmetic reaches that, so the table does not overstate it.
func TestMostInAnySpan(t *testing.T) {
	const limit, burst, span = 20, 10, 100 // span in ms
	tiers := []weir.Tier{{Limit: limit, Duration: span * time.Millisecond},
		{Limit: 60, Duration: 5 * span * time.Millisecond}}
	for _, s := range []struct {
		name string
		most int // in any span of one Duration
		of   func(*weir.Limiter) (weir.Strategy, error)
	}{
		{"FixedWindow", 2 * limit, strategyOf((*weir.Limiter).FixedWindow)},
		{"SlidingWindow", 2*limit - 1, strategyOf((*weir.Limiter).SlidingWindow)},
		{"SlidingLog", limit, strategyOf((*weir.Limiter).SlidingLog)},
		{"TokenBucket", burst + limit - 1, func(l *weir.Limiter) (weir.Strategy, error) {
			return l.TokenBucket(burst), nil // less than burst + limit: a span does not include its end
		}},
		{"LeakyBucket", limit, func(l *weir.Limiter) (weir.Strategy, error) {
			return l.LeakyBucket(0), nil
		}},
		{"Tiers", 2 * limit, func(l *weir.Limiter) (weir.Strategy, error) { return l.Tiers(tiers...), nil }},
		{"Tiers with a Resolution of a tenth", limit, func(l *weir.Limiter) (weir.Strategy, error) {
			return l.Tiers(tiers...).Resolution(span / 10 * time.Millisecond), nil
		}},
		{"Counter", 2*limit - 1, strategyOf((*weir.Limiter).Counter)}, // the first hit begins the period
		{"List", 2*limit - 1, strategyOf((*weir.Limiter).List)},
	} {
		most := 0
		for round := range 60 {
			var now int64
			l := newLimiter(t, weir.Config{Now: func() time.Time { return at(now) }, SweepEvery: still})
			strategy, err := s.of(l)
			require.NoError(t, err)
			hits := []int64{} // when each was admitted, ms
			for i, ms := range instants(round, span) {
				now = ms
				tries := limit + 1
				if i == 0 && round%2 == 0 || round%3 == 0 {
					tries = 1
				}
				for range tries {
					res, err := strategy.Run(t.Context(),
						&weir.Request{Key: "a", Limit: limit, Duration: span * time.Millisecond})
					require.NoError(t, err)
					if !res.Allowed() {
						break
					}
					hits = append(hits, now)
				}
			}
			for i, from := range hits {
				n := slices.IndexFunc(hits[i:], func(ms int64) bool { return ms >= from+span })
				if n < 0 {
					n = len(hits) - i
				}
				most = max(most, n)
			}
		}
		assert.Equal(t, s.most, most, s.name)
	}
}

func strategyOf[S weir.Strategy](
	of func(*weir.Limiter) S,
) func(*weir.Limiter) (weir.Strategy, error) {
	return func(l *weir.Limiter) (weir.Strategy, error) { return of(l), nil }
}

// instants returns when an adversary tries, in order, ms: around the edges of periods and slices,
// and now and then. At first it tries at the end of a window, and at each millisecond of the next.
func instants(round int, span int64) (ms []int64) {
	if round == 1 {
		for i := range span {
			ms = append(ms, span-1+i)
		}
		return ms
	}
	rnd := rand.New(rand.NewPCG(uint64(round), 0))
	first := rnd.Int64N(span)
	ms = append(ms, first, first+span-1, first+span)
	for range 1 + round%5 {
		edge := rnd.Int64N(4 * span)
		if round%4 < 2 {
			edge -= edge % (span / 10)
		}
		ms = append(ms, edge, edge+1, edge+span-2, edge+span-1, edge+span)
	}
	slices.Sort(ms)
	return ms
}
