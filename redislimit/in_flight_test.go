package redislimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

// place is work in flight.
type place interface {
	Renew(ctx context.Context) (held bool, err error)
	Release(ctx context.Context) error
}

// A place of both stores, which count alike as long as it is renewed in time.
type places [2]place

func (p places) each(t *testing.T, call func(place) error) {
	t.Helper()
	for _, place := range p {
		require.NoError(t, call(place))
	}
}

// In process and on Redis the same work in flight gives the same verdicts: held and released,
// renewed in time, and leases that are given back, or not.
func TestInFlightEqualsThatInProcess(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 123_456_789))
	l, s := counters(t, dial(t, generousOptions(redistest.Start(t).Addr)), "", clock.Now)
	local, remote := l.InFlight(), s.InFlight()
	rnd := rand.New(rand.NewPCG(1, 2))
	const limit, lease = 12, 30 * time.Second
	type returns [2]ops.Return
	var held []places
	var back []returns
	allowed, denied := 0, 0
	equal := func(step int, a, b *weir.Result) bool {
		require.Equal(t, a.State, b.State, "step %d", step)
		require.Equal(t, a.TotalRequests, b.TotalRequests, "step %d", step)
		if !a.ExpiresAt.IsZero() && (a.Allowed() || len(held) == 0) { // else only Redis has a lease for each
			require.True(t, a.ExpiresAt.Equal(b.ExpiresAt), "step %d: %v, %v", step, a.ExpiresAt,
				b.ExpiresAt)
		}
		if a.Allowed() {
			allowed++
		} else {
			denied++
		}
		return a.Allowed()
	}
	for step := range slow.N(1000, 10_000, 1_000_000) {
		clock.Advance(time.Duration(rnd.Int64N(2) * rnd.Int64N(int64(lease/4))))
		for _, p := range held {
			p.each(t, func(p place) error {
				held, err := p.Renew(t.Context())
				assert.True(t, held)
				return err
			})
		}
		r := &weir.Request{Key: "a", Limit: limit, Duration: lease, Cost: rnd.Uint64N(4)}
		switch op := rnd.IntN(10); {
		case op < 3:
			a, mine, errA := ops.Acquire(t.Context(), local, r)
			b, its, errB := ops.Acquire(t.Context(), remote, r)
			require.NoError(t, errA)
			require.NoError(t, errB)
			if equal(step, a, b) {
				held = append(held, places{mine, its})
			}
		case op < 6 && len(held) > 0:
			i := rnd.IntN(len(held))
			held[i].each(t, func(p place) error { return p.Release(t.Context()) })
			held = slices.Delete(held, i, i+1)
		case op < 8:
			a, mine, errA := ops.Admit(t.Context(), local, r)
			b, its, errB := ops.Admit(t.Context(), remote, r)
			require.NoError(t, errA)
			require.NoError(t, errB)
			if equal(step, a, b) && rnd.IntN(3) > 0 { // else it crashes
				back = append(back, returns{mine, its})
			}
		case op < 9 && len(back) > 0: // late, perhaps
			cost := 1 + rnd.Uint64N(3)
			for _, giveBack := range back[0] {
				require.NoError(t, giveBack(t.Context(), cost))
			}
			back = back[1:]
		default:
			a, errA := ops.Peek(t.Context(), local, r)
			b, errB := ops.Peek(t.Context(), remote, r)
			require.NoError(t, errA)
			require.NoError(t, errB)
			equal(step, a, b)
		}
	}
	assert.Positive(t, denied)
	assert.Positive(t, allowed)
}

// greedy is a control: a place that is lost is taken again, whether it fits or not.
type greedy struct {
	place
	of *redislimit.InFlight
	r  weir.Request
}

func (g greedy) Renew(ctx context.Context) (bool, error) {
	held, err := g.place.Renew(ctx)
	if err == nil && !held {
		return true, ops.Charge(ctx, g.of, &g.r)
	}
	return held, err
}

// leases makes random calls on leases that are renewed in time, late or never, and released late or
// never, on a clock that also steps back, and returns how the results differ from the model's: a
// lease counts until it is released, or one Duration after its last renewal, and never are more
// alive than the limit.
func leases(
	t *testing.T, s *redislimit.InFlight, clock *weirtest.Clock, key string, control bool, steps int,
) string {
	const limit, lease = 8, 10 * time.Second
	type modelled struct {
		place place
		cost  uint64
		end   time.Time
	}
	rnd := rand.New(rand.NewPCG(uint64(steps), 5))
	var all []*modelled // those that were dropped included: their end alone counts
	used := func(now time.Time) (used uint64) {
		for _, m := range all {
			if now.Before(m.end) {
				used += m.cost
			}
		}
		return used
	}
	for step := range steps {
		clock.Advance(time.Duration(rnd.Int64N(2) * rnd.Int64N(int64(lease/3))))
		now := clock.Now()
		r := &weir.Request{Key: key, Limit: limit, Duration: lease, Cost: 1 + rnd.Uint64N(3)}
		total := used(now)
		if total > limit {
			return fmt.Sprintf("step %d: %d are alive", step, total)
		}
		pick := func() *modelled {
			if len(all) == 0 {
				return nil
			}
			return all[rnd.IntN(len(all))]
		}
		switch op := rnd.IntN(10); {
		case op < 4:
			res, taken, err := ops.Acquire(t.Context(), s, r)
			require.NoError(t, err)
			fits := total+r.Cost <= limit
			if fits {
				total += r.Cost
			}
			if res.Allowed() != fits || res.TotalRequests != total {
				return fmt.Sprintf("step %d: %v %d, want %v %d", step, res.State, res.TotalRequests, fits,
					total)
			}
			if fits {
				m := &modelled{taken, r.Cost, now.Add(lease)}
				if control {
					m.place = greedy{taken, s, *r}
				}
				all = append(all, m)
			}
		case op < 8:
			m := pick()
			if m == nil || m.place == nil {
				continue
			}
			held, err := m.place.Renew(t.Context())
			require.NoError(t, err)
			want := now.Before(m.end) || total+m.cost <= limit
			if held != want {
				return fmt.Sprintf("step %d: renewed %v, want %v", step, held, want)
			}
			if m.end = now.Add(lease); !want {
				m.end, m.place = time.Time{}, nil
			}
		case op < 9:
			if m := pick(); m != nil && m.place != nil {
				require.NoError(t, m.place.Release(t.Context()))
				m.end, m.place = time.Time{}, nil
			}
		default:
			if m := pick(); m != nil {
				m.place = nil // its process dies
			}
		}
		all = slices.DeleteFunc(all, func(m *modelled) bool {
			return m.place == nil && !now.Before(m.end)
		})
	}
	clock.Advance(lease)
	res, err := ops.Peek(t.Context(), s, &weir.Request{Key: key, Limit: limit, Duration: lease, Cost: limit})
	require.NoError(t, err)
	if !res.Allowed() {
		return "at the end something is held"
	}
	return ""
}

func TestLeasesFollowTheirModel(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 0))
	s := open(t, redistest.Start(t).Addr, redislimit.Config{Now: clock.Now}).InFlight()
	for n := range slow.N(5, 20, 500) {
		require.Empty(t, leases(t, s, clock, fmt.Sprint("key", n), false, 1000+n))
	}
	assert.NotEmpty(t, leases(t, s, clock, "control", true, 1000),
		"a place that was given away must not be taken again")
}

// A renewal and a release whose place the client last saw elsewhere, since an answer was lost.
func TestAPlaceIsFoundAfterALostAnswer(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 0))
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	s := open(t, proxy.Addr, redislimit.Config{Now: clock.Now}).InFlight()
	r := &weir.Request{Key: "a", Limit: 5, Duration: time.Minute, Cost: 3}
	inFlight := func() uint64 {
		res := mustPeek(t, s, &weir.Request{Key: "a", Limit: 1 << 20, Duration: time.Minute})
		return res.TotalRequests - 1
	}
	_, place, err := ops.Acquire(t.Context(), s, r)
	require.NoError(t, err)
	loseAnswer := func(call func() error) {
		var lost atomic.Bool
		proxy.OnCommand(func(command []string) redistest.Action {
			if strings.HasPrefix(strings.ToLower(command[0]), "eval") && !lost.Swap(true) {
				return redistest.LoseReply
			}
			return redistest.Pass
		})
		require.Error(t, call())
		require.True(t, lost.Load())
		proxy.OnCommand(nil)
	}
	for range 3 {
		clock.Advance(40 * time.Second)
		loseAnswer(func() error { _, err := place.Renew(t.Context()); return err })
		require.EqualValues(t, 3, inFlight())
	}
	held, err := place.Renew(t.Context())
	require.NoError(t, err)
	assert.True(t, held)
	assert.EqualValues(t, 3, inFlight())
	clock.Advance(40 * time.Second)
	loseAnswer(func() error { _, err := place.Renew(t.Context()); return err })
	require.NoError(t, place.Release(t.Context()))
	assert.Zero(t, inFlight())
}

// What is refunded is not taken from a place that is held, though both leases end at one instant.
func TestRefundLeavesWhatIsHeld(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 0))
	s := open(t, redistest.Start(t).Addr, redislimit.Config{Now: clock.Now}).InFlight()
	r := &weir.Request{Key: "a", Limit: 5, Duration: time.Minute, Cost: 2}
	held, err := weir.Hold(t.Context(), s, r)
	require.NoError(t, err)
	taken := mustRun(t, s, r)
	for range 2 {
		require.NoError(t, ops.Refund(t.Context(), s, r, taken))
		res := mustPeek(t, s, &weir.Request{Key: "a", Limit: 5, Duration: time.Minute})
		assert.EqualValues(t, 3, res.TotalRequests)
	}
	require.NoError(t, held.Release(t.Context()))
}

// 64 goroutines of several Stores hold streams of random length.
func TestStreamsOnRedis(t *testing.T) {
	addr := redistest.Start(t).Addr
	const limit = 4
	var inside [5]atomic.Int64
	var all sync.WaitGroup
	var next atomic.Int64
	n := int64(slow.N(1000, 5_000, 100_000))
	for g := range 64 {
		all.Go(func() {
			s := open(t, addr, redislimit.Config{}).InFlight()
			for i := next.Add(1); i <= n; i = next.Add(1) {
				key := (int(i) + g) % len(inside)
				h, err := weir.HoldWait(t.Context(), s,
					&weir.Request{Key: fmt.Sprint(key), Limit: limit, Duration: time.Minute})
				if !assert.NoError(t, err) {
					return
				}
				assert.LessOrEqual(t, inside[key].Add(1), int64(limit))
				time.Sleep(rand.N(500 * time.Microsecond)) // the work in flight
				inside[key].Add(-1)
				assert.NoError(t, h.Release(t.Context()))
			}
		})
	}
	all.Wait()
	s := open(t, addr, redislimit.Config{}).InFlight()
	for key := range inside {
		res, err := ops.Peek(t.Context(), s, &weir.Request{Key: fmt.Sprint(key), Limit: limit, Duration: time.Minute})
		require.NoError(t, err)
		assert.EqualValues(t, 1, res.TotalRequests, "nothing is held")
	}
}

const (
	holderLimit = 9
	holderLease = 3 * time.Second
)

func holderRequest() *weir.Request {
	return &weir.Request{Key: "a", Limit: holderLimit, Duration: holderLease}
}

// holdUntilKilled holds three places.
func holdUntilKilled(addr string) {
	store, err := redislimit.New(redis.NewClient(generousOptions(addr)),
		redislimit.Config{Timeout: generous})
	if err != nil {
		panic(err)
	}
	for range 3 {
		if _, err := weir.Hold(context.Background(), store.InFlight(), holderRequest()); err != nil {
			panic(err)
		}
	}
	fmt.Println("ready")
	select {}
}

// Three processes hold three places each. One is killed: its places are free again one Duration
// after it last renewed them, and no sooner, and those of the others stay held.
func TestPlacesOfAKilledProcessComeBackAfterOneLease(t *testing.T) {
	slow.Test(t)
	server := redistest.Start(t)
	s := open(t, server.Addr, redislimit.Config{}).InFlight()
	holders := make([]*exec.Cmd, 3)
	for i := range holders {
		child, err := startChild("hold", server.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
		holders[i] = child
	}
	now := func() time.Time {
		at, err := server.Client().Time(t.Context()).Result()
		require.NoError(t, err)
		return at
	}
	time.Sleep(2 * holderLease) // nothing is free as long as all live
	denied := mustRun(t, s, holderRequest())
	require.False(t, denied.Allowed())

	require.NoError(t, holders[0].Process.Kill())
	_ = holders[0].Wait()
	killed := now()
	probe := holderRequest()
	probe.Cost = 3
	var free *weir.Result
	var last time.Time // the end that the last denial named
	for free == nil {
		res := mustRun(t, s, probe)
		require.Less(t, now().Sub(killed), time.Minute, "they must come back")
		if res.Allowed() {
			free = res
		} else {
			last = res.ExpiresAt
			time.Sleep(20 * time.Millisecond) // between two looks
		}
	}
	admitted := free.ExpiresAt.Add(-holderLease) // by the server's clock, as all here
	assert.False(t, admitted.Before(last), "no sooner than its leases end")
	assert.False(t, last.After(killed.Add(holderLease)), "one lease after its last renewal")
	assert.EqualValues(t, holderLimit, free.TotalRequests, "the others hold theirs")
	one := mustRun(t, s, holderRequest())
	assert.False(t, one.Allowed())
}
