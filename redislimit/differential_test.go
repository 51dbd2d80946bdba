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
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

// pair is a local strategy and its Redis counterpart.
type pair struct {
	name   string
	local  weir.Counter
	remote weir.Counter
	fixed  []weir.Tier   // the limits of Tiers, which ignore the request's
	length time.Duration // of a Calendar: the clock moves by parts of it
	start  time.Time     // of half of its traces

	entries bool // both have Entries
}

// counters returns a Limiter and a Store with the same clock.
func counters(t *testing.T, c redis.UniversalClient, prefix string,
	now func() time.Time) (*weir.Limiter, *redislimit.Store) {
	l, err := weir.New(weir.Config{Now: now})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l, storeOn(t, c, redislimit.Config{Prefix: prefix, Now: now, Timeout: generous,
		AllowUnsafeClient: true})
}

// pairs returns a pair of each kind with the same clock.
func pairs(t *testing.T, c redis.UniversalClient, prefix string, now func() time.Time) []pair {
	l, s := counters(t, c, prefix, now)
	return append(plainPairs(l, s),
		tiersPair(t, l, s, "Tiers", tier(30, 1), tier(50, 10), tier(70, 15)))
}

// tierOrders returns pairs of Tiers in various orders. The limits of the last two are so low that
// tiers often have equal room, and that costs often exceed only some of them.
func tierOrders(t *testing.T, c redis.UniversalClient, prefix string, now func() time.Time) []pair {
	l, s := counters(t, c, prefix, now)
	return []pair{
		tiersPair(t, l, s, "Tiers with equal limits", tier(30, 15), tier(30, 1), tier(30, 10)),
		tiersPair(t, l, s, "Tiers with low limits", tier(2, 1), tier(5, 4), tier(3, 2), tier(4, 3)),
		tiersPair(t, l, s, "Tiers with falling limits", tier(4, 4), tier(3, 2), tier(2, 1)),
		finer(tiersPair(t, l, s, "Tiers with a resolution", tier(4, 4), tier(3, 2)), time.Second),
	}
}

// finer returns a pair with a resolution.
func finer(p pair, d time.Duration) pair {
	p.local = p.local.(*weir.Tiers).Resolution(d)
	p.remote = p.remote.(*redislimit.Tiers).Resolution(d)
	return p
}

func tier(limit uint64, seconds time.Duration) weir.Tier {
	return weir.Tier{Limit: limit, Duration: seconds * time.Second}
}

func tiersPair(
	t *testing.T, l *weir.Limiter, s *redislimit.Store, name string, tiers ...weir.Tier,
) pair {
	local := l.Tiers(tiers...)
	remote := s.Tiers(tiers...)
	return pair{name: name, local: local, remote: remote, fixed: tiers}
}

func plainPairs(l *weir.Limiter, s *redislimit.Store) []pair {
	return []pair{
		{name: "FixedWindow", local: l.FixedWindow(), remote: s.FixedWindow()},
		{name: "SlidingWindow", local: l.SlidingWindow(), remote: s.SlidingWindow()},
		{name: "SlidingLog", local: l.SlidingLog(), remote: s.SlidingLog(), entries: true},
		{name: "InFlight", local: l.InFlight(), remote: s.InFlight()},
		{name: "SortedSet", local: l.SlidingLog(), remote: redislimit.SortedSet(s)},
		{name: "TokenBucket", local: l.TokenBucket(0), remote: s.TokenBucket(0)},
		{name: "TokenBucket of 5", local: l.TokenBucket(5), remote: s.TokenBucket(5)},
		{name: "Counter", local: l.Counter(), remote: s.Counter()},
		{name: "List", local: l.List(), remote: s.List(), entries: true},
	}
}

// calendarPairs returns pairs of Calendars of each unit, in zones whose clocks are set by half an
// hour, or at midnight, or that have left out a day.
func calendarPairs(
	t *testing.T, c redis.UniversalClient, prefix string, now func() time.Time,
) (all []pair) {
	l, s := counters(t, c, prefix, now)
	const day = 24 * time.Hour
	for _, of := range []struct {
		unit   weir.CalendarUnit
		zone   string
		length time.Duration
		start  time.Time // soon the clock is set
	}{
		{weir.Hour, "Australia/Lord_Howe", time.Hour, time.Date(2026, 10, 3, 14, 0, 0, 0, time.UTC)},
		{weir.Day, "America/Sao_Paulo", day, time.Date(2018, 11, 3, 0, 0, 0, 0, time.UTC)},
		{weir.Day.At(150 * time.Minute), "Europe/Berlin", day, time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)},
		{weir.Week.From(7), "Pacific/Apia", 7 * day, time.Date(2011, 12, 20, 0, 0, 0, 0, time.UTC)},
		{weir.Month.From(31), "Europe/Berlin", 30 * day, time.Date(2026, 2, 20, 0, 0, 0, 0, time.UTC)},
		{weir.Year.From(229), "Asia/Kathmandu", 20 * day, time.Date(1983, 12, 1, 0, 0, 0, 0, time.UTC)},
	} {
		zone, err := time.LoadLocation(of.zone)
		require.NoError(t, err)
		all = append(all, pair{
			name: fmt.Sprintf("Calendar %v %s", of.unit, of.zone), length: of.length, start: of.start,
			local: l.Calendar(of.unit, zone), remote: s.Calendar(of.unit, zone),
		})
	}
	return all
}

// trace is a random history: a few keys, one duration, and limits and costs of similar size.
type trace struct {
	random   *rand.Rand
	clock    *weirtest.Clock
	duration time.Duration
	limit    uint64
	taken    map[string]*weir.Result // the last admission of each key
	requests map[string]weir.Request
	returns  map[string][2]ops.Return // of the last Admit of each key
	log      []event
}

// event is one step, kept for the failure message. Its Results for Seed are the count that was
// passed.
type event struct {
	at         time.Time
	op         string
	r          weir.Request
	a, b       *weir.Result
	errA, errB error
}

func (e event) String() string {
	return fmt.Sprintf("\n%v %s %+v: local %v, %v; redis %v, %v",
		e.at.Format(time.RFC3339Nano), e.op, e.r, e.a, e.errA, e.b, e.errB)
}

func (x *trace) request() *weir.Request {
	r := &weir.Request{
		Key:      []string{"a", "b", "c"}[x.random.IntN(3)],
		Limit:    x.limit,
		Duration: x.duration,
		Cost:     x.random.Uint64N(x.limit/4 + 2),
		Meta:     []string{"", "m", " 1 2\n", "\x00%\xff}"}[x.random.IntN(4)],
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

// move advances the clock a little, a lot, by a fraction of a millisecond, or to an ExpiresAt.
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
		if last != nil && last.ExpiresAt.After(x.clock.Now()) &&
			last.ExpiresAt.Sub(x.clock.Now()) <= 3*d {
			x.clock.Set(last.ExpiresAt.Add(-time.Duration(x.random.IntN(2))))
		}
	default:
		x.clock.Advance(time.Duration(x.random.Int64N(int64(d)/50 + 2)))
	}
}

func same(a, b *weir.Result) bool {
	return a.State == b.State && a.TotalRequests == b.TotalRequests && a.Limit == b.Limit &&
		a.ExpiresAt.Equal(b.ExpiresAt)
}

// sameEntries compares the entries of both logs.
func sameEntries(ctx context.Context, p pair, r *weir.Request) bool {
	a, errA := ops.Hits(ctx, p.local, r)
	b, errB := ops.Hits(ctx, p.remote, r)
	return errA == nil && errB == nil && slices.EqualFunc(a, b, func(a, b weir.Hit) bool {
		return a.At.Equal(b.At) && a.Cost == b.Cost && a.Meta == b.Meta
	})
}

// step makes one call on both strategies. It returns the local Result, and a message if the two
// differ.
func (x *trace) step(p pair) (*weir.Result, string) {
	ctx, r := context.Background(), x.request()
	var a, b *weir.Result
	var errA, errB error
	op := "Run"
	switch n := x.random.IntN(46); {
	case n >= 43:
		op = "Admit"
		var ret [2]ops.Return
		a, ret[0], errA = ops.Admit(ctx, p.local, r)
		b, ret[1], errB = ops.Admit(ctx, p.remote, r)
		delete(x.returns, r.Key)
		if errA == nil && a.Allowed() {
			x.returns[r.Key] = ret
			x.requests["Admit "+r.Key] = *r
		}
	case n >= 40:
		ret, ok := x.returns[r.Key]
		if !ok {
			return nil, ""
		}
		q := x.requests["Admit "+r.Key]
		q.Cost = 1 + x.random.Uint64N(max(1, q.Cost))
		op, r = "Return", &q
		errA, errB = ret[0](ctx, q.Cost), ret[1](ctx, q.Cost)
		delete(x.returns, r.Key)
	case n < 28:
		a, errA = p.local.Run(ctx, r)
		b, errB = p.remote.Run(ctx, r)
		if errA == nil && a.Allowed() {
			x.taken[r.Key], x.requests[r.Key] = a, *r
		}
	case n < 33:
		op = "Peek"
		a, errA = ops.Peek(ctx, p.local, r)
		b, errB = ops.Peek(ctx, p.remote, r)
	case n < 35:
		taken, ok := x.taken[r.Key]
		if !ok {
			return nil, ""
		}
		q := x.requests[r.Key]
		op, r = "Refund", &q
		if x.random.IntN(4) == 0 { // more than was taken; more than the limit is not given back
			r.Cost = x.limit + x.random.Uint64N(3)
		}
		errA, errB = ops.Refund(ctx, p.local, r, taken), ops.Refund(ctx, p.remote, r, taken)
	case n < 37:
		op = "Charge"
		errA, errB = ops.Charge(ctx, p.local, r), ops.Charge(ctx, p.remote, r)
	case n < 39:
		counted := &weir.Result{TotalRequests: x.random.Uint64N(x.limit + 1),
			ExpiresAt: x.clock.Now().Add(time.Duration(x.random.Int64N(int64(x.duration))) - x.duration/4)}
		op, a, b = "Seed", counted, counted
		errA, errB = ops.Seed(ctx, p.local, r, counted), ops.Seed(ctx, p.remote, r, counted)
	case x.random.IntN(20) == 0:
		op = "Reset"
		errA, errB = ops.Reset(ctx, p.local, r), ops.Reset(ctx, p.remote, r)
	}
	if len(x.log) == 25 {
		x.log = append(x.log[:0], x.log[1:]...)
	}
	x.log = append(x.log, event{x.clock.Now(), op, *r, a, b, errA, errB})
	if n := x.random.IntN(20); n == 0 && p.entries && !sameEntries(ctx, p, r) {
		return a, "the entries differ"
	}
	if (errA == nil) != (errB == nil) || a != nil && b != nil && !same(a, b) {
		return a, "the results differ"
	}
	return a, ""
}

// With the same clock and random trace, a local strategy and its counterpart return equal Results,
// and Tiers the same tier.
func TestDifferential(t *testing.T) {
	// Hashes with more fields than this have no order.
	server := redistest.Start(t, "--hash-max-ziplist-entries", "4")
	traces, steps := 20, slow.N(50, 250, 50_000) // 10^6 for each algorithm in make nightly
	starts := []time.Time{
		time.Unix(1_700_000_000, 123_456_789), time.Unix(0, 0), time.Unix(-3, 999_999_999),
		time.Date(1911, 3, 1, 0, 0, 0, 1, time.UTC),
		time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	durations := []time.Duration{time.Minute, time.Second, 7 * time.Millisecond, time.Millisecond,
		24*time.Hour + 13*time.Millisecond, 10 * 24 * time.Hour}
	limits := []uint64{10, 1, 3, 100, 1_000_003, 1<<46 - 3}
	client := pipelining(t, dial(t, generousOptions(server.Addr)))
	all := func(c redis.UniversalClient, prefix string, now func() time.Time) []pair {
		all := append(pairs(t, c, prefix, now), tierOrders(t, c, prefix, now)...)
		return append(all, calendarPairs(t, c, prefix, now)...)
	}
	for i, p := range all(client, "names", time.Now) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			// Traces have their own clocks and keys, and mostly wait for the server.
			var running sync.WaitGroup
			for n := range traces {
				clock := weirtest.NewClock(starts[n%len(starts)])
				p := all(client, fmt.Sprintf("trace %d %d:", n, i), clock.Now)[i]
				random := rand.New(rand.NewPCG(uint64(n), uint64(i)))
				x := &trace{
					random: random, clock: clock, duration: durations[n%len(durations)],
					limit: limits[random.IntN(len(limits))],
					taken: map[string]*weir.Result{}, requests: map[string]weir.Request{},
					returns: map[string][2]ops.Return{},
				}
				if p.length > 0 {
					x.duration = p.length
					if n%2 == 1 {
						clock.Set(p.start)
					}
				}
				if p.fixed != nil {
					one := p.fixed[random.IntN(len(p.fixed))]
					x.duration, x.limit = one.Duration, one.Limit // so that costs are close to each of the limits
				}
				running.Go(func() { x.play(t, p, steps) })
			}
			running.Wait()
		})
	}
}

// play makes the given number of steps, and fails with the latest of them if the two strategies
// differ.
func (x *trace) play(t *testing.T, p pair, steps int) {
	var last *weir.Result
	for step := range steps {
		x.move(last)
		res, diff := x.step(p)
		if diff != "" {
			assert.Fail(t, diff, "step %d:%v", step, x.log)
			return
		}
		if res != nil {
			last = res
		}
	}
}
