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
	"github.com/weirgo/weir/weirtest"
)

const (
	instances = 3
	workers   = 2 // of each instance
	limit     = 300
	window    = time.Minute                       // of a clock that each round advances, so that every machine sees the same demand
	rounds    = 3 * limit / (instances * workers) // of a window: three times the limit is asked for
)

// bare is a primary with none of the optional interfaces.
type bare struct{ weir.Strategy }

// fleet is instances of one service on one server, and what they admitted.
type fleet struct {
	clock     *weirtest.Clock
	instances []*fallback.Fallback

	mu       sync.Mutex
	admitted map[time.Time]uint64 // guarded by mu; by the end of the window
}

func newFleet(t *testing.T, addr string, carry bool) *fleet {
	f := &fleet{clock: weirtest.NewClock(time.Unix(1_700_000_040, 0)), admitted: map[time.Time]uint64{}}
	const patience = 10 * time.Second // only a fault that fails at once is to count, however slow the machine
	for range instances {
		l, err := weir.New(weir.Config{Now: f.clock.Now})
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		c := redis.NewClient(redislimit.Options(addr))
		t.Cleanup(func() { _ = c.Close() })
		s, err := redislimit.New(c, redislimit.Config{Now: f.clock.Now, Timeout: patience})
		require.NoError(t, err)
		primary := weir.Strategy(s.FixedWindow())
		if !carry {
			primary = bare{primary}
		}
		h, err := fallback.New(primary, l.FixedWindow(), fallback.Config{
			Instances: instances, Now: f.clock.Now, IsDown: isDown,
			MinCalls: 3, Stall: -1, ProbeInterval: window / 20, Timeout: patience, ProbeTimeout: patience,
		})
		require.NoError(t, err)
		f.instances = append(f.instances, h)
	}
	return f
}

// ask has every worker ask in so many rounds, one after the other. Probes end within their rounds.
func (f *fleet) ask(t *testing.T, n int) {
	for range n {
		var all sync.WaitGroup
		for i := range instances * workers {
			all.Go(func() {
				r := weir.Request{Key: "a", Limit: limit, Duration: window}
				res, err := f.instances[i%instances].Run(context.Background(), &r)
				if !assert.NoError(t, err) || !res.Allowed() {
					return
				}
				f.mu.Lock()
				f.admitted[res.ExpiresAt.Round(0).UTC()]++
				f.mu.Unlock()
			})
		}
		all.Wait()
		for _, i := range f.instances {
			for i.Stats().State == fallback.HalfOpen {
				time.Sleep(100 * time.Microsecond)
			}
		}
		f.clock.Advance(window / rounds)
	}
}

// outages cuts primary off n times, each time while requests are under way, and mends it after a
// part of a window.
func (f *fleet) outages(t *testing.T, n int, cut, mend func()) {
	rng := rand.New(rand.NewPCG(38, 38))
	for range n {
		var done sync.WaitGroup
		done.Go(cut)
		f.ask(t, 1)
		done.Wait()
		f.ask(t, rng.IntN(rounds/3))
		mend()
		f.ask(t, 1+rng.IntN(rounds/3))
	}
}

// most is the formula of fallback.New, with what may be under way when primary goes.
const most = limit + (instances-1)*((limit+instances-1)/instances) + instances*workers

// verdict returns how much was admitted beyond the limit, in all, and the most of a window.
func (f *fleet) verdict(t *testing.T) (over, worst uint64) {
	opens := uint64(0)
	for _, i := range f.instances {
		opens += i.Stats().Opens
	}
	for _, n := range f.admitted {
		over += n - min(n, limit)
		worst = max(worst, n)
	}
	t.Logf("breakers opened %d times, %d windows, %d too many in all, at the worst %d (limit %d, bound %d)",
		opens, len(f.admitted), over, worst, limit, most)
	return over, worst
}

// killed has a fleet go through episodes in which its server is killed and started again, and
// returns the verdict.
func killed(t *testing.T, carry bool, episodes int, args ...string) (over, worst uint64) {
	t.Run(fmt.Sprint("carry-over ", carry), func(t *testing.T) {
		b := newBench(t, args...)
		f := newFleet(t, b.server.Addr, carry)
		f.outages(t, episodes, b.server.Kill, b.server.Restart)
		over, worst = f.verdict(t)
		for _, i := range f.instances {
			assert.GreaterOrEqual(t, i.Stats().Opens, uint64(episodes/2), "the outages were not seen")
		}
	})
	return over, worst
}

// Three instances, and a server that is killed and started again at random. It keeps its counts on
// disk: what is admitted in a window is never over the bound, and ten times nearer to the limit
// than without the carry-over.
func TestKillAndRestoreIsBounded(t *testing.T) {
	slow.Test(t)
	episodes := slow.N(20, 20, 100)
	durable := []string{"--appendonly", "yes", "--appendfsync", "always"}
	with, worst := killed(t, true, episodes, durable...)
	assert.LessOrEqual(t, worst, uint64(most))
	without, worst := killed(t, false, episodes, durable...)
	assert.GreaterOrEqual(t, without, 10*max(1, with))
	assert.Greater(t, worst, uint64(most), "the control: nothing else keeps the bound")
}

// So it is with a server that comes back empty each time: it is seeded with what it had counted.
func TestEmptiedServerIsBounded(t *testing.T) {
	slow.Test(t)
	episodes := slow.N(20, 20, 100)
	with, _ := killed(t, true, episodes)
	without, _ := killed(t, false, episodes)
	assert.GreaterOrEqual(t, without, 10*max(1, with))
}

// A network that comes and goes opens each breaker at most once each time.
func TestFlappingNetworkIsBounded(t *testing.T) {
	slow.Test(t)
	episodes := slow.N(20, 20, 300)
	b := newBench(t)
	f := newFleet(t, b.proxy.Addr, true)
	f.outages(t, episodes, func() { b.proxy.Refuse(true) }, func() { b.proxy.Refuse(false) })
	_, worst := f.verdict(t)
	assert.LessOrEqual(t, worst, uint64(most))
	for i, h := range f.instances {
		assert.LessOrEqual(t, h.Stats().Opens, uint64(episodes), "instance %d", i)
	}
}
