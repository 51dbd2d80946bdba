package fallback_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/weirtest"
)

// remote returns s as one that counts elsewhere, as far as can be told.
func remote(s weir.Strategy) weir.Strategy {
	a := newAround(s, func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
		next(ctx, op)
	})
	a.about.Limiter = nil
	return a
}

// New refuses a primary and a local that cannot be meant, and says why; AllowUnlike permits them.
// What it does not know, and what is documented, it takes.
func TestNewRefusesUnlikeSides(t *testing.T) {
	here := limiterOn(t, nil)
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	tiers := func(all ...weir.Tier) weir.Strategy {
		s := here.Tiers(all...)
		return s
	}
	minute := func(n uint64) weir.Tier { return weir.Tier{Limit: n, Duration: time.Minute} }
	hours := func(n uint64) weir.Tier { return weir.Tier{Limit: n, Duration: time.Hour} }
	limit := func(n uint64, d time.Duration) weir.Strategy { return here.SlidingWindow().Limit(n, d) }
	all := func(a, b uint64) weir.Strategy {
		return limits.All(here.FixedWindow().Limit(a, time.Minute),
			here.FixedWindow().Limit(b, time.Hour))
	}
	own := weirtest.DenyAll()
	for name, row := range map[string]struct {
		primary, local weir.Strategy
		n              int
		refused        string // part of the text; empty: it is taken
	}{
		"the sides are swapped":             {here.FixedWindow(), remote(here.FixedWindow()), 1, "swap them"},
		"swapped, in a wrapper":             {near.NewDenials(here.FixedWindow(), near.DenialsConfig{}), remote(here.FixedWindow()), 1, "swap them"},
		"a strategy of the user is local":   {here.FixedWindow(), own, 1, ""},
		"a strategy of the user is primary": {own, here.FixedWindow(), 1, ""},
		"both are the user's":               {own, own, 1, ""},
		"both are elsewhere":                {remote(here.FixedWindow()), remote(here.FixedWindow()), 1, ""},
		"two algorithms":                    {here.SlidingWindow(), here.TokenBucket(100), 1, "is sliding window and local's token bucket"},
		"two algorithms, in a wrapper":      {near.NewLeases(remote(here.SlidingWindow()), near.LeaseConfig{}), here.FixedWindow(), 1, "the algorithm of primary"},
		"a limit of another algorithm":      {limit(8, time.Minute), here.FixedWindow().Limit(8, time.Minute), 1, "the algorithm of primary"},
		"the algorithm of primary":          {remote(here.SlidingLog()), here.SlidingLog(), 3, ""},
		"a burst and its share":             {here.TokenBucket(100), here.TokenBucket(34), 3, ""},
		"a burst and less than its share":   {here.TokenBucket(100), here.TokenBucket(10), 3, ""},
		"a burst that is no share":          {here.TokenBucket(100), here.TokenBucket(100), 3, "its share of 100 is 34"},
		"a burst, alone":                    {here.TokenBucket(100), here.TokenBucket(101), 1, "the burst of local is 101"},
		"a burst of the Limit":              {here.TokenBucket(0), here.TokenBucket(50), 3, ""},
		"limits and their share":            {limit(100, time.Minute), limit(34, time.Minute), 3, ""},
		"limits that are no share":          {limit(100, time.Minute), limit(100, time.Minute), 3, "its share of 100 is 34"},
		"limits of other durations":         {limit(100, time.Minute), limit(34, time.Hour), 3, "for 1m0s and local's for 1h0m0s"},
		"a limit and none":                  {limit(100, time.Minute), here.SlidingWindow(), 1, ""},
		"none and a limit":                  {here.SlidingWindow(), limit(100, time.Minute), 1, ""},
		"tiers and their share":             {tiers(minute(6), hours(30)), tiers(hours(10), minute(2)), 3, ""},
		"a tier that is no share":           {tiers(minute(6), hours(30)), tiers(minute(2), hours(30)), 3, "its share of 30 is 10"},
		"a tier of another duration":        {tiers(minute(6)), tiers(hours(2)), 3, "make them equal"},
		"a tier too few":                    {tiers(minute(6), hours(30)), tiers(minute(2)), 3, "2 limits and local 1"},
		"several limits and their share":    {all(6, 30), all(3, 15), 2, ""},
		"several that are no share":         {all(6, 30), all(3, 30), 2, "its share of 30 is 15"},
		"one calendar":                      {here.Calendar(weir.Day, berlin), here.Calendar(weir.Day, berlin), 3, ""},
		"two zones":                         {here.Calendar(weir.Day, berlin), here.Calendar(weir.Day, nil), 3, "make them equal"},
		"two units":                         {here.Calendar(weir.Day, nil), here.Calendar(weir.Month, nil), 3, "day@UTC and local by month@UTC"},
		"two zones of limits":               {here.Calendar(weir.Day, berlin).Limit(6), here.Calendar(weir.Day, nil).Limit(2), 3, "Berlin"},
		"a day and 24 hours":                {here.Calendar(weir.Day, nil), here.FixedWindow(), 1, "is calendar and local's fixed window"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := fallback.New(row.primary, row.local, fallback.Config{Instances: row.n})
			if row.refused == "" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, fallback.ErrConfig)
				assert.ErrorContains(t, err, row.refused)
				assert.ErrorContains(t, err, "AllowUnlike")
			}
			_, err = fallback.New(row.primary, row.local, fallback.Config{Instances: row.n, AllowUnlike: true})
			require.NoError(t, err)
			_, err = fallback.New(row.primary, row.local, fallback.Config{Instances: row.n, OnFail: fallback.FailOpen})
			require.NoError(t, err, "local never decides")
		})
	}
}
