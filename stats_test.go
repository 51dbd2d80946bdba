package weir

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Stats counts each decision once, whatever else changes the counts that it adds up.
func TestStatsCountDecisionsOnly(t *testing.T) {
	for _, name := range subjectNames {
		t.Run(name, func(t *testing.T) {
			l, clock := newTestLimiter(t, Config{})
			other, ahead := newTestLimiter(t, Config{})
			s, saver := subjects(t, l)[name], subjects(t, other)[name]
			rnd := rand.New(rand.NewPCG(1, 1))
			var want Stats
			for i := range 600 {
				clock.ns.Add(rnd.Int64N(3) * rnd.Int64N(200_000_000))
				ahead.ns.Store(clock.ns.Load())
				r := &Request{
					Key: snapshotIDs[rnd.IntN(len(snapshotIDs))], Limit: 12, Cost: rnd.Uint64N(14),
					Duration: time.Duration(1+rnd.IntN(2)) * time.Second,
				}
				counted := &Result{TotalRequests: r.Cost + 3, ExpiresAt: clock.now().Add(r.Duration)}
				var err error
				switch rnd.IntN(24) {
				case 0:
					err = ops.Charge(t.Context(), s, r)
				case 1, 2:
					err = ops.Refund(t.Context(), s, r, counted)
				case 3:
					err = ops.Seed(t.Context(), s, r, counted)
				case 4:
					_, err = ops.Peek(t.Context(), s, r)
				case 5:
					err = ops.Reset(t.Context(), s, r)
				case 6:
					l.Sweep()
				case 7:
					MustRun(t, saver, r)
					err = l.Load(bytes.NewReader(saved(t, other)))
				case 8:
					_, err = ops.ResetPrefix(t.Context(), s, "a", nil)
				default:
					var res *Result
					if res, err = s.Run(t.Context(), r); err == nil && res.Allowed() {
						want.Allowed++
					} else if err == nil {
						want.Denied++
					}
				}
				require.NoError(t, err)
				got := l.Stats()
				require.Equal(t, want.Allowed, got.Allowed, "admitted, step %d", i)
				require.Equal(t, want.Denied, got.Denied, "denied, step %d", i)
			}
			require.NotZero(t, want.Allowed)
			require.NotZero(t, want.Denied)
		})
	}
}
