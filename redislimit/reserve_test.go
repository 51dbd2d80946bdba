package redislimit_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/internal/testkit/verbtest"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// Reservations on Redis match the same model as in process: never more is admitted than the limit
// plus the cost by which commits exceeded their estimates.
func TestReserve(t *testing.T) {
	client := dial(t, generousOptions(redistest.Start(t).Addr))
	const limit = verbtest.ReserveLimit
	var made atomic.Int64
	for name, s := range map[string]struct {
		span uint64
		pick func(*redislimit.Store) weir.Strategy
	}{
		"FixedWindow": {2 * limit, func(s *redislimit.Store) weir.Strategy { return s.FixedWindow() }},
		"SlidingWindow": {2 * limit, func(s *redislimit.Store) weir.Strategy {
			return s.SlidingWindow()
		}},
		"SlidingLog": {limit, func(s *redislimit.Store) weir.Strategy { return s.SlidingLog() }},
		"SortedSet": {limit, func(s *redislimit.Store) weir.Strategy {
			return redislimit.SortedSet(s)
		}},
		"TokenBucket": {2 * limit, func(s *redislimit.Store) weir.Strategy { return s.TokenBucket(0) }},
		"Counter":     {2 * limit, func(s *redislimit.Store) weir.Strategy { return s.Counter() }},
		"List":        {2 * limit, func(s *redislimit.Store) weir.Strategy { return s.List() }},
		"Tiers": {2 * limit, func(s *redislimit.Store) weir.Strategy {
			tiers := s.Tiers(weir.Tier{Limit: limit, Duration: verbtest.ReserveDuration})
			return tiers
		}},
		"All": {limit, func(s *redislimit.Store) weir.Strategy {
			return weir.CounterOf(limits.All(s.SlidingLog().Limit(limit, verbtest.ReserveDuration),
				s.TokenBucket(0).Limit(limit, verbtest.ReserveDuration)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			subject := verbtest.Reserver{Span: s.span, Make: func(now func() time.Time) weir.Strategy {
				prefix := fmt.Sprintf("reserve %d:", made.Add(1))
				return s.pick(storeOn(t, client,
					redislimit.Config{Prefix: prefix, Now: now, Timeout: generous}))
			}}
			for seed := range uint64(slow.N(2, 8, 1000)) {
				assert.NoError(t, subject.Check(seed, 60), "seed %d", seed)
				assert.NoError(t, subject.CheckSpans(seed, 60), "seed %d", seed)
			}
		})
	}
}
