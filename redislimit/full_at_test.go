package redislimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

// cutOff is a strategy on Redis whose decisions get no answer.
type cutOff struct{ weir.Counter }

func (s cutOff) About() *weir.About { return s.Counter.About().By(s) }

func (s cutOff) Do(_ context.Context, ops []*weir.Op) {
	for _, op := range ops {
		op.Err = redislimit.ErrTimeout
	}
}

// At FullAt a Peek says that all is left, and 1 ms before that something is used: on Redis, behind
// a fallback, and behind one in an outage.
func TestFullAtOnRedisAndBehindAFallback(t *testing.T) {
	addr, clock := redistest.Start(t).Addr, weirtest.NewClock(time.Unix(1_700_000_017, 0))
	l, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	defer l.Close()
	for where, of := range map[string]func(s weir.Counter, here weir.Strategy) (weir.Strategy, error){
		"on Redis": func(s weir.Counter, _ weir.Strategy) (weir.Strategy, error) { return s, nil },
		"fallback": func(s weir.Counter, here weir.Strategy) (weir.Strategy, error) {
			return fallback.New(s, here, fallback.Config{Timeout: generous, Now: clock.Now})
		},
		"outage": func(s weir.Counter, here weir.Strategy) (weir.Strategy, error) {
			return fallback.New(cutOff{s}, here, fallback.Config{MinCalls: 1, Stall: -1, Now: clock.Now})
		},
	} {
		store := open(t, addr, redislimit.Config{Now: clock.Now, Prefix: where + ":"})
		for name, row := range map[string]struct {
			there         weir.Counter
			here          weir.Strategy
			peeked, known bool // FullAt is known after a Peek, and after a denial
		}{
			"FixedWindow":   {store.FixedWindow(), l.FixedWindow(), true, true},
			"SlidingWindow": {store.SlidingWindow(), l.SlidingWindow(), false, false},
			"SlidingLog":    {store.SlidingLog(), l.SlidingLog(), false, false},
			"TokenBucket":   {store.TokenBucket(5), l.TokenBucket(5), true, true},
			"Calendar":      {store.Calendar(weir.Hour, time.UTC), l.Calendar(weir.Hour, time.UTC), true, true},
		} {
			t.Run(where+" "+name, func(t *testing.T) {
				s, err := of(row.there, row.here)
				require.NoError(t, err)
				m, err := weir.NewLimit(s, 5, time.Minute)
				require.NoError(t, err)
				peek := func() weir.Outcome {
					out, err := m.Peek(t.Context(), where)
					require.NoError(t, err)
					return out
				}
				take := func(want weir.State, cost uint64) weir.Outcome {
					out, err := m.Take(t.Context(), where, cost)
					require.NoError(t, err)
					require.Equal(t, want, out.State)
					return out
				}
				check := func(at time.Time, known bool) {
					t.Helper()
					require.Equal(t, known, !at.IsZero())
					if !known {
						return
					}
					clock.Advance(at.Sub(clock.Now()) - time.Millisecond)
					before := peek()
					assert.Positive(t, before.TotalRequests)
					assert.Less(t, before.Left, uint64(5))
					clock.Advance(time.Millisecond)
					assert.Equal(t, []uint64{5, 0}, []uint64{peek().Left, peek().TotalRequests})
				}
				now := clock.Now()
				assert.WithinDuration(t, now, peek().FullAt, time.Since(now)+time.Second)
				check(take(weir.Allow, 2).FullAt, true)
				take(weir.Allow, 3)
				check(peek().FullAt, row.peeked || where == "outage") // which is of local
				take(weir.Allow, 2)
				check(take(weir.Deny, 5).FullAt, row.known || where == "outage")
			})
		}
	}
}
