package limits_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/limits"
)

// batchStore is a store elsewhere, which records the verbs of each call, or fails.
type batchStore struct {
	calls [][]weir.Verb
	err   error
}

// batching is a Strategy of a batchStore, which counts by another one.
type batching struct {
	inner weir.Counter
	store *batchStore
	about weir.About
}

func newBatching(s weir.Strategy, store *batchStore) *batching {
	b := &batching{inner: weir.CounterOf(s), store: store}
	b.about = weir.About{Of: b, Counts: b, Store: store,
		Verbs: weir.VerbsOf(weir.OpTake, weir.OpPeek, weir.OpReturn, weir.OpCharge)}
	return b
}

func (b *batching) About() *weir.About { return &b.about }

func (b *batching) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, b, r)
}

func (b *batching) Do(ctx context.Context, ops []*weir.Op) {
	var verbs []weir.Verb
	for _, op := range ops {
		verbs = append(verbs, op.Verb)
		was := op.Counter
		if op.Err = b.store.err; op.Err == nil {
			_ = weir.Do(ctx, was.(*batching).inner, op)
		}
		op.Counter = was
	}
	b.store.calls = append(b.store.calls, verbs)
}

// many are n Attempts by s on keys of their own, with a limit of 1.
func many(s weir.Strategy, n int) limits.Attempts {
	attempts := make(limits.Attempts, n)
	for i := range attempts {
		attempts[i] = limits.NewAttempt(s)
		attempts[i].Op.Request = weir.Request{Key: strconv.Itoa(i), Limit: 1, Duration: time.Minute}
	}
	return attempts
}

// Of several limits on one count one takes. One that was left out before is not that one.
func TestCountOnceLeavesOneThatTakes(t *testing.T) {
	attempts := many(standing(t).FixedWindow(), 4)
	for i := range attempts[:3] {
		attempts[i].Op.Key = "a"
	}
	attempts[0].Exempt = true
	attempts.CountOnce()
	var exempt []bool
	for i := range attempts {
		exempt = append(exempt, attempts[i].Exempt)
	}
	assert.Equal(t, []bool{true, false, true, false}, exempt)
}

// An error of a limit is put to tolerate once, and not again for each limit that decides after it.
func TestAnErrorIsToleratedOnce(t *testing.T) {
	s := standing(t).FixedWindow()
	attempts := many(newElsewhere(s, errors.New("down")), 100)
	asked := 0
	allowed, err := attempts.Take(t.Context(), func(error) bool { asked++; return true })
	require.NoError(t, err)
	assert.True(t, allowed)
	assert.Equal(t, 100, asked)
}

// A Counter that cannot be read may be able to count: the error of a peek before the decision is
// none of the decision, which follows.
func TestAPeekThatFailsDecidesNothing(t *testing.T) {
	l, takes := standing(t), 0
	about := weir.About{Verbs: weir.VerbsOf(weir.OpTake, weir.OpPeek, weir.OpReturn), Limiter: l}
	unread := weir.NewCounter(about, func(_ context.Context, op *weir.Op) {
		if op.Verb == weir.OpPeek {
			op.Err = errors.New("cannot be read")
			return
		}
		takes++
		op.Result = op.Decide(0, time.Now().Add(op.Duration))
	})
	both := limits.All(l.FixedWindow().Limit(9, time.Hour), weir.MustLimit(unread, 9, time.Hour))
	out, err := both.Take(t.Context(), "k", 1)
	require.NoError(t, err)
	assert.True(t, out.Allowed())
	assert.Equal(t, 1, takes)
}

// After a denial, a store that fails is peeked at in one call, which is not repeated for each of
// its limits.
func TestAStoreThatFailsIsPeekedAtOnce(t *testing.T) {
	l := standing(t)
	store := &batchStore{err: errors.New("down")}
	attempts := append(many(newBatching(l.FixedWindow(), store), 50), many(l.SlidingWindow(), 2)...)
	attempts[50].Op.Request.Limit = 0
	allowed, err := attempts.Take(t.Context(), nil)
	require.NoError(t, err)
	assert.False(t, allowed)
	assert.Equal(t, [][]weir.Verb{slices.Repeat([]weir.Verb{weir.OpPeek}, 50)}, store.calls)
}

// Limits of several stores decide in one call of each, in the order of the first limit of each.
func TestLimitsOfOneStoreDecideTogether(t *testing.T) {
	l := standing(t)
	var stores [6]*batchStore // more than are compared with each other
	var attempts limits.Attempts
	for i := range 60 {
		if stores[i%6] == nil {
			stores[i%6] = new(batchStore)
		}
		attempts = append(attempts, many(newBatching(l.FixedWindow(), stores[i%6]), 1)...)
		attempts[i].Op.Request.Key = strconv.Itoa(i)
	}
	attempts[57].Op.Request.Limit = 0 // of the fourth store
	allowed, err := attempts.Take(t.Context(), nil)
	require.NoError(t, err)
	assert.False(t, allowed)
	for i, store := range stores {
		want := [][]weir.Verb{slices.Repeat([]weir.Verb{weir.OpTake}, 10)}
		switch {
		case i == 3: // the denial takes nothing
			want = append(want, slices.Repeat([]weir.Verb{weir.OpReturn}, 9))
		case i < 3:
			want = append(want, slices.Repeat([]weir.Verb{weir.OpReturn}, 10))
		default:
			want[0] = slices.Repeat([]weir.Verb{weir.OpPeek}, 10)
		}
		assert.Equal(t, want, store.calls, "store %d", i)
	}
}

// Costs that are known afterwards are counted in one call, and looks made in one, unless one is on
// the key of another: then in order.
func TestMeasuresOnOneKeyAreInOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		keys  string // one of each Attempt; of those in upper case the cost is known afterwards
		calls int    // of the store
		over  string // the keys whose Attempt is over its limit, of 1
	}{
		"looks and costs on keys of their own": {"aBcDeFgHiJ", 2, ""},
		"a look after a cost":                  {"Aa", 2, ""},
		"a look before a cost":                 {"aA", 2, ""},
		"looks after two costs":                {"AAaaa", 4, "Aaaa"},
		"each cost after another":              {"AAA", 5, "AA"},
	} {
		t.Run(name, func(t *testing.T) {
			store := new(batchStore)
			attempts := many(newBatching(standing(t).FixedWindow(), store), len(tt.keys))
			for i, key := range []byte(tt.keys) {
				m := &attempts[i]
				m.Op.Request.Key, m.Afterwards = string(key|0x20), key < 'a'
				m.Look = !m.Afterwards
			}
			_, err := attempts.Take(t.Context(), nil)
			require.NoError(t, err)
			over := ""
			for i := range attempts {
				if attempts[i].Denies() {
					over += tt.keys[i : i+1]
				}
			}
			assert.Equal(t, tt.over, over)
			assert.Len(t, store.calls, tt.calls)
		})
	}
}

// A client that leaves, here while the 100th limit decides, ends the decision on many limits, and
// what they have taken is given back; a cost that is known afterwards is counted all the same.
func TestAClientThatLeavesEndsTheDecision(t *testing.T) {
	s := standing(t).FixedWindow()
	for _, afterwards := range []bool{false, true} {
		ctx, leave := context.WithCancel(t.Context())
		runs := 0
		attempts := many(newFake(s, func(_ context.Context, op *weir.Op, next func()) {
			if op.Verb == weir.OpTake {
				runs++
			}
			if runs == 100 {
				leave()
			}
			next()
		}, weir.OpTake, weir.OpPeek, weir.OpReturn, weir.OpCharge), 10_000)
		for i := range attempts {
			attempts[i].Afterwards, attempts[i].Op.Request.Limit = afterwards, 5
		}
		_, err := attempts.Take(ctx, nil)
		require.ErrorIs(t, err, context.Canceled)
		if afterwards {
			assert.Equal(t, 10_000, runs)
		} else {
			assert.Less(t, runs, 200)
		}
		for i := range attempts {
			want := uint64(0)
			if afterwards {
				want = 1
			}
			require.Equal(t, want, counted(t, s, &attempts[i].Op.Request), "limit %d", i)
		}
	}
}

// So it does where all limits are in this process.
func TestAClientThatHasLeftGetsNoDecisionOnManyLimits(t *testing.T) {
	s := standing(t).FixedWindow()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	for n, ends := range map[int]bool{1: false, 4: false, 1000: true} {
		attempts := many(s, n)
		_, err := attempts.Take(ctx, nil)
		assert.Equal(t, ends, errors.Is(err, context.Canceled), "%d limits", n)
		if ends {
			assert.Zero(t, counted(t, s, &attempts[n-1].Op.Request))
			assert.Zero(t, counted(t, s, &attempts[10].Op.Request))
		}
	}
}

// Reserve of several limits on one store takes one call, and is given back to the admissions
// themselves.
func TestReserveOfTwoOnOneStore(t *testing.T) {
	l := standing(t)
	store := new(batchStore)
	s := newBatching(l.SlidingLog(), store)
	one, two := ask(s, "a", 9, 4), ask(s, "b", 9, 4)
	v, err := limits.Reserve(t.Context(), one, two)
	require.NoError(t, err)
	require.True(t, v.Allowed())
	assert.Equal(t, [][]weir.Verb{{weir.OpTake, weir.OpTake}}, store.calls)
	require.NoError(t, ops.Reset(t.Context(), l.SlidingLog(), &one.Request))
	mustRun(t, s, &one.Request) // of another request, since the Reset
	require.NoError(t, v.Cancel(t.Context()))
	assert.EqualValues(t, 4, counted(t, s, &one.Request))
	assert.Zero(t, counted(t, s, &two.Request))
}

// CommitEach has one cost for each ask; else nothing is corrected, and a Commit still counts.
func TestCommitEachOfMoreOrFewerCosts(t *testing.T) {
	s := standing(t).FixedWindow()
	one, two := ask(s, "a", 9, 4), ask(s, "b", 9, 4)
	v, err := limits.Reserve(t.Context(), one, two)
	require.NoError(t, err)
	for _, costs := range [][]uint64{{1, 2, 3}, {1}, nil} {
		require.ErrorContains(t, v.CommitEach(t.Context(), costs...), "for 2 limits")
		assert.EqualValues(t, 4, counted(t, s, &one.Request))
	}
	require.NoError(t, v.CommitEach(t.Context(), 1, 2))
	assert.EqualValues(t, 1, counted(t, s, &one.Request))
	assert.EqualValues(t, 2, counted(t, s, &two.Request))
}

// All of two limits that cannot give back is a mistake: only one can decide last.
func TestAllOfTwoThatCannotGiveBack(t *testing.T) {
	limit := func() *weir.Limit {
		m, err := weir.NewLimit(&onlyRuns{standing(t).FixedWindow()}, 5, time.Minute)
		require.NoError(t, err)
		return m
	}
	first, second := limit(), limit()
	assert.NotPanics(t, func() { limits.All(first, standing(t).FixedWindow().Limit(5, time.Minute)) })
	assert.PanicsWithValue(t, "limits: two strategies decide last: limits: limits_test.onlyRuns cannot "+
		"refund: unsupported operation", func() { limits.All(first, second) })
}

// onlyRuns has no method of a Strategy but Run.
type onlyRuns struct{ strategy weir.Strategy }

func (s *onlyRuns) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return s.strategy.Run(ctx, r)
}
