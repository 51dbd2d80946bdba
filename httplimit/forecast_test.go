package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/weirtest"
)

// t is when more is available: a client that waits that long is admitted, and one that comes a
// second earlier is denied. Ten requests a second use up a limit of 60 a minute.
func TestTheFieldsSayWhenMoreIsAvailable(t *testing.T) {
	for _, style := range []httplimit.HeaderStyle{httplimit.HeadersDraft, httplimit.HeadersLegacy} {
		for name := range strategies(newLimiter(t, at(noon))) {
			clock := weirtest.NewClock(noon)
			s := strategies(newLimiter(t, clock.Now))[name]
			guard := httplimit.New(s, httplimit.Config{
				Extractor: httplimit.RemoteAddr(), Limit: 60, Duration: time.Minute, Now: clock.Now,
				Headers: style,
			})(&hello{})
			ask := func() *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				guard.ServeHTTP(w, from("203.0.113.7:1"))
				return w
			}
			var last *httptest.ResponseRecorder
			for used := false; !used; {
				clock.Advance(100 * time.Millisecond)
				last = ask()
				require.Equal(t, http.StatusOK, last.Code)
				used = strings.Contains(last.Header().Get("RateLimit"), ";r=0") ||
					last.Header().Get("X-RateLimit-Remaining") == "0"
			}
			assert.Equal(t, ask().Header().Get("Retry-After"),
				strconv.FormatInt(resetIn(t, last, clock.Now()), 10),
				"%s: the last admission has the same reset as the denial", name)
			wait := resetIn(t, last, clock.Now())
			clock.Advance(time.Duration(wait-1) * time.Second)
			if wait > 1 {
				require.Equal(t, http.StatusTooManyRequests, ask().Code, name)
			}
			clock.Advance(time.Second)
			require.Equal(t, http.StatusOK, ask().Code, name)
		}
	}
}

// resetIn returns the seconds until more is available, as stated by the fields of w.
func resetIn(t *testing.T, w *httptest.ResponseRecorder, now time.Time) int64 {
	t.Helper()
	text := w.Header().Get("X-RateLimit-Reset")
	if text == "" {
		_, after, ok := strings.Cut(w.Header().Get("RateLimit"), ";t=")
		require.True(t, ok, w.Header())
		text = after
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	if n > 1e9 {
		n -= now.Unix()
		if now.Nanosecond() > 0 {
			n--
		}
		return max(n, 1)
	}
	return n
}

// A client that follows the fields reaches at least nine tenths of its rate.
func TestAClientThatFollowsTheFieldsReachesItsRate(t *testing.T) {
	for name := range strategies(newLimiter(t, at(noon))) {
		clock := weirtest.NewClock(noon)
		s := strategies(newLimiter(t, clock.Now))[name]
		guard := httplimit.New(s, httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Limit: 60, Duration: time.Minute, Now: clock.Now,
		})(&hello{})
		passed := 0
		for clock.Now().Before(noon.Add(20 * time.Minute)) {
			w := httptest.NewRecorder()
			guard.ServeHTTP(w, from("203.0.113.7:1"))
			require.Equal(t, http.StatusOK, w.Code, "%s: the fields are never too early", name)
			passed++
			if _, t, _ := strings.Cut(w.Header().Get("RateLimit"), ";r=0;t="); t != "" {
				seconds, _ := strconv.Atoi(t)
				clock.Advance(time.Duration(seconds) * time.Second)
			}
		}
		assert.GreaterOrEqual(t, passed, 20*60*9/10, name)
	}
}

// The middleware uses the Forecast of a Strategy if there is one, and otherwise a Peek when nothing
// remains, or if the Strategy counts in this process.
func TestForecastsOfOtherStrategies(t *testing.T) {
	clock := weirtest.NewClock(noon.Add(-20 * time.Second))
	log := newLimiter(t, clock.Now).SlidingLog()
	_, err := log.Run(t.Context(), &weir.Request{
		Key: weir.JoinKey("100/1m", "203.0.113.7"), Limit: 100, Duration: time.Minute})
	require.NoError(t, err)
	clock.Set(noon)
	later := answer(weir.Deny, 100, noon.Add(3*time.Second))
	peeking := func(total uint64) *weirtest.Fake {
		f := admitting(total, time.Minute)
		f.Answer = func(ctx context.Context, r *weir.Request, now time.Time) (weir.Result, error) {
			if r.Cost == 101-total {
				return later(ctx, r, now)
			}
			return answer(weir.Allow, total, noon.Add(time.Minute))(ctx, r, now)
		}
		return f
	}
	for name, row := range map[string]struct {
		s    weir.Strategy
		want string
	}{
		"a forecaster":            {forecasting(40, noon.Add(7*time.Second), nil), `"100/1m";r=60;t=7`},
		"a forecaster that fails": {forecasting(40, time.Time{}, assert.AnError), `"100/1m";r=60;t=60`},
		"neither":                 {noRefund{}, `"100/1m";r=99;t=60`},
		"nothing remains":         {peeking(100), `"100/1m";r=0;t=3`},
		"some remains: no Peek":   {peeking(40), `"100/1m";r=60;t=60`},
		"some remains here":       {ops.Without(log, weir.OpForecast), `"100/1m";r=98;t=40`},
	} {
		w, _ := serve(row.s, hundred(), from("203.0.113.7:1"))
		assert.Equal(t, row.want, w.Header().Get("RateLimit"), name)
	}
}

// forecasting returns a Strategy that has admitted total, and forecasts more, or fails to.
func forecasting(total uint64, more time.Time, err error) weir.Strategy {
	w := ops.Through(admitting(total, time.Minute), func(_ context.Context, op *weir.Op, next func()) {
		if op.Verb == weir.OpForecast {
			op.More, op.Err = more, err
			return
		}
		next()
	})
	w.Is.Verbs |= weir.VerbsOf(weir.OpForecast)
	return w
}
