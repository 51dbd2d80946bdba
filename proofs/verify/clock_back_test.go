package verify

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// stepBack uses up a limit, advances the clock until late after every hit has expired, sweeps, and
// steps the clock back. It returns the Results of Peek before and after.
func stepBack(t *testing.T, s subject, timeout, late time.Duration) (before, after *weir.Result) {
	now := time.UnixMilli(9)
	clock := func() time.Time { return now }
	l := newLimiter(t, weir.Config{Now: clock, Timeout: timeout, SweepEvery: still})
	strategy := s.make(l, clock)
	r := &weir.Request{Key: "id", Limit: 3, Duration: 10 * time.Minute}
	over := now
	for range r.Limit {
		res, err := strategy.Run(t.Context(), r)
		require.NoError(t, err)
		if res.Allowed() {
			over = res.ExpiresAt
		}
	}
	before, err := ops.Peek(t.Context(), strategy, r)
	require.NoError(t, err)
	require.False(t, before.Allowed())
	used := now
	now = over.Add(late)
	l.Sweep()
	now = used
	after, err = ops.Peek(t.Context(), strategy, r)
	require.NoError(t, err)
	return before, after
}

func TestStepBackWithinTimeoutLosesNothing(t *testing.T) {
	for _, s := range subjects() {
		t.Run(s.name, func(t *testing.T) {
			for _, late := range []time.Duration{0, 5 * time.Second, time.Minute - 1} {
				before, after := stepBack(t, s, time.Minute, late)
				assert.Equal(t, before, after, "swept %v after every hit had expired", late)
			}
			_, after := stepBack(t, s, 1, time.Minute)
			assert.True(t, after.Allowed(), "the sweep removed nothing")
		})
	}
}

// peekLater peeks at later instants between the calls of a strategy, and then steps the clock back.
func peekLater(t *rapid.T, s weir.Strategy, now *int64, r *weir.Request) {
	was := *now
	for range rapid.IntRange(0, 3).Draw(t, "peeks") {
		*now = was + rapid.Int64Range(0, 40).Draw(t, "later")
		_, err := ops.Peek(context.Background(), s, r)
		require.NoError(t, err)
	}
	*now = was
}

// peekThatCounts is a strategy whose Peek counts.
type peekThatCounts struct{ weir.Strategy }

func (s peekThatCounts) About() *weir.About { return weir.CounterOf(s.Strategy).About().By(s) }

func (s peekThatCounts) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		op.Verb = weir.OpTake
		_ = weir.Do(ctx, s.Strategy, op)
	}
}

// peeksLeaveNoTrace makes random calls on two limiters, of which only one is peeked at, also at
// later instants. It reports whether their results differ.
func peeksLeaveNoTrace(t *rapid.T, s subject, peeked func(weir.Strategy) weir.Strategy) (differs bool) {
	now := rapid.SampledFrom(starts).Draw(t, "start")
	clock := func() time.Time { return at(now) }
	timeout := rapid.SampledFrom([]time.Duration{1, time.Minute}).Draw(t, "timeout")
	cfg := weir.Config{Now: clock, Timeout: timeout, SweepEvery: still}
	var limiters [2]*weir.Limiter
	var strategies [2]weir.Strategy
	for i := range limiters {
		l, err := weir.New(cfg)
		require.NoError(t, err)
		defer l.Close()
		limiters[i], strategies[i] = l, s.make(l, clock)
	}
	for range rapid.IntRange(1, 20).Draw(t, "calls") {
		a := ask{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id"), 10, 3,
			rapid.Int64Range(1, 4).Draw(t, "cost")}
		peekLater(t, peeked(strategies[1]), &now, a.request())
		now += rapid.Int64Range(0, 6).Draw(t, "pause")
		if rapid.Bool().Draw(t, "sweep") {
			limiters[0].Sweep()
			limiters[1].Sweep()
		}
		peekLater(t, peeked(strategies[1]), &now, a.request())
		alone, err := strategies[0].Run(context.Background(), a.request())
		require.NoError(t, err)
		spied, err := strategies[1].Run(context.Background(), a.request())
		require.NoError(t, err)
		if *alone != *spied || limiters[0].Stats().Buckets != limiters[1].Stats().Buckets {
			return true
		}
	}
	return false
}

// Peek changes nothing, even if it is called at a later instant than the next Run: a Run at 0, a
// Peek at 1000 ms and a Run at 999 ms have the same results as without the Peek.
func TestPeekChangesNothing(t *testing.T) {
	checks(t, slow.N(10, 80, 100_000))
	for _, s := range subjects() {
		t.Run(s.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				if peeksLeaveNoTrace(t, s, func(s weir.Strategy) weir.Strategy { return s }) {
					t.Fatal("a Peek changed what Run answers, or how many buckets there are")
				}
			})
		})
		t.Run(s.name+" at 999 ms", func(t *testing.T) {
			now := int64(0)
			clock := func() time.Time { return at(now) }
			strategy := s.make(newLimiter(t, weir.Config{Now: clock, SweepEvery: still}), clock)
			control := s.make(newLimiter(t, weir.Config{Now: clock, SweepEvery: still}), clock)
			r := &weir.Request{Key: "id", Limit: 5, Duration: time.Second, Cost: 2}
			for _, now = range []int64{0, 999, 1001, 1999} {
				want, err := control.Run(t.Context(), r)
				require.NoError(t, err)
				got, err := strategy.Run(t.Context(), r)
				require.NoError(t, err)
				require.Equal(t, want, got, "at %d ms", now)
				then := now
				now = now/1000*1000 + 1000
				_, err = ops.Peek(t.Context(), strategy, r)
				require.NoError(t, err)
				now = then
			}
		})
	}
}

func TestPeekControlThatCountsIsRejected(t *testing.T) {
	for _, s := range subjects() {
		rejected := false
		rapid.Check(t, func(t *rapid.T) {
			rejected = rejected || peeksLeaveNoTrace(t, s, func(s weir.Strategy) weir.Strategy {
				return peekThatCounts{s}
			})
		})
		assert.True(t, rejected, s.name)
	}
}

// inEpoch is the model of a strategy whose state fits a slot: it decides at the reading, and not
// before the window of the state, or the last admission of a bucket.
type inEpoch struct {
	model
	admitted int64
}

func (m inEpoch) ask(now int64, a ask) (model, answer, bool) {
	switch s := m.model.(type) {
	case sliding:
		if s.begun {
			now = max(now, s.window*a.scale)
		}
	case anchored:
		if s.begun {
			now = max(now, s.start)
		}
	case bucket:
		if s.begun {
			now = max(now, m.admitted)
		}
	}
	next, res, ok := m.model.ask(now, a)
	if res.expires == sought {
		res.expires = soonest(m.model, now, a)
	}
	if res.allowed {
		return inEpoch{next, now}, res, ok
	}
	return m, res, ok
}

// latest is the model of a strategy that never goes back in time for a key whose state is kept. Its
// callers may decide later than they read the clock.
type latest struct {
	model model
	kept  bool
	now   int64
}

func (m latest) ask(now int64, a ask) (model, answer, bool) {
	at := now
	if m.kept {
		at = max(now, m.now)
	}
	next, res, ok := m.model.ask(at, a)
	if res.expires == sought {
		res.expires = soonest(m.model, at, a)
	}
	// a request that can never pass creates no state
	if m.kept || res.allowed || res.expires != never {
		m = latest{next, true, at}
	}
	return m, res, ok
}

// untilIdle is latest for a strategy that forgets a key, with its latest instant, when no lease is
// left.
type untilIdle struct{ latest }

func (m untilIdle) ask(now int64, a ask) (model, answer, bool) {
	next, res, ok := m.latest.ask(now, a)
	m.latest = next.(latest)
	live := func(h hit) bool { return m.now < h.at+a.scale }
	if !slices.ContainsFunc(m.model.(rolling).hits, live) {
		m.latest = latest{model: rolling{}}
	}
	return m, res, ok
}

// Readings of the clock that arrive out of order admit no more than ordered ones: a strategy
// decides at the reading, or at a later one that came before, never at an earlier one.
func TestReadingsOutOfOrder(t *testing.T) {
	checks(t, slow.N(30, 400, 100_000))
	for _, s := range subjects() {
		if strings.HasSuffix(s.name, "FixedWindow") {
			continue // it counts in the window of the reading: see TestFixedWindowReadOutOfOrder
		}
		t.Run(s.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				now := rapid.SampledFrom(starts).Draw(t, "start")
				clock := func() time.Time { return at(now) }
				l, err := weir.New(weir.Config{Now: clock, SweepEvery: still})
				require.NoError(t, err)
				defer l.Close()
				strategy := s.make(l, clock)
				scale := rapid.SampledFrom([]int64{1, 7, 10}).Draw(t, "scale")
				limit := rapid.Int64Range(1, 5).Draw(t, "limit")
				var m model = latest{model: s.model}
				switch s.model.(type) {
				case rolling:
					if s.name == "InFlight" {
						m = untilIdle{latest{model: s.model}}
					}
				case sliding, bucket:
					m = inEpoch{model: s.model}
				case anchored:
					if s.name == "Counter" {
						m = inEpoch{model: s.model}
					}
				}
				for range rapid.IntRange(1, 40).Draw(t, "asks") {
					now += rapid.Int64Range(-8, 9).Draw(t, "pause")
					a := ask{"id", scale, limit, rapid.Int64Range(1, 6).Draw(t, "cost")}
					peeked, err := ops.Peek(context.Background(), strategy, a.request())
					require.NoError(t, err)
					if got := answerOf(peeked); !answered(m, now, a, got) {
						t.Fatalf("at %d Peek(%+v) = %+v, not a result of %+v", now, a, got, m)
					}
					res, err := strategy.Run(context.Background(), a.request())
					require.NoError(t, err)
					next, ok := gives(m, now, a, answerOf(res))
					if !ok {
						t.Fatalf("at %d Run(%+v) = %+v, not a result of %+v", now, a, answerOf(res), m)
					}
					m = next
				}
			})
		})
	}
}

// A delayed hit counts in the window of its reading while that window is kept.
func TestFixedWindowReadOutOfOrder(t *testing.T) {
	checks(t, slow.N(30, 500, 100_000))
	rapid.Check(t, func(t *rapid.T) {
		m := reference{now: rapid.SampledFrom(starts).Draw(t, "start"), counts: map[window]*counted{}}
		l, err := weir.New(weir.Config{Now: func() time.Time { return at(m.now) }, SweepEvery: still})
		require.NoError(t, err)
		defer l.Close()
		for range rapid.IntRange(1, 60).Draw(t, "hits") {
			m.now += rapid.Int64Range(-8, 9).Draw(t, "pause")
			if rapid.Bool().Draw(t, "sweep") {
				l.Sweep()
			}
			a := ask{"id", rapid.SampledFrom([]int64{1, 7, 10}).Draw(t, "scale"),
				rapid.Int64Range(1, 4).Draw(t, "limit"), rapid.Int64Range(1, 5).Draw(t, "cost")}
			want, _ := m.hit(a.id, a.scale, a.limit, a.cost)
			res, err := l.FixedWindow().Run(context.Background(), a.request())
			require.NoError(t, err)
			if got := answerOf(res); got != want {
				t.Fatalf("at %d Run(%+v) = %+v, want %+v", m.now, a, got, want)
			}
		}
	})
}
