package limits_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/internal/testkit/verbtest"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/near"
)

// every returns all strategies of a Limiter that decide at once.
func every(t *testing.T) verbtest.Stores {
	return func(now func() time.Time) []weir.Strategy {
		l, _ := newLimiter(t, weir.Config{Now: now})
		return []weir.Strategy{l.FixedWindow(), l.SlidingWindow(), l.TokenBucket(0), l.SlidingLog(),
			l.Counter(), l.List(), l.Calendar(weir.Hour, nil), verbtest.Tiers(l)}
	}
}

func TestDecideEqualsItsModel(t *testing.T) {
	for seed := range uint64(slow.N(4, 8, 100)) {
		require.NoError(t, verbtest.Decisions(every(t), limits.Decide, false, seed, 3000), "seed %d",
			seed)
	}
	assert.Error(t, verbtest.Decisions(every(t), verbtest.DecideForgetfully, false, 1, 5000))
}

// Sums are exact once 64 callers are done, and at no instant is a limit exceeded.
func TestDecideConcurrently(t *testing.T) {
	plain := func(now func() time.Time) []weir.Strategy { return every(t)(now)[:6] }
	for range 5 {
		require.NoError(t, verbtest.Concurrently(plain, limits.Decide, 50))
	}
	rejected := func(decide verbtest.Decide) bool {
		for range 1000 { // a few, unless the machine is busy
			if verbtest.Concurrently(plain, decide, 50) != nil {
				return true
			}
		}
		return false
	}
	assert.True(t, rejected(verbtest.DecideForgetfully), "it gives nothing back")
	assert.True(t, rejected(verbtest.DecideHastily), "it charges what it has only peeked at")
}

// recorder returns a Strategy of another process, whose calls are recorded. Its Run fails with err,
// unless that is nil.
func recorder(s weir.Strategy, name string, calls *[]string, err error) *fake {
	return newFake(s, func(_ context.Context, op *weir.Op, next func()) {
		*calls = append(*calls, op.Verb.String()+" "+name)
		if op.Err = err; err == nil || op.Verb != weir.OpTake {
			next()
		}
	}, weir.OpTake, weir.OpPeek, weir.OpReturn)
}

func ask(s weir.Strategy, key string, limit, cost uint64) weir.Ask {
	return weir.Ask{Strategy: s,
		Request: weir.Request{Key: key, Limit: limit, Cost: cost, Duration: time.Minute}}
}

// What a limit in this process denies never reaches another store, which is only peeked at; and
// what that denies takes nothing in this process.
func TestDecideAsksOtherStoresOnceTheLocalLimitsAdmit(t *testing.T) {
	l := standing(t)
	var calls []string
	far := recorder(l.FixedWindow(), "far", &calls, nil)
	local := l.SlidingWindow()
	ctx := context.Background()

	d, err := limits.Decide(ctx, ask(far, "far", 2, 1), ask(local, "local", 1, 1))
	require.NoError(t, err)
	assert.True(t, d.Allowed())
	assert.Zero(t, d.Left, "of local, which has less left")
	assert.Equal(t, []string{"take far"}, calls)

	calls = nil
	d, err = limits.Decide(ctx, ask(far, "far", 2, 1), ask(local, "local", 1, 1))
	require.NoError(t, err)
	assert.False(t, d.Allowed())
	assert.Equal(t, []string{"peek far"}, calls)

	calls = nil
	d, err = limits.Decide(ctx, ask(local, "other", 5, 1), ask(far, "far", 1, 1))
	require.NoError(t, err)
	assert.False(t, d.Allowed())
	assert.Equal(t, []string{"take far"}, calls)
	res, err := ops.Peek(ctx, local, &weir.Request{Key: "other", Limit: 5, Duration: time.Minute})
	require.NoError(t, err)
	assert.EqualValues(t, 1, res.TotalRequests, "nothing was taken")

	calls = nil
	down := errors.New("down")
	broken := recorder(far, "broken", &calls, down)
	_, err = limits.Decide(ctx, ask(far, "far", 2, 1), ask(broken, "b", 1, 1), ask(local, "third", 1, 1))
	require.ErrorIs(t, err, down)
	assert.Equal(t, []string{"take far", "take broken", "refund far"}, calls)
}

// Two Attempts on one count, as of an Envoy that asks for one descriptor twice, are admitted if
// both fit.
func TestTakeTwiceOnOneCount(t *testing.T) {
	s := standing(t).FixedWindow()
	attempts := limits.Attempts{limits.NewAttempt(s), limits.NewAttempt(s)}
	for i := range attempts {
		attempts[i].Op.Request = ask(s, "a", 5, 2-uint64(i)).Request
	}
	for want := range 3 {
		allowed, err := attempts.Take(context.Background(), nil)
		require.NoError(t, err)
		assert.Equal(t, want == 0, allowed)
		res := mustPeek(t, s, &weir.Request{Key: "a", Limit: 5, Duration: time.Minute})
		assert.EqualValues(t, 4, res.TotalRequests)
	}
}

func TestDecideRefusesWhatCannotBeDecided(t *testing.T) {
	s := standing(t).FixedWindow()
	only := func(f func() (*weir.Result, error)) weir.Strategy { return runOnly(f) }
	deny := only(func() (*weir.Result, error) { return new(weir.Result), nil })
	for name, row := range map[string]struct {
		asks []weir.Ask
		want error
	}{
		"no Strategy": {[]weir.Ask{ask(s, "a", 1, 1), {}}, errors.ErrUnsupported},
		"two that cannot give back": {[]weir.Ask{ask(deny, "a", 1, 1), ask(deny, "b", 1, 1)},
			errors.ErrUnsupported},
		"no key": {[]weir.Ask{ask(s, "a", 1, 1), ask(s, "", 1, 1)}, weir.ErrID},
		"neither a Result nor an error": {[]weir.Ask{ask(only(func() (*weir.Result, error) {
			return nil, nil
		}), "a", 1, 1)}, errors.ErrUnsupported},
	} {
		_, err := limits.Decide(context.Background(), row.asks...)
		require.ErrorIs(t, err, row.want, name)
	}
	res := mustPeek(t, s, &weir.Request{Key: "a", Limit: 1, Duration: time.Minute})
	assert.EqualValues(t, 1, res.TotalRequests, "nothing was taken")

	d, err := limits.Decide(context.Background(), ask(deny, "last", 1, 1), ask(s, "a", 1, 1))
	require.NoError(t, err, "one that cannot give back decides last")
	assert.False(t, d.Allowed())
	d, err = limits.Decide(context.Background())
	require.NoError(t, err)
	assert.True(t, d.Allowed())
	assert.Nil(t, d.By)
}

type runOnly func() (*weir.Result, error)

func (f runOnly) Run(context.Context, *weir.Request) (*weir.Result, error) { return f() }

// Decide allocates nothing, where its strategies would allocate a Result each.
func TestDecideAllocations(t *testing.T) {
	l := standing(t)
	strategies := []weir.Strategy{l.FixedWindow(), l.SlidingWindow(), l.TokenBucket(0), l.Counter()}
	var asks []weir.Ask
	for i, s := range strategies {
		asks = append(asks, ask(s, fmt.Sprint(i), 1<<40, 1))
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			d, err := limits.Decide(context.Background(), asks...)
			if err != nil || !d.Allowed() {
				t.Fatal(d, err)
			}
		}), "%d asks", len(asks))
	}
	asks[3].Request.Limit = 1
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if d, err := limits.Decide(context.Background(), asks...); err != nil || d.Allowed() {
			t.Fatal(d, err)
		}
	}), "a denial")
}

// A type that embeds a strategy of this package and has another Run is run by that.
func TestDecideRunsTheOuterRun(t *testing.T) {
	l := standing(t)
	for _, s := range []weir.Strategy{outer{l.FixedWindow()}, &outer{l.FixedWindow()}} {
		d, err := limits.Decide(context.Background(), ask(s, "a", 5, 1))
		require.NoError(t, err)
		assert.False(t, d.Allowed())
	}
}

type outer struct{ *weir.WindowCounter }

func (outer) Run(context.Context, *weir.Request) (*weir.Result, error) {
	return new(weir.Result), nil
}

func TestNames(t *testing.T) {
	l := standing(t)
	for want, s := range map[string]weir.Strategy{
		"fixed window": l.FixedWindow(), "sliding window": l.SlidingWindow(),
		"sliding log":  l.SlidingLog(),
		"token bucket": l.TokenBucket(0), "leaky bucket": l.LeakyBucket(0), "counter": l.Counter(),
		"list":  l.List(),
		"tiers": verbtest.Tiers(l), "limits_test.runOnly": runOnly(nil),
		"all of fixed window, all of list": limits.AllOf(keyed(t, "p", l.FixedWindow(), 1, time.Minute),
			limits.AllOf(l.List())),
	} {
		assert.Equal(t, want, ops.Name(s))
		assert.Equal(t, want, ops.Name(keyed(t, "p", s, 1, time.Minute)))
	}
}

// Each ask is corrected to a cost of its own.
func TestReserveOfSeveral(t *testing.T) {
	l := standing(t)
	requests, tokens, ctx := l.FixedWindow(), l.TokenBucket(0), context.Background()
	counts := func() (n [2]uint64) {
		for i, s := range []weir.Strategy{requests, tokens} {
			res, err := ops.Peek(ctx, s, &weir.Request{Key: "a", Limit: 1000, Duration: time.Minute})
			require.NoError(t, err)
			n[i] = res.TotalRequests - 1
		}
		return n
	}
	reserve := func() *weir.Reservation {
		v, err := limits.Reserve(ctx, ask(requests, "a", 1000, 1), ask(tokens, "a", 1000, 400))
		require.NoError(t, err)
		return v
	}
	v := reserve()
	require.True(t, v.Allowed())
	assert.EqualValues(t, 600, v.Result.Remaining(1000), "the tightest binds")
	require.Error(t, v.CommitEach(ctx, 1))
	require.NoError(t, v.CommitEach(ctx, 1, 250))
	assert.Equal(t, [2]uint64{1, 250}, counts())
	require.NoError(t, v.Cancel(ctx), "it does nothing any more")
	assert.Equal(t, [2]uint64{1, 250}, counts())
	require.NoError(t, reserve().CommitEach(ctx, 1, 700))
	assert.Equal(t, [2]uint64{2, 950}, counts())

	v = reserve()
	assert.False(t, v.Allowed())
	require.NoError(t, v.CommitEach(ctx, 1, 1))
	assert.Equal(t, [2]uint64{2, 950}, counts(), "nothing was taken")
}

// A Limit that only looks denies once the count is over the limit, and takes nothing; one for a
// cost that has arisen counts in full, whatever the others say.
func TestLimitsThatLookAndThoseAfterwards(t *testing.T) {
	s, ctx := standing(t).TokenBucket(0), context.Background()
	take := func(cost uint64, set func(m *limits.Attempt)) (bool, uint64) {
		l := limits.Attempts{limits.NewAttempt(s)}
		l[0].Op.Request = weir.Request{Key: "a", Limit: 10, Cost: cost, Duration: time.Minute}
		set(&l[0])
		allowed, err := l.Take(ctx, nil)
		require.NoError(t, err)
		return allowed, l[0].Op.Result.TotalRequests
	}
	look, after := func(m *limits.Attempt) { m.Look = true }, func(m *limits.Attempt) { m.Afterwards = true }
	for _, step := range []struct {
		set     func(m *limits.Attempt)
		cost    uint64
		allowed bool
		total   uint64
	}{{look, 1, true, 0}, {after, 10, true, 10}, {look, 1, true, 10}, {after, 25, false, 35},
		{look, 1, false, 35}} {
		allowed, total := take(step.cost, step.set)
		assert.Equal(t, step.allowed, allowed, "%+v", step)
		assert.Equal(t, step.total, total, "%+v", step)
	}

	l := limits.Attempts{limits.NewAttempt(s), limits.NewAttempt(s)}
	l[0].Op.Request = weir.Request{Key: "b", Limit: 10, Cost: 4, Duration: time.Minute}
	l[1].Op.Request = weir.Request{Key: "c", Limit: 0, Duration: time.Minute}
	l[0].Afterwards = true
	allowed, err := l.Take(ctx, nil)
	require.NoError(t, err)
	assert.False(t, allowed)
	res, err := ops.Peek(ctx, s, &l[0].Op.Request)
	require.NoError(t, err)
	assert.EqualValues(t, 8, res.TotalRequests, "four count, though the other denies")

	for _, set := range []func(m *limits.Attempt){look, after} {
		for want, one := range map[error]limits.Attempt{
			errors.ErrUnsupported: limits.NewAttempt(runOnly(func() (*weir.Result, error) {
				return new(weir.Result), nil
			})),
			weir.ErrID: limits.NewAttempt(s),
		} {
			set(&one)
			_, err := limits.Attempts{one}.Take(ctx, nil)
			require.ErrorIs(t, err, want)
		}
	}
}

// What a look admits, and a run then does not, does not have the limits before it count twice: here
// the looks see the same count, or a table that is full.
func TestALookIsNoRun(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{MaxBuckets: 1})
	s, ctx := l.FixedWindow(), context.Background()
	for _, c := range []struct {
		second weir.Request
		set    func(m *limits.Attempt)
		total  uint64 // of the first
	}{
		{weir.Request{Key: "a", Limit: 5, Cost: 3, Duration: time.Minute}, func(m *limits.Attempt) {
			m.Advisory = true
		}, 4},
		{weir.Request{Key: "full", Limit: 5, Duration: time.Minute}, func(*limits.Attempt) {}, 8},
	} {
		attempts := limits.Attempts{limits.NewAttempt(s), limits.NewAttempt(s), limits.NewAttempt(s)}
		attempts[0].Op.Request = weir.Request{Key: "a", Limit: 10, Cost: 3, Duration: time.Minute}
		attempts[1].Op.Request = c.second
		attempts[2].Op.Request = weir.Request{Key: "a", Limit: 100, Duration: time.Minute}
		c.set(&attempts[1])
		allowed, err := attempts.Take(ctx, func(err error) bool {
			return err == nil || errors.Is(err, weir.ErrFull)
		})
		require.NoError(t, err)
		assert.True(t, allowed)
		assert.True(t, attempts[0].Decided())
		res, err := ops.Peek(ctx, s, &weir.Request{Key: "a", Limit: 10, Duration: time.Minute})
		require.NoError(t, err)
		assert.Equal(t, c.total+1, res.TotalRequests, "with what the peek would add")
	}
}

// What is not said by a wrapper is that of what it wraps, at any depth.
func TestAWrapperIsRightByDefault(t *testing.T) {
	l := standing(t)
	bucket := l.TokenBucket(7)
	s := ops.Around(ops.Around(bucket))
	assert.Equal(t, "token bucket", ops.Name(s))
	assert.Same(t, l, s.About().Limiter)
	a := limits.NewAttempt(s)
	a.Op.Request = weir.Request{Limit: 3}
	assert.EqualValues(t, 7, a.Most())

	tiers := mustTiers(t, l, weir.Tier{Limit: 2, Duration: time.Second})
	m, err := weir.NewLimit(ops.Around(tiers), 0, 0)
	require.NoError(t, err, "the numbers are those of the tiers")
	assert.True(t, m.Allow("k"))
	assert.Equal(t, "tiers", ops.Name(m))
}

// Wrappers have every method, whatever is inside of them: what cannot give back decides last, or by
// Admit, and an Attempt that cannot peek does not look.
func TestLimitsSeeWhatIsInsideOfWrappers(t *testing.T) {
	ctx := context.Background()
	l := standing(t)
	wrappers := map[string]func(s weir.Strategy) weir.Strategy{
		"policy": func(s weir.Strategy) weir.Strategy {
			return keyed(t, "p", s, 5, time.Minute)
		},
		"near": func(s weir.Strategy) weir.Strategy { return near.NewDenials(s, near.DenialsConfig{}) },
		"fallback": func(s weir.Strategy) weir.Strategy {
			f, err := fallback.New(s, l.FixedWindow(), fallback.Config{Timeout: time.Minute, AllowUnlike: true})
			require.NoError(t, err)
			return f
		},
	}
	for name, wrap := range wrappers {
		key := name
		if name == "policy" {
			key = weir.JoinKey("p", name)
		}
		attempts := limits.Attempts{limits.NewAttempt(wrap(limits.AllOf(l.FixedWindow(), l.SlidingWindow()))),
			limits.NewAttempt(l.Counter())}
		attempts[0].Op.Request = weir.Request{Key: name, Limit: 5, Duration: time.Minute}
		attempts[1].Op.Request = weir.Request{Key: name, Limit: 0, Duration: time.Minute}
		for range 3 {
			allowed, err := attempts.Take(ctx, nil)
			require.NoError(t, err)
			assert.False(t, allowed)
			require.NoError(t, attempts.Lost())
		}
		res, err := ops.Peek(ctx, l.FixedWindow(), &weir.Request{Key: key, Limit: 5, Duration: time.Minute})
		require.NoError(t, err)
		assert.EqualValues(t, 1, res.TotalRequests, "%s: nothing is counted", name)

		ran := 0
		inner := wrap(runOnly(func() (*weir.Result, error) {
			ran++
			return &weir.Result{State: weir.Allow, TotalRequests: 1}, nil
		}))
		one := limits.NewAttempt(inner)
		assert.False(t, one.CanRefund(), name)
		_, err = limits.Decide(ctx, ask(inner, "k", 5, 1), ask(inner, "other", 5, 1))
		require.ErrorIs(t, err, errors.ErrUnsupported, name)
		one.Op.Request, one.Look = weir.Request{Key: "k", Limit: 5, Duration: time.Minute}, true
		_, err = limits.Attempts{one}.Take(ctx, nil)
		require.ErrorIs(t, err, errors.ErrUnsupported, name)
		assert.Zero(t, ran, name)
	}
}

func TestDecideNeedsStrategies(t *testing.T) {
	s := standing(t).FixedWindow()
	_, err := limits.Decide(context.Background(), ask(s, "k", 5, 1), ask(nil, "k", 5, 1))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = limits.Decide(context.Background(), ask(nil, "k", 5, 1), ask(s, "k", 5, 1))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = limits.Reserve(context.Background(), ask(nil, "k", 5, 1))
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// What is given back to an admission by All is no more than it took.
func TestAllGivesBackNoMoreThanItTook(t *testing.T) {
	ctx := context.Background()
	s := standing(t).FixedWindow()
	r := weir.Request{Key: "k", Limit: 100, Duration: time.Minute, Cost: 50}
	_, err := s.Run(ctx, &r)
	require.NoError(t, err)
	r.Cost = 5
	_, back, err := ops.Admit(ctx, limits.AllOf(recorder(s, "plain", new([]string), nil)), &r)
	require.NoError(t, err)
	for _, cost := range []uint64{0, 2, 2, 2, 5} {
		require.NoError(t, back(ctx, cost))
	}
	r.Cost = 1
	res, err := ops.Peek(ctx, s, &r)
	require.NoError(t, err)
	assert.EqualValues(t, 51, res.TotalRequests)
}

// What an All has taken is given back if a limit that decides last denies, or fails.
func TestAllIsGivenBack(t *testing.T) {
	l := standing(t)
	one, other := l.FixedWindow().Limit(5, time.Minute), l.SlidingLog().Limit(5, time.Minute)
	both, down := limits.All(one, other), errors.New("down")
	for _, of := range []error{nil, down} {
		last := runOnly(func() (*weir.Result, error) { return new(weir.Result), of })
		for _, s := range []weir.Strategy{both, ops.Around(both)} {
			d, err := limits.Decide(t.Context(), ask(s, "k", 0, 2), ask(last, "k", 5, 1))
			require.ErrorIs(t, err, of)
			assert.False(t, d.Allowed())
		}
		for _, m := range []limit{one, other, both} {
			out, err := m.Peek(t.Context(), "k")
			require.NoError(t, err)
			assert.Zero(t, out.TotalRequests)
		}
	}
}

// storing is a Strategy whose store cannot be compared, and whose ops do not go together.
type storing struct{ *weir.WindowCounter }

func (s storing) About() *weir.About {
	a := *s.WindowCounter.About()
	a.Of, a.Limiter, a.Store, a.Verbs = s, nil, []int{1}, weir.VerbsOf(weir.OpTake, weir.OpReturn)
	return &a
}

func (s storing) Do(ctx context.Context, ops []*weir.Op) {
	if len(ops) > 1 {
		panic("called for two")
	}
	s.WindowCounter.Do(ctx, ops)
}

func TestStoresThatCannotBeComparedDecideAlone(t *testing.T) {
	s := standing(t).FixedWindow()
	d, err := limits.Decide(context.Background(), ask(storing{s}, "a", 5, 1),
		ask(storing{s}, "b", 5, 1))
	require.NoError(t, err)
	assert.True(t, d.Allowed())
}

// A Counter sets the Source of an Attempt, whether or not it gives back.
func TestSourceOfOneThatCannotGiveBack(t *testing.T) {
	s := standing(t).FixedWindow()
	irrevocable := ops.Around(s)
	*irrevocable.About() = weir.About{Of: irrevocable, Verbs: weir.VerbsOf(weir.OpTake)}
	l := limits.Attempts{limits.NewAttempt(irrevocable)}
	l[0].Op.Request = weir.Request{Key: "a", Limit: 5, Duration: time.Hour}
	allowed, err := l.Take(context.Background(), nil)
	require.NoError(t, err)
	assert.True(t, allowed)
	assert.Equal(t, weir.FromLocal, l[0].Op.Source)
}

// failing returns s as a Strategy of another process, whose calls fail with what why returns.
func failing(s weir.Strategy, why func(ctx context.Context) error) *fake {
	return newFake(s, func(ctx context.Context, op *weir.Op, next func()) {
		if op.Err = why(ctx); op.Err == nil {
			next()
		}
	})
}

// A cost that has arisen counts, whether its caller is gone or nobody can decide on it.
func TestArisenCostsCount(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{Now: time.Now})
	s, down := l.FixedWindow(), true
	undecided, err := fallback.New(failing(s, func(context.Context) error {
		if down {
			return errors.New("down")
		}
		return nil
	}), s,
		fallback.Config{OnFail: fallback.FailOpen, Timeout: time.Minute})
	require.NoError(t, err)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for key, of := range map[string]weir.Strategy{"gone": failing(s, context.Context.Err), "undecided": undecided} {
		ctx := context.Background()
		if key == "gone" {
			ctx = ended
		}
		attempts := limits.Attempts{limits.NewAttempt(of)}
		attempts[0].Op.Request, attempts[0].Afterwards = weir.Request{Key: key, Limit: 5, Cost: 3,
			Duration: 24 * time.Hour}, true
		_, err := attempts.Take(ctx, nil)
		require.NoError(t, err)
		assert.EqualValues(t, 3, attempts[0].Op.Result.TotalRequests, key)
		down = false // what undecided owes is charged with the next decision
		res := mustRun(t, of, &weir.Request{Key: key, Limit: 5, Duration: 24 * time.Hour})
		assert.EqualValues(t, 4, res.TotalRequests, key)
	}
}

// Left is the time from the decision to ExpiresAt, of admissions and denials, run and peeked at, by
// known callers and new ones; it is 0 where the Strategy does not say.
func TestLeftIsTheTimeFromTheDecision(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_123)
	for _, s := range every(t)(func() time.Time { return now })[:6] {
		for _, key := range []string{"a", "longer than a slot has room for"} {
			l := limits.Attempts{limits.NewAttempt(s)}
			l[0].Op.Request = weir.Request{Key: key, Limit: 3, Duration: time.Minute}
			for i := range 10 {
				now = now.Add(1234567 * time.Nanosecond)
				l[0].Look = i%2 == 1
				allowed, err := l.Take(t.Context(), nil)
				require.NoError(t, err)
				require.Equal(t, i < 6 || l[0].Look, allowed, "%s, call %d", ops.Name(s), i)
				assert.Equal(t, l[0].Op.Result.ExpiresAt.Sub(now), l[0].Op.Left, "%s, call %d", ops.Name(s), i)
			}
		}
		other := limits.Attempts{limits.NewAttempt(struct{ weir.Strategy }{s})}
		other[0].Op.Request = weir.Request{Key: "c", Limit: 3, Duration: time.Minute}
		_, err := other.Take(t.Context(), nil)
		require.NoError(t, err)
		assert.Zero(t, other[0].Op.Left)
	}
}
