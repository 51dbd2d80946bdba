package pages

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/overload"
)

// fits returns the middleware of docs/overload.md.
func fits(limiter *weir.Limiter) (func(http.Handler) http.Handler, error) {
	places, err := overload.New(limiter, overload.Config{}) // Goal: 250 * time.Millisecond, if known
	if err != nil {
		return nil, err
	}
	return httplimit.New(nil, httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Overload: places,
		Class: func(r *http.Request) overload.Class {
			switch r.URL.Path {
			case "/login":
				return overload.Critical
			case "/export":
				return overload.Sheddable
			}
			return overload.Normal
		},
	}), nil
}

func TestLogInsWhileTheServiceIsFull(t *testing.T) {
	limiter := newLimiter()
	defer limiter.Close()
	places, err := overload.New(limiter, overload.Config{Most: 10})
	require.NoError(t, err)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)

	login := httplimit.New(perClient, httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Overload: places,
		Class: func(*http.Request) overload.Class { return overload.Critical },
	})
	others := httplimit.New(perClient, httplimit.Config{ // the same places, and the same limit
		Extractor: httplimit.RemoteAddr(), Overload: places,
	})

	for range 9 {
		_, err := places.Enter(t.Context(), "", overload.Normal)
		require.NoError(t, err)
	}
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for want, guard := range map[int]func(http.Handler) http.Handler{200: login, 503: others} {
		w := httptest.NewRecorder()
		guard(ok).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		assert.Equal(t, want, w.Code)
	}
}

func TestWhatADatabaseCanTake(t *testing.T) {
	limiter := newLimiter()
	defer limiter.Close()
	places, err := overload.New(limiter, overload.Config{Most: 10, Goal: 50 * time.Millisecond})
	require.NoError(t, err)
	run := func(context.Context) error { return nil }

	query := func(ctx context.Context, tenant string, class overload.Class) error {
		place, err := places.Enter(ctx, tenant, class)
		if err != nil {
			return err // an *overload.FullError has RetryAfter
		}
		defer place.Drop() // unless it has ended: the query panics
		err = run(ctx)
		if err != nil {
			place.Abandon() // what fails quickly does not make the database quick
			return err
		}
		place.Leave()
		return nil
	}

	assert.NoError(t, query(t.Context(), "ann", overload.Normal))
	run = func(context.Context) error { return assert.AnError }
	assert.ErrorIs(t, query(t.Context(), "ann", overload.Normal), assert.AnError)
	assert.Zero(t, places.Stats().InFlight)
	for range 9 {
		_, err := places.Enter(t.Context(), "", overload.Normal)
		require.NoError(t, err)
	}
	var full *overload.FullError
	require.ErrorAs(t, query(t.Context(), "ann", overload.Normal), &full)
	assert.LessOrEqual(t, time.Second, full.RetryAfter)
}

// With every request inside of the one before it, exports are refused first, and log-ins last.
func TestWhatIsSheddableIsRefusedFirst(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	guard, err := fits(limiter)
	require.NoError(t, err)
	inside := map[string]int{}
	var h http.Handler
	n := 0
	h = guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inside[r.URL.Path]++
		for _, path := range []string{"/export", "/", "/login"} {
			next := httptest.NewRequest(http.MethodGet, path, http.NoBody)
			n++
			next.RemoteAddr = "192.0.2." + string(rune('0'+n%10)) + ":1"
			w := httptest.NewRecorder()
			h.ServeHTTP(w, next)
			if w.Code == http.StatusOK {
				return
			}
		}
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/export", http.NoBody))
	assert.Greater(t, inside["/export"], inside["/"])
	assert.Positive(t, inside["/login"])
}
