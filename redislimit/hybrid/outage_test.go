package hybrid_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/slow"
	"github.com/weirgo/weir/redislimit"
)

const (
	instances = 3
	workers   = 2 // of each instance
	limit     = 300
	window    = 400 * time.Millisecond
)

// bare is a primary that can be told nothing.
type bare struct{ weir.Strategy }

// fleet is instances of one service on one server, and what they admitted.
type fleet struct {
	instances []*fallback.Fallback

	mu       sync.Mutex
	admitted map[time.Time]uint64 // guarded by mu; by the end of the window
}

func newFleet(t *testing.T, addr string, carry bool) *fleet {
	f := &fleet{admitted: map[time.Time]uint64{}}
	for range instances {
		l, err := weir.New(weir.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		o := redislimit.Options(addr)
		c := redis.NewClient(o)
		t.Cleanup(func() { _ = c.Close() })
		s, err := redislimit.New(c, redislimit.Config{})
		require.NoError(t, err)
		primary := weir.Strategy(s.FixedWindow())
		if !carry {
			primary = bare{primary}
		}
		h, err := fallback.New(primary, l.FixedWindow(), fallback.Config{
			Instances: instances, ProbeInterval: 20 * time.Millisecond, IsDown: isDown,
		})
		require.NoError(t, err)
		f.instances = append(f.instances, h)
	}
	return f
}

// demand is all instances asking at about three times the limit, until ctx is done.
func (f *fleet) demand(t *testing.T, ctx context.Context) {
	var all sync.WaitGroup
	for i := range instances * workers {
		all.Go(func() {
			every := time.NewTicker(window / limit * instances * workers / 3)
			defer every.Stop()
			for ctx.Err() == nil {
				r := weir.Request{Key: "a", Limit: limit, Duration: window}
				res, err := f.instances[i%instances].Run(context.Background(), &r)
				if !assert.NoError(t, err) {
					return
				}
				if res.Allowed() {
					f.mu.Lock()
					f.admitted[res.ExpiresAt.Round(0).UTC()]++
					f.mu.Unlock()
				}
				<-every.C
			}
		})
	}
	all.Wait()
}

// most is the formula of fallback.New, with what may be under way when primary goes.
const most = limit + (instances-1)*((limit+instances-1)/instances) + instances*workers

// verdict is how far the windows were from the limit.
func (f *fleet) verdict() (windows int, over, worst uint64) {
	for _, n := range f.admitted {
		windows++
		over += n - min(n, limit)
		worst = max(worst, n)
	}
	return windows, over, worst
}

func (f *fleet) outages() (n uint64) {
	for _, i := range f.instances {
		n += i.Stats().Opens
	}
	return n
}

// run has the fleet ask while f breaks things, n times over.
func (f *fleet) run(t *testing.T, n int, episode func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var demand sync.WaitGroup
	demand.Go(func() { f.demand(t, ctx) })
	for range n {
		episode()
	}
	cancel()
	demand.Wait()
}

// bothWays runs with and without the carry-over, each on a server of its own, at once: they mostly wait.
func bothWays(t *testing.T, run func(t *testing.T, carry bool) (over uint64)) (with, without uint64) {
	t.Run("both", func(t *testing.T) {
		for carry, over := range map[bool]*uint64{true: &with, false: &without} {
			t.Run(fmt.Sprint("carry-over ", carry), func(t *testing.T) {
				t.Parallel()
				*over = run(t, carry)
			})
		}
	})
	return with, without
}

// nearer compares what was admitted beyond the limit. In package fallback, where no machine is slow, ten times as much is.
func nearer(t *testing.T, with, without uint64) {
	t.Helper()
	if without < limit {
		t.Skip("the machine is too slow for demand beyond the limit: there is nothing to compare")
	}
	assert.GreaterOrEqual(t, without, 4*max(1, with))
}

// Three instances, and a server that is killed and started again at random. It keeps its counts on disk: what is admitted
// in a window is never over the bound, and far nearer to the limit than without the carry-over.
func TestKillAndRestoreIsBounded(t *testing.T) {
	slow.Test(t)
	episodes := slow.N(30, 30, 100)
	with, without := bothWays(t, func(t *testing.T, carry bool) uint64 {
		b := newBench(t, "--appendonly", "yes", "--appendfsync", "always")
		f := newFleet(t, b.server.Addr, carry)
		rng := rand.New(rand.NewPCG(38, 38))
		f.run(t, episodes, func() {
			b.server.Kill()
			time.Sleep(time.Duration(rng.Int64N(int64(window) / 3)))
			b.server.Restart()
			time.Sleep(time.Duration(rng.Int64N(int64(window) / 3)))
		})
		windows, all, worst := f.verdict()
		t.Logf("carry-over %v: %d episodes, breakers opened %d times, %d windows, %d too many in all, at the worst %d (limit %d, bound %d)",
			carry, episodes, f.outages(), windows, all, worst, limit, most)
		require.GreaterOrEqual(t, 3*f.outages(), uint64(episodes), "the outages were not seen")
		if carry {
			assert.LessOrEqual(t, worst, uint64(most))
		}
		return all
	})
	nearer(t, with, without)
}

// So it is with a server that comes back empty each time: it is told what it had counted.
func TestEmptiedServerIsBounded(t *testing.T) {
	slow.Test(t)
	episodes := slow.N(30, 30, 100)
	with, without := bothWays(t, func(t *testing.T, carry bool) uint64 {
		b := newBench(t)
		f := newFleet(t, b.server.Addr, carry)
		rng := rand.New(rand.NewPCG(38, 39))
		f.run(t, episodes, func() {
			b.server.Kill()
			time.Sleep(time.Duration(rng.Int64N(int64(window) / 3)))
			b.server.Restart()
			time.Sleep(time.Duration(rng.Int64N(int64(window) / 3)))
		})
		windows, all, worst := f.verdict()
		t.Logf("carry-over %v: %d windows, %d too many in all, at the worst %d (limit %d)", carry, windows, all, worst, limit)
		return all
	})
	nearer(t, with, without)
}

// A network that is there for 100 ms and gone for 100 ms.
func TestFlappingNetworkIsBounded(t *testing.T) {
	slow.Test(t)
	hold := time.Duration(slow.N(3, 3, 60)) * time.Second
	b := newBench(t)
	f := newFleet(t, b.proxy.Addr, true)
	f.run(t, int(hold/(200*time.Millisecond)), func() {
		time.Sleep(100 * time.Millisecond)
		b.proxy.Refuse(true)
		time.Sleep(100 * time.Millisecond)
		b.proxy.Refuse(false)
	})
	windows, all, worst := f.verdict()
	t.Logf("%d outages, %d windows, %d too many in all, at the worst %d (limit %d, bound %d)", f.outages(), windows, all, worst, limit, most)
	assert.LessOrEqual(t, worst, uint64(most))
	for i, h := range f.instances {
		// At most one transition for each probe interval, and one more.
		assert.LessOrEqual(t, h.Stats().Opens, uint64(hold/(100*time.Millisecond))+1, "instance %d", i)
	}
}
