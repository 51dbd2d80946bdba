package redislimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

// pair is a strategy and its counterpart.
type pair struct {
	name   string
	local  strategy
	remote strategy
	fixed  []weir.Tier // the limits, if they are not the request's

	entries bool // both list their entries
}

// pairs makes them all, on one clock.
func pairs(t *testing.T, c redis.UniversalClient, prefix string, now func() time.Time) []pair {
	l, err := weir.New(weir.Config{Now: now})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	s, err := redislimit.New(c, redislimit.Config{Prefix: prefix, Now: now, Timeout: generous})
	require.NoError(t, err)
	tiers := []weir.Tier{{Limit: 30, Duration: time.Second}, {Limit: 50, Duration: 10 * time.Second}, {Limit: 70, Duration: 15 * time.Second}}
	localTiers, err := l.Tiers(tiers...)
	require.NoError(t, err)
	remoteTiers, err := s.Tiers(tiers...)
	require.NoError(t, err)
	return []pair{
		{name: "FixedWindow", local: l.FixedWindow(), remote: s.FixedWindow()},
		{name: "SlidingWindow", local: l.SlidingWindow(), remote: s.SlidingWindow()},
		{name: "SlidingLog", local: l.SlidingLog(), remote: s.SlidingLog()},
		{name: "SortedSet", local: l.SlidingLog(), remote: redislimit.SortedSet(s)},
		{name: "TokenBucket", local: l.TokenBucket(0), remote: s.TokenBucket(0)},
		{name: "TokenBucket of 5", local: l.TokenBucket(5), remote: s.TokenBucket(5)},
		{name: "Counter", local: l.Counter(), remote: s.Counter()},
		{name: "List", local: l.List(), remote: s.List(), entries: true},
		{name: "Tiers", local: localTiers, remote: remoteTiers, fixed: tiers},
	}
}

// trace is one random history: a few callers, one duration, limits and costs of one order of
// magnitude.
type trace struct {
	random   *rand.Rand
	clock    *weirtest.Clock
	duration time.Duration
	limit    uint64
	taken    map[string]*weir.Result // the last admission of each caller
	asked    map[string]weir.Request
	log      []event
}

// event is one step, to be told of when a later one fails. Seed's results are what was to be
// counted.
type event struct {
	at         time.Time
	op         string
	r          weir.Request
	a, b       *weir.Result
	errA, errB error
}

func (e event) String() string {
	return fmt.Sprintf("\n%v %s %+v: local %v, %v; redis %v, %v", e.at.Format(time.RFC3339Nano), e.op, e.r, e.a, e.errA, e.b, e.errB)
}

func (x *trace) request() *weir.Request {
	r := &weir.Request{
		Key:      []string{"a", "b", "c"}[x.random.IntN(3)],
		Limit:    x.limit,
		Duration: x.duration,
		Cost:     x.random.Uint64N(x.limit/4 + 2),
		Meta:     []string{"", "m"}[x.random.IntN(2)],
	}
	switch x.random.IntN(20) {
	case 0:
		r.Limit = x.random.Uint64N(2*x.limit + 1)
	case 1:
		r.Cost = x.limit + x.random.Uint64N(3)
	case 2:
		r.Cost = 0
	}
	return r
}

// move moves the clock: a little, a lot, by no whole millisecond, or to where something happens.
func (x *trace) move(last *weir.Result) {
	d := x.duration
	switch x.random.IntN(12) {
	case 0:
		x.clock.Advance(time.Duration(x.random.Int64N(int64(2*d) + 1)))
	case 1:
		x.clock.Advance(time.Duration(x.random.Int64N(int64(d)/4 + 1)).Truncate(time.Millisecond))
	case 2:
		x.clock.Advance(time.Duration(x.random.IntN(3)))
	case 3, 4:
		if last != nil && last.ExpiresAt.After(x.clock.Now()) && last.ExpiresAt.Sub(x.clock.Now()) <= 3*d {
			x.clock.Set(last.ExpiresAt.Add(-time.Duration(x.random.IntN(2))))
		}
	default:
		x.clock.Advance(time.Duration(x.random.Int64N(int64(d)/50 + 2)))
	}
}

func same(a, b *weir.Result) bool {
	return a.State == b.State && a.TotalRequests == b.TotalRequests && a.ExpiresAt.Equal(b.ExpiresAt)
}

// sameEntries compares the entries of two logs.
func sameEntries(ctx context.Context, p pair, r *weir.Request) bool {
	type lister interface {
		Entries(ctx context.Context, r *weir.Request) ([]weir.Entry, error)
	}
	a, errA := p.local.(lister).Entries(ctx, r)
	b, errB := p.remote.(lister).Entries(ctx, r)
	return errA == nil && errB == nil && slices.EqualFunc(a, b, func(a, b weir.Entry) bool {
		return a.At.Equal(b.At) && a.Cost == b.Cost && a.Meta == b.Meta
	})
}

// step does one thing to both and returns what they said, and the reason if they differ.
func (x *trace) step(p pair) (*weir.Result, string) {
	ctx, r := context.Background(), x.request()
	var a, b *weir.Result
	var errA, errB error
	op := "Run"
	switch n := x.random.IntN(40); {
	case n < 28:
		a, errA = p.local.Run(ctx, r)
		b, errB = p.remote.Run(ctx, r)
		if errA == nil && a.Allowed() {
			x.taken[r.Key], x.asked[r.Key] = a, *r
		}
	case n < 33:
		op = "Peek"
		a, errA = p.local.Peek(ctx, r)
		b, errB = p.remote.Peek(ctx, r)
	case n < 35:
		taken, ok := x.taken[r.Key]
		if !ok {
			return nil, ""
		}
		q := x.asked[r.Key]
		op, r = "Refund", &q
		errA, errB = p.local.Refund(ctx, r, taken), p.remote.Refund(ctx, r, taken)
	case n < 37:
		op = "Charge"
		errA, errB = p.local.Charge(ctx, r), p.remote.Charge(ctx, r)
	case n < 39:
		counted := &weir.Result{TotalRequests: x.random.Uint64N(x.limit + 1), ExpiresAt: x.clock.Now().Add(time.Duration(x.random.Int64N(int64(x.duration))) - x.duration/4)}
		op, a, b = "Seed", counted, counted
		errA, errB = p.local.Seed(ctx, r, counted), p.remote.Seed(ctx, r, counted)
	case x.random.IntN(20) == 0:
		op = "Reset"
		errA, errB = p.local.Reset(ctx, r), p.remote.Reset(ctx, r)
	}
	if len(x.log) == 25 {
		x.log = append(x.log[:0], x.log[1:]...)
	}
	x.log = append(x.log, event{x.clock.Now(), op, *r, a, b, errA, errB})
	if n := x.random.IntN(20); n == 0 && p.entries && !sameEntries(ctx, p, r) {
		return a, "their entries differ"
	}
	if (errA == nil) != (errB == nil) || a != nil && b != nil && !same(a, b) {
		return a, "they differ"
	}
	return a, ""
}

// On one clock and one random trace, a local strategy and its counterpart give the same Results,
// bit for bit.
func TestDifferential(t *testing.T) {
	// Larger hashes are in no order.
	server := redistest.Start(t, "--hash-max-ziplist-entries", "4")
	traces, steps := 20, slow.N(50, 250, 50_000) // in make nightly 10^6 for each algorithm
	starts := []time.Time{
		time.Unix(1_700_000_000, 123_456_789), time.Unix(0, 0), time.Unix(-3, 999_999_999), time.Date(1911, 3, 1, 0, 0, 0, 1, time.UTC),
		time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	durations := []time.Duration{time.Minute, time.Second, 7 * time.Millisecond, time.Millisecond, 24*time.Hour + 13*time.Millisecond, 10 * 24 * time.Hour}
	limits := []uint64{10, 1, 3, 100, 1_000_003, 1<<46 - 3}
	o := redislimit.Options(server.Addr)
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = generous, generous, generous
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	for i, p := range pairs(t, client, "names", time.Now) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			together := newBatching(t.Context(), client)
			var all sync.WaitGroup // The traces have clocks and keys of their own, and mostly wait for the server.
			for n := range traces {
				clock := weirtest.NewClock(starts[n%len(starts)])
				p := pairs(t, together, fmt.Sprintf("trace %d %d:", n, i), clock.Now)[i]
				random := rand.New(rand.NewPCG(uint64(n), uint64(i)))
				x := &trace{
					random: random, clock: clock, duration: durations[n%len(durations)], limit: limits[random.IntN(len(limits))],
					taken: map[string]*weir.Result{}, asked: map[string]weir.Request{},
				}
				if p.fixed != nil {
					x.duration, x.limit = p.fixed[random.IntN(len(p.fixed))].Duration, p.fixed[0].Limit
				}
				all.Go(func() { x.play(t, p, steps) })
			}
			all.Wait()
		})
	}
}

// play makes so many steps, and fails with the last of them if the two differ.
func (x *trace) play(t *testing.T, p pair, steps int) {
	var last *weir.Result
	for step := range steps {
		x.move(last)
		res, wrong := x.step(p)
		if wrong != "" {
			assert.Fail(t, wrong, "step %d:%v", step, x.log)
			return
		}
		if res != nil {
			last = res
		}
	}
}
