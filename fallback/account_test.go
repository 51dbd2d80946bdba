package fallback

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/stores/callers"
	"github.com/weirgo/weir/weirtest"
)

// A Reset begins another account, which owes nothing, and is found from then on.
func TestAResetBeginsAnotherAccount(t *testing.T) {
	l, r, now := ledger{Table: callers.New(64, (*account).idle, nil)}, &weir.Request{Key: "a"},
		time.Unix(0, 0)
	before := l.open(r, now, time.Time{})
	before.debts.Add(5, now.Add(time.Minute), now)
	after := l.open(r, now, now.Add(time.Hour))
	require.NotEqual(t, before.number, after.number)
	require.True(t, before.replaced.Load())
	require.False(t, after.replaced.Load())
	require.Zero(t, after.debts.Owed(now))
	require.Equal(t, now.Add(time.Hour), after.reset)
	require.Same(t, after, l.open(r, now, time.Time{}))
}

func TestCountDecreases(t *testing.T) {
	at := time.Unix(0, 0)
	bucket := count{total: 100, at: at, until: at.Add(time.Minute)}
	window := count{total: 100, at: at, until: at.Add(time.Minute), lapses: weir.LapsesWithWindow}
	for after, want := range map[time.Duration]uint64{-time.Second: 100, 0: 100, 30 * time.Second: 50,
		59 * time.Second: 1, time.Minute: 0} {
		assert.Equal(t, want, bucket.now(at.Add(after)), "%v", after)
	}
	assert.EqualValues(t, 100, window.now(at.Add(time.Minute-1)))
	assert.Zero(t, window.now(at.Add(time.Minute)))
}

// Work in flight keeps its caller in the ledger while a call is under way, and not afterwards.
func TestWorkInFlightKeepsNoAccount(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	f, err := New(limiter.InFlight(), limiter.InFlight(), Config{Timeout: time.Minute})
	require.NoError(t, err)
	op := &weir.Op{Verb: weir.OpHold, Request: weir.Request{Key: "a", Limit: 5, Duration: time.Minute}}
	for _, op.Verb = range []weir.Verb{weir.OpHold, weir.OpRenew, weir.OpRelease} {
		f.Do(t.Context(), []*weir.Op{op})
		require.NoError(t, op.Err, op.Verb)
		a := f.ledger.open(&op.Request, time.Now(), time.Time{})
		assert.EqualValues(t, 1, a.users.Load(), op.Verb)
		a.users.Add(-1)
	}
}

// Nor does a decision, with primary up and in an outage.
func TestDecisionsKeepNoAccount(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	for _, primary := range []weir.Strategy{limiter.FixedWindow(), weirtest.FailAll(errTest)} {
		f, err := New(primary, limiter.FixedWindow(), Config{MinCalls: 1, Stall: -1,
			Timeout: time.Minute, AllowUnlike: true})
		require.NoError(t, err)
		op := &weir.Op{Request: weir.Request{Key: "a", Limit: 5, Duration: time.Minute}}
		for _, op.Verb = range []weir.Verb{weir.OpTake, weir.OpTake, weir.OpPeek, weir.OpCharge,
			weir.OpReturn, weir.OpReset} {
			f.Do(t.Context(), []*weir.Op{op})
			require.NoError(t, op.Err, op.Verb)
			a := f.ledger.open(&op.Request, time.Now(), time.Time{})
			assert.EqualValues(t, 1, a.users.Load(), "%v, decided by %v", op.Verb, op.Source)
			a.users.Add(-1)
		}
	}
}

// silent is a Counter that does not answer.
type silent struct{ weir.Counter }

func (s silent) About() *weir.About { return s.Counter.About().By(s) }

func (silent) Do(_ context.Context, ops []*weir.Op) {
	for _, op := range ops {
		op.Err = errTest
	}
}

// A reset that primary has not received is kept for two periods, and for a day at least.
func TestAResetIsKeptForTwoPeriods(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Unix(1_700_000_000, 0)
	limiter, err := weir.New(weir.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	defer limiter.Close()
	tiers := limiter.Tiers(weir.Tier{Limit: 9, Duration: 30 * day})
	months := limiter.Calendar(weir.Month, nil)
	for _, tt := range []struct {
		of    weir.Counter
		per   time.Duration
		lasts time.Duration
	}{
		{limiter.FixedWindow(), time.Hour, day},
		{limiter.FixedWindow(), 40 * day, 80 * day},
		{months, time.Hour, 2 * months.About().Window},
		{tiers, time.Hour, 2 * tiers.About().Longest},
	} {
		f, err := New(silent{tt.of}, tt.of, Config{Now: func() time.Time { return now }})
		require.NoError(t, err)
		r := weir.Request{Key: "a", Limit: 5, Duration: tt.per}
		f.Do(t.Context(), []*weir.Op{{Verb: weir.OpReset, Request: r}})
		if w := tt.of.About().Window; w > 0 {
			r.Duration = w
		}
		a := f.ledger.open(&r, now, time.Time{})
		assert.Equal(t, now.Add(tt.lasts), a.reset, "%v in %v", tt.of.About(), tt.per)
	}
}
