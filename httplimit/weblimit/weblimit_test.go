package weblimit_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/httplimit/weblimit"
	"github.com/weirgo/weir/weirtest"
)

func request() *http.Request { return httptest.NewRequest(http.MethodGet, "/users/7", nil) }

// The guard alone sees the status that the framework will write later, and the framework the error.
func TestStatusIsForTheGuardAlone(t *testing.T) {
	var seen []int
	failed := errors.New("failed")
	guard := weblimit.New[string]("adapter", httplimit.New(&weirtest.Fake{}, httplimit.Config{
		Extractor: httplimit.Pattern(), Limit: 1, Duration: time.Minute,
		CountIf: func(status int) bool { seen = append(seen, status); return true },
	}))
	w := httptest.NewRecorder()
	passed, err := guard.Run("of", w, request(), "/users/:id",
		func(_ http.ResponseWriter, r *http.Request) (int, error) {
			of, ok := weblimit.Of[string](r)
			assert.True(t, ok)
			assert.Equal(t, "of", of)
			assert.Equal(t, "GET /users/:id", r.Pattern)
			return http.StatusTeapot, failed
		})
	assert.True(t, passed)
	assert.ErrorIs(t, err, failed)
	assert.Equal(t, []int{http.StatusTeapot}, seen)
	assert.False(t, w.Flushed)
	assert.Empty(t, w.Result().Header.Get("Content-Type"), "nothing was written")

	w = httptest.NewRecorder()
	_, err = guard.Run("of", w, request(), "/users/:id",
		func(w http.ResponseWriter, _ *http.Request) (int, error) {
			n, err := io.Copy(w, strings.NewReader("hello"))
			assert.EqualValues(t, 5, n)
			return 0, err
		})
	assert.NoError(t, err)
	assert.Equal(t, "hello", w.Body.String())
	assert.Equal(t, []int{http.StatusTeapot, http.StatusOK}, seen)

	_, ok := weblimit.Of[string](request())
	assert.False(t, ok)
}

func TestOnDeniedAnswers(t *testing.T) {
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute}
	over := errors.New("over the limit")
	cfg.Respond = weblimit.OnDenied(func(of string, d httplimit.Decision) error {
		assert.Equal(t, "of", of)
		assert.Equal(t, http.StatusTooManyRequests, d.Status)
		return over
	})
	middleware := httplimit.New(weirtest.DenyAll(), cfg)
	w := httptest.NewRecorder()
	passed, err := weblimit.New[string]("adapter", middleware).Run("of", w, request(), "", nil)
	assert.False(t, passed)
	assert.ErrorIs(t, err, over)
	assert.NotEmpty(t, w.Header().Get("Retry-After"))
	assert.PanicsWithValue(t, "weblimit: OnDenied: the guard runs outside of its adapter", func() {
		middleware(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), request())
	})
	assert.PanicsWithValue(t, "adapter: no middleware", func() {
		weblimit.New[string]("adapter", nil)
	})
}

// later sends the body after the handlers have returned.
type later struct {
	http.ResponseWriter
	leave func()
}

func (l *later) OnSent(leave func()) bool {
	l.leave = leave
	return true
}

func TestInFlightUntilTheBodyIsSent(t *testing.T) {
	guard := weblimit.New[string]("adapter", httplimit.New(&weirtest.Fake{}, httplimit.Config{
		Extractor: httplimit.RemoteAddr(), MaxInFlight: 1,
	}))
	run := func(w http.ResponseWriter) bool {
		passed, err := guard.Run("", w, request(), "",
			func(http.ResponseWriter, *http.Request) (int, error) {
				return http.StatusOK, nil
			})
		require.NoError(t, err)
		return passed
	}
	w := &later{ResponseWriter: httptest.NewRecorder()}
	assert.True(t, run(w))
	assert.False(t, run(httptest.NewRecorder()), "the first body is still being sent")
	w.leave()
	assert.True(t, run(httptest.NewRecorder()))
	assert.True(t, run(httptest.NewRecorder()), "without OnSent it ends with the handlers")
}
