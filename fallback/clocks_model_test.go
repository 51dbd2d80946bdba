package fallback_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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

// elsewhere returns a strategy on another clock, which is ahead by so many ns. Its Results are of
// the clock here.
func elsewhere(s weir.Strategy, ahead *atomic.Int64) weir.Strategy {
	return newAround(s, func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
		was, by := *op, time.Duration(ahead.Load())
		if op.Verb == weir.OpReturn {
			op.Result.ExpiresAt = op.Result.ExpiresAt.Add(by)
		}
		if b := op.Backlog; b != nil && b.Counted != nil {
			own, counted := *b, *b.Counted
			counted.ExpiresAt = counted.ExpiresAt.Add(by)
			own.Counted = &counted
			op.Backlog = &own
		}
		next(ctx, op)
		op.Backlog = was.Backlog
		switch {
		case op.Verb == weir.OpReturn:
			op.Result = was.Result
		case (op.Verb == weir.OpTake || op.Verb == weir.OpPeek) && !op.Result.ExpiresAt.IsZero():
			op.Result.ExpiresAt = op.Result.ExpiresAt.Add(-time.Duration(ahead.Load()))
		}
	})
}

// clocksKind is what a model counts with.
type clocksKind struct {
	of     strategyOf
	period time.Duration
	most   time.Duration // by which the clocks differ at most
	// counts returns how much of a counts, or did, when last was admitted, in periods: from 0 to 1.
	counts func(a, last admission, period time.Duration) float64
	drains bool // as a token bucket does
	dated  bool // it counts by the instant of each admission, which local learns too late
	loses  bool // the next answer shows a loss of counts, whenever it comes
}

// admission is one of cost 1.
type admission struct {
	here, there time.Time // by the clock here, and by the server's
	era         int       // how often the server's clock had been set
	extra       uint64    // how much more may count, as it was admitted
	loss        bool      // no admission: the server lost its counts
	call        *stamp    // of a hurried caller, that was under way when local admitted, or nil
}

func inWindow(a, last admission, period time.Duration) float64 {
	if a.there.Truncate(period).Equal(last.there.Truncate(period)) {
		return 1
	}
	return 0
}

func inSlidingWindow(a, last admission, period time.Duration) float64 {
	start := last.there.Truncate(period)
	if a.there.Truncate(period).Equal(start.Add(-period)) {
		return float64(period-last.there.Sub(start)) / float64(period)
	}
	return inWindow(a, last, period)
}

func inPeriod(a, last admission, period time.Duration) float64 {
	if last.here.Sub(a.here) < period {
		return 1
	}
	return 0
}

func inBucket(admission, admission, time.Duration) float64 { return 1 }

var clocksKinds = map[string]clocksKind{
	"FixedWindow": {of: fixedWindow, period: time.Minute, most: 3 * time.Hour, counts: inWindow,
		loses: true},
	"SlidingWindow": {of: strategies()["SlidingWindow"], period: time.Minute, most: 3 * time.Hour,
		counts: inSlidingWindow, dated: true},
	"SlidingLog": {of: strategies()["SlidingLog"], period: time.Minute, most: 3 * time.Hour,
		counts: inPeriod, dated: true},
	"TokenBucket": {of: strategies()["TokenBucket"], period: time.Minute, most: 3 * time.Hour,
		counts: inBucket, drains: true},
	"Calendar": {of: func(l *weir.Limiter) weir.Strategy { return l.Calendar(weir.Hour, time.UTC) },
		period: time.Hour, most: 50 * time.Minute, counts: inWindow, loses: true},
}

// usage returns how much of all counts when the last of them was admitted, and how much may.
func (m *clocksModel) usage(all []admission) (used, most uint64) {
	n, last := uint64(len(m.instances)), all[len(all)-1]
	sum, extra, was := 0.0, uint64(0), time.Time{}
	for _, a := range all {
		counts := m.counts(a, last, m.period)
		switch {
		case a.era != last.era || counts == 0:
			continue
		case a.call != nil && !(a.call.admits && m.counts(a.call.at, a, m.period) > 0):
			continue // local does not count the call, nor primary, where it may add itself
		case a.loss:
			most += 2 * abreast * n // with those under way, whose callers do not wait for a late answer
			continue
		case m.drains:
			sum = max(0, sum-float64(a.here.Sub(was))*float64(m.limit)/float64(m.period))
			was = a.here
			if sum == 0 {
				extra = 0
			}
		}
		sum += counts
		extra = max(extra, a.extra)
	}
	if m.dated {
		most += m.share()
	}
	return uint64(sum + 1e-6), most + bound(m.limit, n) + n*extra
}

// clocksModel is a history of instances on one clock whose server is on another, in a bubble.
type clocksModel struct {
	clocksKind
	t         *testing.T
	rng       *rand.Rand
	limit     uint64
	ahead     atomic.Int64 // ns
	server    *server
	instances []*fallback.Fallback

	script sync.Mutex // runs, of the server

	mu    sync.Mutex
	down  bool // guarded by mu, as are the fields below
	fails bool // all answers are lost
	delay time.Duration
	era   int
	// the last instant of the server's clock before it was set
	latest time.Time
	seen   map[string]int // the era of the last answer, from 1, by instance, and by instance and key
	used   map[string][]admission
	found  clocksFindings
	takes  bool // back, in place of losses
}

// clocksFindings are what histories show.
type clocksFindings struct {
	admitted, denied, local, settings, losses, refunds, waits int

	over        int // admissions over the bound
	worst       uint64
	long, short int // waits that were not right
}

func (a *clocksFindings) add(b clocksFindings) {
	a.admitted, a.denied, a.local = a.admitted+b.admitted, a.denied+b.denied, a.local+b.local
	a.settings, a.losses, a.refunds = a.settings+b.settings, a.losses+b.losses, a.refunds+b.refunds
	a.waits, a.over, a.worst = a.waits+b.waits, a.over+b.over, max(a.worst, b.worst)
	a.long, a.short = a.long+b.long, a.short+b.short
}

// stamp is how primary decided on a request.
type stamp struct {
	at       admission // when
	admits   bool
	underWay bool // the call
}

type stampKey struct{}

// pass makes one call of the server.
func (m *clocksModel) pass(c call) (*weir.Result, error) {
	at, _ := c.ctx.Value(stampKey{}).(*stamp)
	if at == nil || c.op.Verb == weir.OpReturn {
		at = new(stamp)
	}
	m.mu.Lock()
	down, loses, before, after := m.down, m.fails, m.delay, time.Duration(0)
	if before > 0 {
		before = time.Duration(m.rng.Int64N(int64(m.delay)))
		after = m.delay - before
	}
	at.underWay = true
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		at.underWay = false
	}()
	time.Sleep(before) // in a bubble
	if down {
		return nil, errDown
	}
	m.script.Lock() // which is all of a call
	res, err := c.do()
	m.script.Unlock()
	if err == nil {
		m.mu.Lock()
		at.at, at.admits = m.now(), res != nil && res.Allowed()
		m.mu.Unlock()
	}
	time.Sleep(after) // in a bubble
	if loses {
		return nil, errDown
	}
	return res, err
}

// now returns an admission of this instant. The model is locked.
func (m *clocksModel) now() admission {
	here := time.Now()
	return admission{here: here, there: here.Add(time.Duration(m.ahead.Load())).UTC(), era: m.era}
}

// ask has an instance decide, and checks the bound.
func (m *clocksModel) ask(i int, key string, hurried bool) (*weir.Result, weir.Source) {
	at := new(stamp)
	ctx := context.WithValue(m.t.Context(), stampKey{}, at)
	if hurried {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 40*time.Millisecond)
		defer cancel()
	}
	r := &weir.Request{Key: key, Limit: m.limit, Duration: m.period}
	res, by, err := runSource(ctx, m.instances[i], r)
	if !assert.NoError(m.t, err) {
		return &weir.Result{}, by
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	one, all := fmt.Sprint(i, key), fmt.Sprint(i)
	if _, known := m.seen[one]; !known { // its windows are then those of other callers, or unknown
		m.seen[one] = m.seen[all]
	}
	a := m.now()
	if by == weir.FromPrimary {
		a = at.at
		m.seen[one], m.seen[all] = a.era, a.era
	} else if m.found.local++; m.seen[one] != a.era {
		a.extra = m.share()
	}
	if !res.Allowed() {
		m.found.denied++
		return res, by
	}
	switch {
	case hurried && by == weir.FromPrimary:
		return res, by // local does not count the call while it is under way: it may add itself
	case at.underWay && hurried:
		a.call = at
	}
	m.admitted(key, a)
	if m.takes && m.rng.IntN(4) == 0 {
		m.found.refunds++
		all := m.used[key] // without a, of which another caller may have the room before the refund ends
		m.used[key] = slices.Delete(all, slices.Index(all, a), slices.Index(all, a)+1)
		m.mu.Unlock()
		err := ops.Refund(m.t.Context(), m.instances[i], r, res)
		m.mu.Lock()
		assert.NoError(m.t, err)
	}
	return res, by
}

// share returns what local admits in a period.
func (m *clocksModel) share() uint64 {
	n := uint64(len(m.instances))
	return (m.limit + n - 1) / n
}

// admitted records an admission, and checks the bound.
func (m *clocksModel) admitted(key string, a admission) {
	m.found.admitted++
	m.used[key] = append(m.used[key], a)
	if used, most := m.usage(m.used[key]); used > most {
		m.found.over++
		m.found.worst = max(m.found.worst, used-most)
	}
}

// wait takes a denial of a caller, if there is one, by its wait: 1 ms before its end the same is
// denied, and then admitted.
func (m *clocksModel) wait(key string) {
	time.Sleep(200 * time.Millisecond) // in a bubble: calls under way end
	peek := func() *weir.Result {
		r := &weir.Request{Key: key, Limit: m.limit, Duration: m.period}
		res, err := ops.Peek(m.t.Context(), m.instances[0], r)
		require.NoError(m.t, err)
		return res
	}
	res := peek()
	if res.Allowed() || time.Until(res.ExpiresAt) < 2*time.Millisecond {
		return
	}
	if next := res.ExpiresAt.Add(time.Duration(m.ahead.Load())); !next.After(m.latest) {
		return // the clock was set back: the next window may be full already
	}
	m.found.waits++
	time.Sleep(time.Until(res.ExpiresAt) - time.Millisecond) // in a bubble
	if peek().Allowed() {
		m.found.long++
	}
	time.Sleep(time.Millisecond) // in a bubble
	if !peek().Allowed() {
		m.found.short++
	}
}

// newClocksModel returns a model of n instances whose primary is made of the server by to.
func newClocksModel(
	t *testing.T, seed uint64, k clocksKind, n int, to func(m *clocksModel) weir.Strategy,
) *clocksModel {
	m := &clocksModel{clocksKind: k, t: t, rng: rand.New(rand.NewPCG(seed, 56)), limit: 12,
		seen: map[string]int{}, used: map[string][]admission{}}
	m.takes = seed%2 == 0
	m.set()
	m.server = newServer(func() weir.Strategy {
		there := func() time.Time { return time.Now().Add(time.Duration(m.ahead.Load())) }
		return elsewhere(k.of(m.limiter(there)), &m.ahead)
	})
	m.server.passes = m.pass
	for range n {
		m.instances = append(m.instances, newFallback(t, to(m), k.of(m.limiter(nil)), fallback.Config{
			Instances: n, MinCalls: 1 + m.rng.IntN(3), Stall: -1,
		}))
	}
	return m
}

// limiter is limiterOn, with few sweeps in all the time that passes.
func (m *clocksModel) limiter(now func() time.Time) *weir.Limiter {
	l, err := weir.New(weir.Config{Now: now, SweepEvery: time.Hour})
	require.NoError(m.t, err)
	m.t.Cleanup(func() { _ = l.Close() })
	return l
}

// set sets the server's clock.
func (m *clocksModel) set() {
	if now := m.now().there; now.After(m.latest) {
		m.latest = now
	}
	ahead := time.Duration(m.rng.Int64N(2*int64(m.most))) - m.most
	m.ahead.Store(int64(ahead.Truncate(time.Millisecond)))
	m.era++
}

// abreast is how many callers ask at the same time at most.
const abreast = 4

// step makes one step: something changes, time passes, and some callers ask at the same time.
func (m *clocksModel) step() {
	m.mu.Lock()
	switch m.rng.IntN(40) {
	case 0:
		m.set()
		m.found.settings++
	case 1, 2, 3:
		m.down = !m.down
	case 4:
		m.fails = !m.fails
	case 5:
		m.delay = []time.Duration{0, 0, 0, 30 * time.Millisecond, 80 * time.Millisecond}[m.rng.IntN(5)]
	case 6:
		if m.loses && !m.takes && len(m.instances) == 1 {
			m.lose()
		}
	}
	pause := m.pause()
	key, n := fmt.Sprint("k", m.rng.IntN(3)), 1+m.rng.IntN(abreast)
	hurried := m.rng.IntN(4) == 0
	i := m.rng.IntN(len(m.instances))
	m.mu.Unlock()
	time.Sleep(pause) // in a bubble
	var all sync.WaitGroup
	for range n - 1 {
		all.Go(func() { m.ask(i, key, hurried) })
	}
	res, by := m.ask(i, key, hurried)
	all.Wait()
	if !res.Allowed() && m.quiet(by) {
		m.wait(key)
	}
}

// pause returns for how long nothing happens: a part of a period, an instant, or until a window
// ends, here or there, or is about to, or has just begun.
func (m *clocksModel) pause() time.Duration {
	switch m.rng.IntN(6) {
	case 0, 1:
		return time.Duration(m.rng.Int64N(int64(m.period) / 8))
	case 2:
		now := m.now()
		at := []time.Time{now.here, now.there}[m.rng.IntN(2)]
		left := m.period - at.Sub(at.Truncate(m.period))
		return left + time.Duration(m.rng.IntN(3)-1)*time.Millisecond
	}
	return time.Duration(m.rng.Int64N(int64(100 * time.Millisecond)))
}

// lose has the server lose its counts.
func (m *clocksModel) lose() {
	m.server.restart()
	m.found.losses++
	for key := range m.used {
		a := m.now()
		a.loss = true
		m.used[key] = append(m.used[key], a)
	}
}

// quiet reports whether the next decision is made where the last one was, by, and nothing changes
// until then.
func (m *clocksModel) quiet(by weir.Source) bool {
	return len(m.instances) == 1 && !m.fails && m.delay == 0 && m.rng.IntN(4) == 0 &&
		(m.down && by == weir.FromLocal || !m.down && by == weir.FromPrimary)
}

// clocksHistory is a history of some steps.
func clocksHistory(
	t *testing.T, seed uint64, steps int, k clocksKind, n int, to func(m *clocksModel) weir.Strategy,
) (found clocksFindings) {
	synctest.Test(t, func(t *testing.T) {
		m := newClocksModel(t, seed, k, n, to)
		for range steps {
			m.step()
		}
		found = m.found
		time.Sleep(time.Second) // calls under way end
	})
	return found
}

// clocksHistories are of 100,000 steps in all if there are 40 of each kind.
func clocksHistories(
	t *testing.T, histories int, k clocksKind, n int, to func(m *clocksModel) weir.Strategy,
) (all clocksFindings) {
	for seed := range uint64(histories) {
		all.add(clocksHistory(t, seed, 250, k, n, to))
	}
	t.Logf("%+v", all)
	return all
}

func onServer(m *clocksModel) weir.Strategy { return m.server }

// Where the clocks of the instances and of the server differ by up to three hours, and the server's
// is set now and then, New's bound holds through outages, lost and late answers, and losses of
// counts; waits are right to the millisecond.
func TestOutagesWhereTheClocksDiffer(t *testing.T) {
	for name, k := range clocksKinds {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				all := clocksHistories(t, slow.N(3, 40, 400), k, n, onServer)
				assert.Zero(t, all.worst)
				assert.Zero(t, all.long)
				assert.Zero(t, all.short)
				assert.Positive(t, min(all.denied, all.local, all.settings))
				if n == 1 {
					assert.Equal(t, k.loses, all.losses > 0)
				}
			})
		}
	}
}

// unadjusted returns a server whose Results have the instants of its own clock.
func unadjusted(m *clocksModel) weir.Strategy {
	return newAround(m.server, func(ctx context.Context, op *weir.Op,
		next func(context.Context, *weir.Op)) {
		next(ctx, op)
		if op.Verb == weir.OpTake {
			op.Result.ExpiresAt = op.Result.ExpiresAt.Add(time.Duration(m.ahead.Load()))
		}
	})
}

// Negative controls: the model rejects a Fallback that does not know of the difference, and one
// whose debts are not charged.
func TestOutagesWhereTheClocksDifferControls(t *testing.T) {
	for name, to := range map[string]func(m *clocksModel) weir.Strategy{
		"the difference is not known": func(m *clocksModel) weir.Strategy { return unadjusted(m) },
		"debts are dropped":           func(m *clocksModel) weir.Strategy { return forgetful(m.server) },
	} {
		t.Run(name, func(t *testing.T) {
			var all clocksFindings
			for seed := uint64(0); all.worst <= 1 && seed < 60; seed++ {
				all.add(clocksHistory(t, seed, 250, clocksKinds["FixedWindow"], 1, to))
			}
			assert.Greater(t, all.worst, uint64(1), "%+v", all)
		})
	}
}
