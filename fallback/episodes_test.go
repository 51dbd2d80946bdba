package fallback_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// network connects the instances to their server. It can be down, lose replies and be slow, all at
// once, and records what the server does.
type network struct {
	*server
	mu    sync.Mutex
	down  bool          // guarded by mu, as are the fields below
	loses float64       // the fraction of replies that are lost
	delay time.Duration // before the server is reached; contexts do not shorten it
	rng   *rand.Rand
	hits  map[string]uint64 // admitted by the server, by key
	late  map[string]uint64 // the part of it whose answer came after the caller had left
}

// pass makes one call. It fails if the server is down or the reply is lost.
func (n *network) pass(c call) (*weir.Result, error) {
	n.mu.Lock()
	delay, down, lost := n.delay, n.down, n.rng.Float64() < n.loses
	n.mu.Unlock()
	time.Sleep(delay) // in a bubble
	if down {
		return nil, errDown
	}
	res, err := c.do()
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.takes() && err == nil && res.Allowed() {
		n.hits[c.op.Key] += max(1, c.op.Cost)
		if !lost && c.ctx.Err() != nil {
			n.late[c.op.Key] += max(1, c.op.Cost)
		}
	}
	if lost {
		err = errors.Join(err, errDown)
	}
	return res, err
}

// member is an instance and the requests that it admitted locally.
type member struct {
	*fallback.Fallback
	local    map[string]uint64 // cost admitted by key, less what was refunded at once
	smallest int               // the smallest number of instances it used for its share
}

// findings counts the violations of one or more episodes.
type findings struct {
	// cost admitted by primary over the limit, and by an instance over its share
	overPrimary, overShare uint64
	// cost charged but not admitted by local, and admitted by local but never charged
	overcharged, uncharged uint64
	late                   uint64 // cost that primary counted, and answered after local had decided
	errors                 int
	outages                uint64
}

func (a *findings) add(b findings) {
	a.overPrimary, a.overShare = a.overPrimary+b.overPrimary, a.overShare+b.overShare
	a.overcharged, a.uncharged = a.overcharged+b.overcharged, a.uncharged+b.uncharged
	a.errors, a.outages, a.late = a.errors+b.errors, a.outages+b.outages, a.late+b.late
}

const (
	plainKey  = "plain"    // neither refunded nor reset, so charges are exact
	refundKey = "refunded" // refunded at random
	resetKey  = "reset"    // reset at random
	manyLimit = 120
)

// runEpisode runs one episode. The network fails at random while instances join and leave and make
// requests, refunds and resets. Then the network recovers, and every key is used on every instance.
func runEpisode(
	t *testing.T, seed uint64, to func(*network) weir.Strategy, shares bool,
) (out findings) {
	rng := rand.New(rand.NewPCG(seed, 1000))
	net := &network{
		server: newServer(func() weir.Strategy { return local(t) }),
		rng:    rand.New(rand.NewPCG(seed, 2)),
		hits:   map[string]uint64{}, late: map[string]uint64{},
	}
	net.passes = net.pass
	var all, present []*member
	var size atomic.Int64 // the length of present
	number := func() int {
		if !shares {
			return 1
		}
		return int(max(1, size.Load()))
	}
	join := func() {
		f := newFallback(t, to(net), local(t), fallback.Config{
			InstancesFunc: number, MinCalls: 1 + rng.IntN(4), ProbeInterval: 100 * time.Millisecond,
			Stall: -1,
		})
		m := &member{f, map[string]uint64{}, 1 << 30}
		all, present = append(all, m), append(present, m)
		size.Store(int64(len(present)))
	}
	for range 3 {
		join()
	}
	request := func() *weir.Request {
		key := []string{plainKey, plainKey, refundKey, resetKey}[rng.IntN(4)]
		return &weir.Request{Key: key, Limit: manyLimit, Duration: 24 * time.Hour,
			Cost: uint64(1 + rng.IntN(3))}
	}
	ask := func(m *member, r *weir.Request) {
		for _, m := range present {
			m.smallest = min(m.smallest, len(present))
		}
		res, by, err := runSource(t.Context(), m.Fallback, r)
		if err != nil {
			out.errors++
			return
		}
		if by == weir.FromLocal && res.Allowed() {
			m.local[r.Key] += r.Cost
		}
		if r.Key == refundKey && res.Allowed() && rng.IntN(4) == 0 {
			if ops.Refund(t.Context(), m.Fallback, r, res) != nil {
				out.errors++
			}
		}
	}
	for range 150 {
		time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
		switch rng.IntN(12) {
		case 0:
			net.mu.Lock()
			net.down = !net.down
			net.mu.Unlock()
		case 1:
			net.mu.Lock()
			net.loses = []float64{0, 0, 0.3, 1}[rng.IntN(4)]
			net.mu.Unlock()
		case 2:
			net.mu.Lock()
			net.delay = []time.Duration{0, 0, 20 * time.Millisecond, 80 * time.Millisecond,
				300 * time.Millisecond}[rng.IntN(5)]
			net.mu.Unlock()
		case 3:
			if len(present) < 5 {
				join()
			} else {
				present = present[1:]
				size.Store(int64(len(present)))
			}
		case 4:
			r := request()
			r.Key = resetKey
			if ops.Reset(t.Context(), present[0].Fallback, r) != nil {
				out.errors++
			}
		}
		ask(present[rng.IntN(len(present))], request())
	}
	net.mu.Lock()
	net.down, net.loses, net.delay = false, 0, 0
	net.mu.Unlock()
	time.Sleep(time.Second) // requests in flight arrive
	for _, m := range all {
		for _, key := range []string{plainKey, refundKey} {
			for {
				_, by, err := runSource(t.Context(), m.Fallback,
					&weir.Request{Key: key, Limit: manyLimit, Duration: 24 * time.Hour,
						Cost: manyLimit + 1})
				if err != nil {
					out.errors++
				}
				if by == weir.FromPrimary {
					break
				}
				time.Sleep(150 * time.Millisecond)
			}
		}
		out.outages += m.Stats().Opens
	}
	time.Sleep(time.Second)
	local := map[string]uint64{}
	for _, m := range all {
		for key, n := range m.local {
			local[key] += n
			// A reset renews a share, and a refund returns part of it.
			if share := uint64((manyLimit-1)/m.smallest + 1); key == plainKey {
				out.overShare += n - min(n, share)
			}
		}
	}
	net.mu.Lock()
	defer net.mu.Unlock()
	out.overPrimary = net.hits[plainKey] - min(net.hits[plainKey], manyLimit)
	for key, n := range net.charged {
		out.overcharged += n - min(n, local[key])
	}
	out.uncharged = local[plainKey] - min(local[plainKey], net.charged[plainKey]+net.late[plainKey])
	out.late = net.late[plainKey]
	return out
}

// episodesOf runs n episodes, each in its own bubble, and returns their findings and the number of
// goroutines that remain.
func episodesOf(
	t *testing.T, n int, to func(*network) weir.Strategy, shares bool,
) (all findings, left int) {
	before := runtime.NumGoroutine()
	for seed := range uint64(n) {
		synctest.Test(t, func(t *testing.T) { all.add(runEpisode(t, seed, to, shares)) })
	}
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before &&
		time.Now().Before(end); {
		time.Sleep(time.Millisecond) // the goroutines of a bubble end shortly after it
	}
	return all, runtime.NumGoroutine() - before
}

func direct(n *network) weir.Strategy { return n.server }

// In many random episodes primary admits at most the limit, and each instance at most its share in
// addition. Every debt of a key that is used again is charged exactly once, but for those that
// primary turns out to have counted.
func TestRandomEpisodes(t *testing.T) {
	all, left := episodesOf(t, slow.N(16, 250, 10_000), direct, true)
	t.Logf("%+v", all)
	assert.Zero(t, all.overPrimary)
	assert.Zero(t, all.overShare)
	assert.Zero(t, all.overcharged)
	assert.Zero(t, all.uncharged)
	assert.Zero(t, all.errors)
	assert.LessOrEqual(t, left, 0)
	assert.Greater(t, all.outages, uint64(slow.N(16, 250, 10_000)))
}

// forgetful returns a server that drops all debts.
func forgetful(s weir.Strategy) weir.Strategy {
	return newAround(s, func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
		b := op.Backlog
		op.Backlog = nil
		next(ctx, op)
		op.Backlog = b
	})
}

// Negative controls: each check rejects the fault that it is meant to find.
func TestRandomEpisodesControls(t *testing.T) {
	for name, row := range map[string]struct {
		to     func(*network) weir.Strategy
		shares bool
		found  func(findings) uint64
	}{
		"every instance uses the whole limit": {direct, false, func(f findings) uint64 {
			return f.overShare
		}},
		"charges are repeated": {
			func(n *network) weir.Strategy { return chargingOnly(n.server) }, true,
			func(f findings) uint64 { return f.overcharged },
		},
		"debts are dropped": {func(n *network) weir.Strategy { return forgetful(n.server) }, true,
			func(f findings) uint64 { return f.uncharged }},
	} {
		t.Run(name, func(t *testing.T) {
			all, _ := episodesOf(t, 15, row.to, row.shares)
			t.Logf("%+v", all)
			assert.Positive(t, row.found(all))
		})
	}
	t.Run("a goroutine remains", func(t *testing.T) {
		for last := time.Now().Add(10 * time.Second); ; {
			before, end := runtime.NumGoroutine(), make(chan struct{})
			go func() { <-end }()
			left := runtime.NumGoroutine() - before
			close(end)
			if left == 1 {
				return
			}
			require.True(t, time.Now().Before(last), "%d remain", left)
			time.Sleep(time.Millisecond) // the goroutines of a bubble end shortly after it
		}
	})
}
