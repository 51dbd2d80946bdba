// Package hybrid_test tests fallback and redislimit together, on a real Redis and its faults.
package hybrid_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

const (
	callers = 64
	slack   = 10 * time.Millisecond // allowed beyond the Timeout
)

// bench is a server and a proxy in front of it.
type bench struct {
	server   *redistest.Server
	sentinel *redistest.Sentinel // the Sentinel that monitors the server, or nil
	proxy    *redistest.Proxy
}

func newBench(t *testing.T, args ...string) *bench {
	s := redistest.Start(t, args...)
	return &bench{server: s, proxy: redistest.NewProxy(t, s.Addr)}
}

// newLimiter returns a Limiter by a clock, or by the system's for nil.
func newLimiter(t testing.TB, now func() time.Time) *weir.Limiter {
	l, err := weir.New(weir.Config{Now: now})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// storeAt returns a Store on its own client with ten connections.
func storeAt(t testing.TB, addr string, cfg redislimit.Config) *redislimit.Store {
	o := redislimit.Options(addr)
	o.PoolSize = 10
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	s, err := redislimit.New(c, cfg)
	require.NoError(t, err)
	return s
}

func newFallback(
	t testing.TB, primary, local weir.Strategy, cfg fallback.Config,
) *fallback.Fallback {
	f, err := fallback.New(primary, local, cfg)
	require.NoError(t, err)
	return f
}

// isDown is recommended by the documentation of fallback.Config.IsDown.
func isDown(err error) bool { return redislimit.Classify(err) != redislimit.Bug }

// hybridAt returns one instance: fixed windows in the Redis at addr, with in-memory ones as
// fallback.
func hybridAt(t testing.TB, addr string, cfg fallback.Config,
	front ...func(weir.Strategy) weir.Strategy) *fallback.Fallback {
	l := newLimiter(t, nil)
	if cfg.IsDown == nil {
		cfg.IsDown = isDown
	}
	var primary weir.Strategy = storeAt(t, addr, redislimit.Config{Timeout: cfg.Timeout}).FixedWindow()
	for _, wrap := range front {
		primary = wrap(primary)
	}
	return newFallback(t, primary, l.FixedWindow(), cfg)
}

// outcome is the result of one call.
type outcome struct {
	res  *weir.Result
	by   weir.Source
	err  error
	took time.Duration
}

// callAll makes n concurrent decisions. late is the delay of the machine itself meanwhile: the
// total by which the latest of several sleeping goroutines overslept. On a busy machine a deadline
// cannot be met more closely.
func callAll(f *fallback.Fallback, r weir.Request, n int) (out []outcome, late time.Duration) {
	out = make([]outcome, n)
	overslept := make([]time.Duration, 16)
	stop := make(chan struct{})
	var ready, callers, sleepers sync.WaitGroup
	ready.Add(n + len(overslept))
	for i := range n {
		callers.Go(func() {
			ready.Done()
			ready.Wait()
			r := r
			start := time.Now()
			res, by, err := runSource(context.Background(), f, &r)
			out[i] = outcome{res, by, err, time.Since(start)}
		})
	}
	for i := range overslept {
		sleepers.Go(func() {
			ready.Done()
			ready.Wait()
			for {
				select {
				case <-stop:
					return
				default:
				}
				const nap = 5 * time.Millisecond
				start := time.Now()
				time.Sleep(nap) // how late the machine is, is what it measures
				overslept[i] += time.Since(start) - nap
			}
		})
	}
	callers.Wait()
	close(stop)
	sleepers.Wait()
	return out, slices.Max(overslept)
}

// warmUp fills the pool, and makes requests until primary decides one. It does not need all of them
// at once: on a busy machine some always take longer than the timeout.
func warmUp(t *testing.T, f *fallback.Fallback) {
	t.Helper()
	callAll(f, day, callers)
	redistest.Eventually(t, time.Minute, "primary decides", func() bool {
		_, by := ask(t, f, day)
		return by == weir.FromPrimary
	})
}

// attempts is the most rounds until all calls of one are answered in time. A busy machine delays
// some calls in some rounds; a missed deadline delays some in every round.
const attempts = 10

// requireLocal makes rounds of calls, which local must admit, until all of one took at most limit
// plus the delay of the machine itself. It fails if there is no such round.
func requireLocal(t *testing.T, f *fallback.Fallback, limit time.Duration) {
	t.Helper()
	var took []time.Duration
	for range attempts {
		out, late := callAll(f, day, callers)
		longest, by := slowest(t, out)
		require.Equal(t, map[weir.Source]int{weir.FromLocal: callers}, by)
		for _, o := range out {
			require.True(t, o.res != nil && o.res.Allowed(), "the limit is not reached")
		}
		if took = append(took, longest.Round(100*time.Microsecond)); longest <= limit+late {
			t.Logf("slowest of %d: %v", callers, took)
			return
		}
	}
	assert.Fail(t, "late in every round", "%v, not %v", took, limit)
}

// slowest returns the longest duration and the number of decisions by source. No call may have
// failed.
func slowest(t *testing.T, out []outcome) (longest time.Duration, by map[weir.Source]int) {
	t.Helper()
	by = map[weir.Source]int{}
	for _, o := range out {
		assert.NoError(t, o.err)
		by[o.by]++
		longest = max(longest, o.took)
	}
	return longest, by
}

// ask makes one decision.
func ask(t testing.TB, f *fallback.Fallback, r weir.Request) (*weir.Result, weir.Source) {
	t.Helper()
	res, by, err := runSource(context.Background(), f, &r)
	require.NoError(t, err)
	return res, by
}

// quantile returns the duration that a fraction part of all does not exceed.
func quantile(all []time.Duration, part float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(part*float64(len(all))))]
}

// day is a request in a window long enough not to end during a test, except at midnight.
var day = weir.Request{Key: "a", Limit: 1_000_000, Duration: 24 * time.Hour}

// runSource is the Run of s, and returns its source.
func runSource(
	ctx context.Context, s weir.Strategy, r *weir.Request,
) (*weir.Result, weir.Source, error) {
	op := ops.Do(ctx, s, weir.Op{Request: *r})
	if op.Err != nil {
		return nil, op.Source, op.Err
	}
	return &op.Result, op.Source, nil
}
