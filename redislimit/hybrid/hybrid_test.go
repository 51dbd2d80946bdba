// Package hybrid_test holds fallback and redislimit together, on a real Redis that is broken in all
// the ways it can be.
package hybrid_test

import (
	"cmp"
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
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

const (
	callers = 64
	slack   = 10 * time.Millisecond // beyond the Timeout
)

// bench is a server and the proxy before it.
type bench struct {
	server   *redistest.Server
	sentinel *redistest.Sentinel // that watches the server, if any does
	proxy    *redistest.Proxy
}

func newBench(t *testing.T, args ...string) *bench {
	s := redistest.Start(t, args...)
	return &bench{server: s, proxy: redistest.NewProxy(t, s.Addr)}
}

// storeAt is a Store on a client of its own, with ten connections.
func storeAt(t testing.TB, addr string, timeout time.Duration) *redislimit.Store {
	o := redislimit.Options(addr)
	o.PoolSize = 10
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	s, err := redislimit.New(c, redislimit.Config{Timeout: timeout})
	require.NoError(t, err)
	return s
}

// isDown is what the documentation of fallback.Config.IsDown recommends.
func isDown(err error) bool { return redislimit.Classify(err) != redislimit.Bug }

// hybridAt is one instance: fixed windows in the Redis at addr, and behind them in memory.
func hybridAt(t testing.TB, addr string, cfg fallback.Config, front ...func(weir.Strategy) weir.Strategy) *fallback.Fallback {
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	if cfg.IsDown == nil {
		cfg.IsDown = isDown
	}
	var primary weir.Strategy = storeAt(t, addr, cmp.Or(cfg.Timeout, redislimit.DefaultTimeout)).FixedWindow()
	for _, wrap := range front {
		primary = wrap(primary)
	}
	f, err := fallback.New(primary, l.FixedWindow(), cfg)
	require.NoError(t, err)
	return f
}

// outcome is what one caller got.
type outcome struct {
	res  *weir.Result
	by   fallback.Source
	err  error
	took time.Duration
}

// storm is n callers at once, one decision each. late is by how much the machine itself was late
// meanwhile: how long the latest of some sleepers overslept, in all. A deadline cannot be kept
// better than that, and the machine may be busy.
func storm(f *fallback.Fallback, r weir.Request, n int) (out []outcome, late time.Duration) {
	out = make([]outcome, n)
	overslept := make([]time.Duration, 16)
	over := make(chan struct{})
	var ready, callers, sleepers sync.WaitGroup
	ready.Add(n + len(overslept))
	for i := range n {
		callers.Go(func() {
			ready.Done()
			ready.Wait()
			r := r
			start := time.Now()
			res, by, err := f.RunSource(context.Background(), &r)
			out[i] = outcome{res, by, err, time.Since(start)}
		})
	}
	for i := range overslept {
		sleepers.Go(func() {
			ready.Done()
			ready.Wait()
			for {
				select {
				case <-over:
					return
				default:
				}
				const nap = 5 * time.Millisecond
				start := time.Now()
				time.Sleep(nap)
				overslept[i] += time.Since(start) - nap
			}
		})
	}
	callers.Wait()
	close(over)
	sleepers.Wait()
	return out, slices.Max(overslept)
}

// warmUp asks until primary decides for everybody: on a busy machine a connection may take longer
// than the timeout.
func warmUp(t *testing.T, f *fallback.Fallback) {
	t.Helper()
	redistest.Eventually(t, 10*time.Second, "primary decides for all", func() bool {
		out, _ := storm(f, day, callers)
		return !slices.ContainsFunc(out, func(o outcome) bool { return o.by != fallback.FromPrimary })
	})
}

// slowest is how long the slowest took, once no caller has been told of an error.
func slowest(t *testing.T, out []outcome) (longest time.Duration, by map[fallback.Source]int) {
	t.Helper()
	by = map[fallback.Source]int{}
	for _, o := range out {
		assert.NoError(t, o.err)
		by[o.by]++
		longest = max(longest, o.took)
	}
	return longest, by
}

// ask is one decision.
func ask(t testing.TB, f *fallback.Fallback, r weir.Request) (*weir.Result, fallback.Source) {
	t.Helper()
	res, by, err := f.RunSource(context.Background(), &r)
	require.NoError(t, err)
	return res, by
}

// quantile is the duration that a part of all do not exceed.
func quantile(all []time.Duration, part float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(part*float64(len(all))))]
}

// day is so long that no window ends in a test, but for one that runs at midnight.
var day = weir.Request{Key: "a", Limit: 1_000_000, Duration: 24 * time.Hour}
