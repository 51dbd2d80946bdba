package redislimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

// reconcileLocally does what Reconcile does, in three steps on a local strategy. debt is the cost
// not charged before.
func reconcileLocally(
	s weir.Strategy, r *weir.Request, counted *weir.Result, debt uint64,
) (*weir.Result, error) {
	ctx := context.Background()
	if counted != nil {
		if err := ops.Seed(ctx, s, r, counted); err != nil {
			return nil, err
		}
	}
	if debt > 0 {
		q := *r
		q.Cost = debt
		if err := ops.Charge(ctx, s, &q); err != nil {
			return nil, err
		}
	}
	return s.Run(ctx, r)
}

// Reconcile equals Seed, Charge and Run in one step, and charges nothing when repeated. The test
// compares it on random traces with these steps on the local counterpart.
func TestReconcileEqualsItsSteps(t *testing.T) {
	server := redistest.Start(t)
	client := dial(t, redislimit.Options(server.Addr))
	all := func(prefix string, now func() time.Time) []pair {
		return append(pairs(t, client, prefix, now), calendarPairs(t, client, prefix, now)...)
	}
	for i, p := range all("names", time.Now) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for n := range slow.N(3, 6, 100) {
				clock := weirtest.NewClock(time.Unix(1_700_000_000, 123_456_789))
				p := all(fmt.Sprintf("reconcile %d %d:", n, i), clock.Now)[i]
				rng := rand.New(rand.NewPCG(uint64(n), uint64(i)))
				// Package weir counts up to 1<<48.
				d := []time.Duration{time.Minute, time.Second, 24 * time.Hour}[n%3]
				limit := []uint64{10, 1000, 1<<38 - 3}[rng.IntN(3)]
				if p.fixed != nil {
					d, limit = p.fixed[0].Duration, p.fixed[0].Limit
				}
				if p.length > 0 {
					clock.Set(p.start)
					d = p.length
				}
				total, charged, seen := map[string]uint64{}, map[string]uint64{}, map[string]uint64{}
				for step := range slow.N(100, 300, 300) {
					clock.Advance(time.Duration(rng.Int64N(int64(d)/50 + 2)))
					source := fmt.Sprint(rng.IntN(2))
					r := &weir.Request{Key: "a", Limit: limit, Duration: d, Cost: rng.Uint64N(limit/8 + 2),
						Meta: "m"}
					total[source] += rng.Uint64N(limit/8 + 2)
					b := &weir.Backlog{Source: source, Charged: charged[source], Total: total[source]}
					if rng.IntN(3) == 0 {
						b.Counted = &weir.Result{TotalRequests: rng.Uint64N(limit), ExpiresAt: clock.Now().Add(d / 3)}
					}
					from := max(seen[source], charged[source])
					debt := b.Total - from
					seen[source] = b.Total
					want, errA := reconcileLocally(p.local, r, b.Counted, debt)
					got, errB := ops.Reconcile(t.Context(), p.remote, r, b)
					require.NoError(t, errA)
					require.NoError(t, errB)
					require.True(t, same(want, got), "step %d: %+v %+v: local %v, redis %v", step, r, b, want, got)
					if rng.IntN(2) == 0 { // otherwise the reply was lost
						charged[source] = b.Total
					}
				}
			}
		})
	}
	lives(t, server)
}

// OpCatchUp is one call, and decides nothing. It charges a Total of a Source once, and one of no
// Source each time; it raises a count that was lost, and not one of which something was taken back.
func TestCatchUp(t *testing.T) {
	calls, server := 0, redistest.Start(t)
	s := open(t, server.Addr, redislimit.Config{
		OnCall: func(time.Duration, error) { calls++ }}).FixedWindow()
	r := &weir.Request{Key: "a", Limit: 100, Duration: time.Hour}
	catchUp := func(b weir.Backlog, want uint64) {
		t.Helper()
		calls = 0
		require.NoError(t, ops.Do(t.Context(), s,
			weir.Op{Verb: weir.OpCatchUp, Request: *r, Backlog: &b}).Err)
		assert.Equal(t, 1, calls)
		assert.Equal(t, want+1, mustPeek(t, s, r).TotalRequests, "with one more")
	}
	for range 2 {
		catchUp(weir.Backlog{Source: "x", Total: 5}, 5)
	}
	catchUp(weir.Backlog{Total: 3}, 8)
	catchUp(weir.Backlog{Total: 3}, 11)
	charged := server.Client().Keys(t.Context(), "*charged*").Val()
	require.Len(t, charged, 1)
	assert.Equal(t, []string{"x"}, server.Client().HKeys(t.Context(), charged[0]).Val(), "with names")
	taken := mustRun(t, s, r)
	counted := weir.Backlog{Counted: &weir.Result{TotalRequests: 50, ExpiresAt: taken.ExpiresAt},
		CountedAt: time.Now()}
	catchUp(counted, 50)
	require.NoError(t, ops.Refund(t.Context(), s, r, taken))
	catchUp(counted, 49)
	catchUp(weir.Backlog{Reset: true, Source: "y", Total: 2}, 2)
	for _, bad := range []weir.Backlog{{Charged: 2, Total: 1}, {Source: strings.Repeat("x", 65)}} {
		assert.ErrorIs(t, ops.Do(t.Context(), s,
			weir.Op{Verb: weir.OpCatchUp, Request: *r, Backlog: &bad}).Err, weir.ErrLimit)
	}
}

// The totals live as long as the count and in the same Cluster slot, and each Source has its own.
func TestReconcileKeepsTotals(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	store := open(t, server.Addr, redislimit.Config{})
	r := &weir.Request{Key: "a", Limit: 100, Duration: time.Hour}
	for name, s := range map[string]weir.Counter{
		"fixed": store.FixedWindow(), "sliding": store.SlidingWindow(), "token": store.TokenBucket(0),
		"counter": store.Counter(), "log": store.SlidingLog(), "list": store.List(),
	} {
		for _, b := range []weir.Backlog{
			{Source: "x", Charged: 0, Total: 10}, {Source: "x", Charged: 0, Total: 10},
			{Source: "y", Charged: 5, Total: 9},
			{Source: "x", Charged: 10, Total: 12}, {Source: "x", Charged: 0, Total: 4},
		} {
			_, err := ops.Reconcile(t.Context(), s, r, &b)
			require.NoError(t, err)
		}
		res := mustPeek(t, s, r)
		assert.EqualValues(t, 10+4+2+5+1, res.TotalRequests, name)
	}
	keys, err := client.Keys(t.Context(), "*:charged").Result()
	require.NoError(t, err)
	require.Len(t, keys, 6)
	for _, k := range keys {
		count := pttl(t, client, k[:len(k)-len(":charged")])
		totals := pttl(t, client, k)
		assert.GreaterOrEqual(t, totals, count, k)
		assert.LessOrEqual(t, totals, max(count, r.Duration)+5*time.Second, k)
	}
}

// aged lets time pass on a server of a Store with a clock.
func aged(t *testing.T, client *redis.Client, clock *weirtest.Clock, by time.Duration) {
	t.Helper()
	clock.Advance(by)
	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, k := range keys {
		left := pttl(t, client, k)
		require.NoError(t, client.PExpire(t.Context(), k, left-by).Err()) // not above 0 deletes it
	}
}

// A debt is charged once for as long as it may count where it was admitted: there the period may
// have begun later, and a share of the bucket fills more slowly.
func TestReconcileChargesOnceWhileADebtMayCount(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 0).Truncate(time.Hour))
	store := open(t, server.Addr, redislimit.Config{Now: clock.Now, Grace: -1})
	r := &weir.Request{Key: "a", Limit: 100, Duration: time.Hour}
	for name, s := range everyStrategy(t, store, r) {
		if name == "InFlight" {
			continue // it owes nothing
		}
		reconcile := func() (before, after uint64) {
			peeked := mustPeek(t, s, r)
			res, err := ops.Reconcile(t.Context(), s, r, &weir.Backlog{Source: "x", Total: 10})
			require.NoError(t, err)
			return peeked.TotalRequests, res.TotalRequests
		}
		mustRun(t, s, r)
		aged(t, client, clock, 40*time.Minute)
		before, after := reconcile()
		require.Equal(t, before+10, after, name)
		lasts := 19 * time.Minute // to the end of the window, about
		if name == "Counter" || name == "List" || name == "TokenBucket" {
			lasts = 59 * time.Minute
		}
		aged(t, client, clock, lasts)
		before, after = reconcile()
		assert.Equal(t, before, after, name)
		clock.Set(time.Unix(1_700_000_000, 0).Truncate(time.Hour))
		server.Do("flushall")
	}
}

func TestReconcileOfBadBacklogs(t *testing.T) {
	s := open(t, redistest.Start(t).Addr, redislimit.Config{}).FixedWindow()
	r := &weir.Request{Key: "a", Limit: 100, Duration: time.Hour}
	for _, b := range []weir.Backlog{{}, {Source: string(make([]byte, 65))},
		{Source: "x", Charged: 2, Total: 1}} {
		_, err := ops.Reconcile(t.Context(), s, r, &b)
		assert.ErrorIs(t, err, weir.ErrLimit)
	}
}

// After Warm, a decision needs neither a dial nor a script upload, and nothing has been counted.
func TestWarm(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	store := open(t, proxy.Addr, redislimit.Config{})
	r := &weir.Request{Key: "a", Limit: 100, Duration: time.Hour}
	for _, s := range everyStrategy(t, store, r) {
		require.NoError(t, ops.Warm(t.Context(), s, r))
		proxy.Forget()
		mustRun(t, s, r)
		_, err := ops.Reconcile(t.Context(), s, r, &weir.Backlog{Source: "x", Total: 1})
		require.NoError(t, err)
		assert.Equal(t, map[string]int{"evalsha": 2}, proxy.Seen())
		res := mustPeek(t, s, r)
		assert.EqualValues(t, 4, res.TotalRequests)
	}
}

// takesBack are the ways in which a count is lowered.
var takesBack = map[string]func(s *admitting, taken *weir.Result, back ops.Return){
	"Refund": func(s *admitting, taken *weir.Result, _ ops.Return) {
		require.NoError(s.t, ops.Refund(s.t.Context(), s.Counter, s.request(4), taken))
	},
	"Return": func(s *admitting, _ *weir.Result, back ops.Return) { s.giveBack(back, 4) },
	"Reset":  func(s *admitting, _ *weir.Result, _ ops.Return) { s.reset() },
}

// A count is not raised to one that was known before something was taken back from it, and is
// raised to one that was known later, and to any that the server has lost.
func TestReconcileKeepsWhatWasTakenBack(t *testing.T) {
	for name, takeBack := range takesBack {
		t.Run(name, func(t *testing.T) {
			forEachAdmitter(t, func(s *admitting) {
				ctx := s.t.Context()
				reconcile := func(counted uint64, at time.Time) uint64 {
					_, err := ops.Reconcile(ctx, s.Counter, s.request(11), &weir.Backlog{Source: "x", CountedAt: at,
						Counted: &weir.Result{TotalRequests: counted,
							ExpiresAt: s.clock.Now().Add(10 * time.Second)}})
					require.NoError(s.t, err)
					return s.counted()
				}
				res, back, err := ops.Admit(ctx, s.Counter, s.request(6))
				require.NoError(s.t, err)
				known := s.clock.Now()
				s.clock.Advance(time.Second)
				takeBack(s, res, back)
				rest := s.counted()
				require.LessOrEqual(s.t, rest, uint64(2), name)
				s.clock.Advance(time.Millisecond)

				assert.Equal(s.t, rest, reconcile(6, known), "the count was known before")
				assert.Equal(s.t, rest, reconcile(6, s.clock.Now().Add(-2*time.Millisecond)),
					"as well, by a clock that differs")
				s.clock.Advance(time.Second)
				assert.EqualValues(s.t, 6, reconcile(6, s.clock.Now()), "the count was known later")
				s.key += " lost"
				assert.EqualValues(s.t, 6, reconcile(6, known), "the server has lost it")
			})
		})
	}
}

// runOnce runs s on an empty server, and returns the one key that it counts under.
func runOnce(
	t *testing.T, client *redis.Client, s weir.Strategy, r *weir.Request,
) (res *weir.Result, key string) {
	t.Helper()
	res, err := s.Run(t.Context(), r)
	require.NoError(t, err, ops.Name(s))
	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1, ops.Name(s))
	return res, keys[0]
}

// What was taken back is remembered for as long as a count of before it would have lived.
func TestTakenBackLivesAsLongAsTheCount(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	store := open(t, server.Addr, redislimit.Config{})
	r := &weir.Request{Key: "a", Limit: 100, Duration: time.Hour, Cost: 80}
	for name, s := range everyStrategy(t, store, r) {
		res, key := runOnce(t, client, s, r)
		before := pttl(t, client, key)
		part := *r
		mark := time.Duration(0)
		for _, part.Cost = range []uint64{60, 20} { // the second leaves little or nothing of the count
			require.NoError(t, ops.Refund(t.Context(), s, &part, res), name)
			mark = pttl(t, client, key+":back")
			assert.InDelta(t, before, mark, float64(10*time.Second), "%s: %d", name, part.Cost)
		}
		require.NoError(t, ops.Reset(t.Context(), s, r), name)
		after := pttl(t, client, key+":back")
		assert.InDelta(t, mark, after, float64(10*time.Second), name)
		require.NoError(t, ops.Refund(t.Context(), s, &weir.Request{Key: "b", Limit: 100, Duration: time.Hour}, res), name)
		left, err := client.Keys(t.Context(), "*{b}*").Result()
		require.NoError(t, err)
		assert.Empty(t, left, "%s: there is nothing to take back", name)
		server.Do("flushall")
	}
}

// So it is where the count had lost its time to live, which taking back restores.
func TestTakenBackFromAKeyWithoutATimeToLive(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	store := open(t, server.Addr, redislimit.Config{})
	r := &weir.Request{Key: "a", Limit: 100, Duration: time.Hour, Cost: 80}
	for name, s := range everyStrategy(t, store, r) {
		res, key := runOnce(t, client, s, r)
		require.NoError(t, client.Persist(t.Context(), key).Err())
		one := *r
		one.Cost = 1
		require.NoError(t, ops.Refund(t.Context(), s, &one, res), name)
		count := pttl(t, client, key)
		mark := pttl(t, client, key+":back")
		assert.Positive(t, count, name)
		assert.InDelta(t, count, mark, float64(10*time.Second), name)
		server.Do("flushall")
	}
}

// late changes the commands of Reconcile: they arrive later than they were sent, and the clock of
// the process is fast.
type late struct{ arrives, fast time.Duration }

func (l late) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l late) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l late) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		const argv = 2 + 4 // ARGV[1] is the one after evalsha, the hash, 4 and four keys
		if args := cmd.Args(); len(args) > argv+9 && fmt.Sprint(args[2]) == "4" {
			args[argv+8] = args[argv+8].(int64) - l.arrives.Milliseconds()
			args[argv+9] = args[argv+9].(int64) + l.fast.Milliseconds()
		}
		return next(ctx, cmd)
	}
}

// A count of before something was taken back is known as such by the earlier of two instants: by
// its age, and by the clock of the process.
func TestReconcileByTheEarlierInstant(t *testing.T) {
	server := redistest.Start(t)
	for name, row := range map[string]struct {
		late
		want uint64
	}{
		"on time":                      {late{}, 1},
		"the command arrives late":     {late{arrives: time.Hour}, 1},
		"the clock is fast":            {late{fast: time.Hour}, 1},
		"the clock is slow":            {late{fast: -time.Hour}, 1},
		"the control, of both at once": {late{time.Hour, time.Hour}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, redislimit.Options(server.Addr))
			c.AddHook(row.late)
			s := storeOn(t, c, redislimit.Config{Timeout: generous}).FixedWindow()
			known := time.Now()
			r := &weir.Request{Key: name, Limit: 10, Duration: 365 * 24 * time.Hour, Cost: 6}
			res := mustRun(t, s, r)
			require.NoError(t, ops.Refund(t.Context(), s, r, res))
			r.Cost = 11
			_, err := ops.Reconcile(t.Context(), s, r, &weir.Backlog{Source: "x", CountedAt: known, Counted: res})
			require.NoError(t, err)
			r.Cost = 1
			got := mustPeek(t, s, r)
			assert.Equal(t, row.want, got.TotalRequests)
		})
	}
}

// A replica that lacks the last writes is raised to a count that was known after the last take-back
// it has, and not to one from before.
func TestReconcileAfterFailover(t *testing.T) {
	slow.Test(t)
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	s := open(t, master.Addr, redislimit.Config{}).FixedWindow()
	run := func(s *redislimit.Strategy, cost uint64) *weir.Result {
		r := *daily
		r.Cost = cost
		res := mustRun(t, s, &r)
		return res
	}
	old := run(s, 80)
	oldAt := time.Now()
	time.Sleep(150 * time.Millisecond) // counts of the last 100 ms pass for older ones
	require.NoError(t, ops.Refund(t.Context(), s, &weir.Request{Key: "a", Limit: 100, Duration: 24 * time.Hour, Cost: 70}, old))
	time.Sleep(150 * time.Millisecond) // as before
	redistest.Eventually(t, 5*time.Second, "replication", func() bool {
		return master.Info("master_repl_offset") == replica.Info("slave_repl_offset")
	})
	replica.Do("replicaof", "127.0.0.1", "1") // no server listens there, so replication stops
	last := run(s, 30)
	lastAt := time.Now()
	require.EqualValues(t, 40, last.TotalRequests)
	master.Kill()
	replica.Do("replicaof", "no", "one")

	after := open(t, replica.Addr, redislimit.Config{}).FixedWindow()
	never := &weir.Request{Key: "a", Limit: 100, Duration: 24 * time.Hour, Cost: 101}
	for _, row := range []struct {
		counted *weir.Result
		at      time.Time
		want    uint64
	}{{old, oldAt, 10}, {last, lastAt, 40}, {old, oldAt, 40}} {
		res, err := ops.Reconcile(t.Context(), after, never, &weir.Backlog{Source: "x", Counted: row.counted, CountedAt: row.at})
		require.NoError(t, err)
		assert.Equal(t, row.want, res.TotalRequests)
	}
}

// A reset that primary has missed is done once for each Source, before the debts are charged, and
// leaves what Reset leaves.
func TestReconcileResetsOnce(t *testing.T) {
	forEachAdmitter(t, func(s *admitting) {
		reconcile := func(b weir.Backlog) {
			_, err := ops.Reconcile(s.t.Context(), s.Counter, s.request(1), &b)
			require.NoError(s.t, err)
		}
		back := s.admit(6)
		known := s.clock.Now()
		s.clock.Advance(time.Second)
		reconcile(weir.Backlog{Source: "x 1", Reset: true, Total: 3})
		s.counts(3+1, "reset, charged and decided")
		s.giveBack(back, 6)
		s.counts(4, "nothing of before the reset is given back")
		reconcile(weir.Backlog{Source: "x 1", Reset: true, Total: 3})
		s.counts(4+1, "the answer was lost, and the same is sent again")
		reconcile(weir.Backlog{Source: "y 1", CountedAt: known,
			Counted: &weir.Result{TotalRequests: 9, ExpiresAt: s.clock.Now().Add(10 * time.Second)}})
		s.counts(5+1, "a count of before the reset")
		s.clock.Advance(time.Second)
		reconcile(weir.Backlog{Source: "x 2", Reset: true})
		s.counts(1, "another reset")
	})
}

// Calls end with their contexts only with a client that New accepts.
func TestPrompt(t *testing.T) {
	server := redistest.Start(t)
	assert.True(t, open(t, server.Addr, redislimit.Config{}).FixedWindow().About().Prompt)
	s := storeOn(t, dial(t, &redis.Options{Addr: server.Addr}),
		redislimit.Config{AllowUnsafeClient: true})
	assert.False(t, s.FixedWindow().About().Prompt)
}

// What a batch gives back is known to Reconcile, too.
func TestReconcileKeepsWhatABatchTookBack(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.Addr, redislimit.Config{})
	known := time.Now()
	r := weir.Request{Key: "a", Limit: 10, Duration: 365 * 24 * time.Hour}
	none := r
	none.Limit = 0
	d, err := limits.Decide(t.Context(), weir.Ask{Strategy: s.FixedWindow(), Request: r},
		weir.Ask{Strategy: s.Counter(), Request: none})
	require.NoError(t, err)
	require.False(t, d.Allowed())
	res, err := ops.Reconcile(t.Context(), s.FixedWindow(), &r, &weir.Backlog{Source: "x", CountedAt: known,
		Counted: &weir.Result{TotalRequests: 5, ExpiresAt: time.Now().Add(time.Hour)}})
	require.NoError(t, err)
	assert.EqualValues(t, 1, res.TotalRequests)
}
