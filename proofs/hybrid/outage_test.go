package hybrid_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/weirtest"
)

const (
	instances = 3
	workers   = 2 // of each instance
	limit     = 300
	// Of a virtual clock that advances with each round, so the load does not depend on the machine.
	window = time.Minute
	// Rounds in a window; they make three times as many requests as the limit.
	rounds = 3 * limit / (instances * workers)
)

// bare is a primary with Run alone.
type bare struct{ weir.Strategy }

// fleet is a set of instances with one server, and the requests they admitted.
type fleet struct {
	clock     *weirtest.Clock
	instances []*fallback.Fallback

	mu       sync.Mutex
	admitted map[time.Time]uint64 // guarded by mu; by the end of the window
}

func newFleet(t *testing.T, addr string, reconciles bool) *fleet {
	f := &fleet{clock: weirtest.NewClock(time.Unix(1_700_000_040, 0)),
		admitted: map[time.Time]uint64{}}
	const timeout = 10 * time.Second // slow machines must not cause failures
	for range instances {
		l := newLimiter(t, f.clock.Now)
		s := storeAt(t, addr, redislimit.Config{Now: f.clock.Now, Timeout: timeout})
		primary := weir.Strategy(s.FixedWindow())
		if !reconciles {
			primary = bare{primary}
		}
		h := newFallback(t, primary, l.FixedWindow(), fallback.Config{
			Instances: instances, Now: f.clock.Now, IsDown: isDown,
			MinCalls: 3, Stall: -1, ProbeInterval: window / 20, Timeout: timeout, ProbeTimeout: timeout,
		})
		f.instances = append(f.instances, h)
	}
	return f
}

// ask makes n rounds of requests, one from every worker. Probes end within their rounds.
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
				time.Sleep(100 * time.Microsecond) // between two looks
			}
		}
		f.clock.Advance(window / rounds)
	}
}

// outages interrupts primary n times while requests are in flight, and repairs it after part of a
// window.
func (f *fleet) outages(t *testing.T, n int, cut, repair func()) {
	rng := rand.New(rand.NewPCG(38, 38))
	for range n {
		var done sync.WaitGroup
		done.Go(cut)
		f.ask(t, 1)
		done.Wait()
		f.ask(t, rng.IntN(rounds/3))
		repair()
		f.ask(t, 1+rng.IntN(rounds/3))
	}
}

// most is the bound documented for fallback.New, plus the requests that may be in flight when
// primary fails.
const most = limit + (instances-1)*((limit+instances-1)/instances) + instances*workers

// verdict returns the cost admitted over the limit in total, and the most admitted in one window.
func (f *fleet) verdict(t *testing.T) (over, worst uint64) {
	opens := uint64(0)
	for _, i := range f.instances {
		opens += i.Stats().Opens
	}
	for _, n := range f.admitted {
		over += n - min(n, limit)
		worst = max(worst, n)
	}
	t.Logf(
		"breakers opened %d times, %d windows, %d over the limit in total, at most %d in a window "+
			"(limit %d, "+
			"bound %d)",
		opens, len(f.admitted), over, worst, limit, most)
	return over, worst
}

// killed runs a fleet while its server is killed and restarted n times, and returns the verdict.
func killed(t *testing.T, reconciles bool, episodes int, args ...string) (over, worst uint64) {
	t.Run(fmt.Sprint("reconciliation ", reconciles), func(t *testing.T) {
		b := newBench(t, args...)
		f := newFleet(t, b.server.Addr, reconciles)
		f.outages(t, episodes, b.server.Kill, b.server.Restart)
		over, worst = f.verdict(t)
		for _, i := range f.instances {
			assert.GreaterOrEqual(t, i.Stats().Opens, uint64(episodes/2), "too few outages were detected")
		}
	})
	return over, worst
}

// With a server that is killed and restarted at random and persists its counts, no window exceeds
// the bound, and the excess over the limit is at most a tenth of that without reconciliation.
func TestKillAndRestoreIsBounded(t *testing.T) {
	slow.Test(t)
	episodes := slow.N(20, 20, 100)
	durable := []string{"--appendonly", "yes", "--appendfsync", "always"}
	with, worst := killed(t, true, episodes, durable...)
	assert.LessOrEqual(t, worst, uint64(most))
	without, worst := killed(t, false, episodes, durable...)
	assert.GreaterOrEqual(t, without, 10*max(1, with))
	assert.Greater(t, worst, uint64(most), "the control: without reconciliation the bound is exceeded")
}

// The same holds for a server that restarts without its counts, as it is seeded with them.
func TestEmptiedServerIsBounded(t *testing.T) {
	slow.Test(t)
	episodes := slow.N(20, 20, 100)
	with, _ := killed(t, true, episodes)
	without, _ := killed(t, false, episodes)
	assert.GreaterOrEqual(t, without, 10*max(1, with))
}

// An unreliable network opens each breaker at most once for each interruption.
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
