package fallback_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/weirtest"
)

// ahead returns a primary whose clock is ahead, and whose Results are of the clock here.
func ahead(s weir.Strategy, by time.Duration) weir.Strategy {
	var a *around
	a = newAround(s, func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
		if op.Verb != weir.OpTake {
			op.Err = op.Unsupported(a.about)
			return
		}
		next(ctx, op)
		op.Result.ExpiresAt = op.Result.ExpiresAt.Add(-by)
	})
	a.about.Verbs = weir.VerbsOf(weir.OpTake)
	return a
}

// The windows of local are those of the clock here. Wherever primary's begin, an outage over the
// end of local's adds nothing to a window of primary, and one of several windows nothing to any.
func TestOutageWhereWindowsBeginApart(t *testing.T) {
	kinds := map[string]strategyOf{
		"FixedWindow":   fixedWindow,
		"SlidingWindow": strategies()["SlidingWindow"],
		"Day":           func(l *weir.Limiter) weir.Strategy { return l.Calendar(weir.Day, time.UTC) },
	}
	for name, of := range kinds {
		for _, part := range []time.Duration{0, 1, 7, 30, 59, -1, -20, -30} { // of 60
			period := time.Minute
			if name == "Day" {
				period = 24 * time.Hour
			}
			by := part * period / 60
			here := weirtest.NewClock(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
			there := limiterOn(t, func() time.Time { return here.Now().Add(by) })
			s := newServer(func() weir.Strategy { return ahead(of(there), by) })
			front := weir.Strategy(onlyRun{s})
			if name == "Day" {
				front = s
			}
			f := newFallback(t, front, of(limiterOn(t, here.Now)),
				with(fallback.Config{Now: here.Now, Timeout: time.Minute}))
			here.Advance((period - by%period) % period) // primary's window begins
			admitted := most(t, f, hundred)
			require.EqualValues(t, 100, admitted)
			s.fails(errDown)
			for range 59 {
				here.Advance(period / 60)
				admitted += most(t, f, hundred)
			}
			assert.EqualValues(t, 100, admitted, "%s, %v ahead", name, by)
			for range 3 {
				admitted = 0
				for range 60 {
					here.Advance(period / 60)
					admitted += most(t, f, hundred)
				}
				assert.LessOrEqual(t, admitted, uint64(100), "%s, %v ahead", name, by)
				assert.Positive(t, admitted, "%s, %v ahead", name, by)
			}
		}
	}
}

// behindWindowsAhead returns a Fallback whose primary is down since it has shown that its clock is
// 20 s ahead, 5 s into one of its windows of a minute, and the clock here.
func behindWindowsAhead(t *testing.T) (*fallback.Fallback, *weirtest.Clock) {
	here := weirtest.NewClock(time.Date(2026, 1, 2, 0, 0, 30, 0, time.UTC))
	const by = 20 * time.Second
	there := limiterOn(t, func() time.Time { return here.Now().Add(by) })
	s := newServer(func() weir.Strategy { return ahead(there.FixedWindow(), by) })
	f := newFallback(t, s, limiterOn(t, here.Now).FixedWindow(),
		with(fallback.Config{Now: here.Now, Timeout: time.Minute}))
	ask(t, f, weir.Request{Key: "b", Limit: 1, Duration: time.Hour})
	s.fails(errDown)
	here.Advance(15 * time.Second) // 5 s into a window of primary
	return f, here
}

// A caller that primary has not answered is counted in its windows too, as those of others show
// them, also of another Duration.
func TestWindowsOfCallersWithoutAnAnswer(t *testing.T) {
	f, here := behindWindowsAhead(t)
	admitted := most(t, f, hundred)
	here.Advance(20 * time.Second) // 5 s into one of local
	admitted += most(t, f, hundred)
	assert.EqualValues(t, 100, admitted)
	res, _ := ask(t, f, hundred)
	assert.Equal(t, 35*time.Second, res.RetryAfter(here.Now()), "primary's window ends")
	full := ops.Do(t.Context(), f, weir.Op{Request: hundred, Full: true}).FullAt
	assert.Equal(t, 35*time.Second, full.Sub(here.Now()), "so that nothing counts")
	here.Advance(35 * time.Second)
	assert.EqualValues(t, 100, most(t, f, hundred), "as local's has begun anew, too")
}

// onlyRun hides what else a primary can do.
type onlyRun struct{ weir.Strategy }

// A denial for want of room in primary's window counts what local has admitted, and not the
// request.
func TestADenialByPrimarysWindowCountsNoMoreThanTheLimit(t *testing.T) {
	f, here := behindWindowsAhead(t)
	res, _ := ask(t, f, hundred)
	require.True(t, res.Allowed())
	here.Advance(20 * time.Second) // 5 s into one of local
	require.EqualValues(t, 99, most(t, f, hundred))
	res, _ = ask(t, f, hundred)
	assert.False(t, res.Allowed(), "though local has room for one")
	assert.EqualValues(t, 100, res.TotalRequests)
}
