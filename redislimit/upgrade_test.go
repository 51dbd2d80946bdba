package redislimit_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

// released returns s with the script that was released.
func released(t *testing.T, s weir.Counter, file string) weir.Counter {
	text, err := os.ReadFile("testdata/released/" + file + ".lua")
	require.NoError(t, err)
	return redislimit.WithReleased(s, string(text))
}

// During a rolling upgrade the previous and the current scripts, of testdata/released, count on the
// same keys.
func TestRollingUpgrade(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.Addr, redislimit.Config{})
	tiers := store.Tiers(weir.Tier{Limit: 100, Duration: time.Hour},
		weir.Tier{Limit: 1000, Duration: 24 * time.Hour})
	// Enough slices that the oldest are merged.
	long := store.Tiers(weir.Tier{Limit: 100, Duration: time.Second},
		weir.Tier{Limit: 100, Duration: 24 * time.Hour})
	for name, row := range map[string]struct {
		file string
		now  weir.Counter
	}{
		"FixedWindow":   {"fixed_window", store.FixedWindow()},
		"Counter":       {"counter", store.Counter()},
		"SlidingWindow": {"sliding_window", store.SlidingWindow()},
		"SlidingLog":    {"sliding_log", store.SlidingLog()},
		"List":          {"list", store.List()},
		"sorted set":    {"sorted_set", redislimit.SortedSet(store)}, "Tiers": {"tiers", tiers},
		"long Tiers": {"tiers", long},
	} {
		t.Run(name, func(t *testing.T) {
			before := released(t, row.now, row.file)
			r := &weir.Request{Key: "a", Limit: 100, Duration: 24 * time.Hour}
			admitted := uint64(0)
			for n := range 150 {
				s := []weir.Counter{before, row.now}[n%2]
				res := mustRun(t, s, r)
				if res.Allowed() {
					admitted++
					require.Equal(t, admitted, res.TotalRequests)
				}
				if n == 50 {
					_, err := ops.Reconcile(t.Context(), row.now, r, &weir.Backlog{Source: "x", Total: 9})
					require.NoError(t, err)
					admitted += 10
				}
				if n == 60 {
					require.NoError(t, ops.Refund(t.Context(), []weir.Counter{before, row.now}[n/10%2], r, res))
					admitted--
				}
			}
			assert.EqualValues(t, 100, admitted)
		})
	}
}

// A token bucket that the released script has made goes on. That script kept no rate, so the first
// request says what is missing. It cannot read what the current one has written.
func TestTokenBucketGoesOnFromTheReleasedScript(t *testing.T) {
	server := redistest.Start(t)
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 123_456_789))
	now := open(t, server.Addr, redislimit.Config{Now: clock.Now}).TokenBucket(0)
	before := released(t, now, "token_bucket")
	for _, row := range []struct {
		name   string
		refund bool // it says at which rate the bucket was filled
		limit  uint64
		total  uint64
	}{
		{"the same rate", false, 100, 60}, {"twice the rate", false, 200, 120},
		{"half the rate", false, 50, 30}, {"twice the rate, after a refund", true, 200, 55},
	} {
		r := weir.Request{Key: row.name, Limit: 100, Duration: time.Hour, Cost: 60}
		taken := mustRun(t, before, &r)
		if row.refund {
			r.Cost = 5
			require.NoError(t, ops.Refund(t.Context(), now, &r, taken))
		}
		r.Limit, r.Cost = row.limit, 1
		res := mustRun(t, now, &r)
		assert.Equal(t, weir.Allow, res.State, row.name)
		assert.Equal(t, row.total+1, res.TotalRequests, row.name)
		r.Limit = 1000
		res = mustRun(t, now, &r)
		assert.Equal(t, row.total+2, res.TotalRequests, row.name)
	}
}

// Admissions can be returned on keys that the released scripts have made and change.
func TestAdmissionsDuringRollingUpgrade(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.Addr, redislimit.Config{})
	tiers := store.Tiers(weir.Tier{Limit: 100, Duration: time.Hour})
	for file, now := range map[string]weir.Counter{
		"fixed_window": store.FixedWindow(), "sliding_window": store.SlidingWindow(),
		"sliding_log": store.SlidingLog(), "list": store.List(),
		"sorted_set": redislimit.SortedSet(store), "tiers": tiers,
	} {
		t.Run(file, func(t *testing.T) {
			before := released(t, now, file)
			r := &weir.Request{Key: "a", Limit: 100, Duration: 24 * time.Hour}
			for _, reset := range []bool{false, true} {
				mustRun(t, before, r)
				_, back, err := ops.Admit(t.Context(), now, r)
				require.NoError(t, err)
				mustRun(t, before, r)
				if reset {
					require.NoError(t, ops.Reset(t.Context(), now, r))
					mustRun(t, before, r)
				}
				require.NoError(t, back(t.Context(), 1))
				res := mustPeek(t, before, r)
				assert.EqualValues(t, map[bool]uint64{false: 3, true: 2}[reset], res.TotalRequests)
				server.Do("flushall")
			}
		})
	}
}
