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

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/weblimit"
	"github.com/weirgo/weir/weirtest"
)

func request() *http.Request { return httptest.NewRequest(http.MethodGet, "/users/7", nil) }

// The guard alone sees the status that the framework will write later, and the framework the error.
func TestStatusIsForTheGuardAlone(t *testing.T) {
	var seen []int
	failed := errors.New("failed")
	guard := weblimit.New[string]("adapter", httplimit.NewGuard(&weirtest.Fake{}, httplimit.Config{
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
	guard := httplimit.NewGuard(weirtest.DenyAll(), cfg)
	w := httptest.NewRecorder()
	passed, err := weblimit.New[string]("adapter", guard).Run("of", w, request(), "", nil)
	assert.False(t, passed)
	assert.ErrorIs(t, err, over)
	assert.NotEmpty(t, w.Header().Get("Retry-After"))
	assert.PanicsWithValue(t, "weblimit: OnDenied: the guard runs outside of its adapter", func() {
		guard.Wrap(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), request())
	})
	assert.PanicsWithValue(t, "adapter: no guard", func() {
		weblimit.New[string]("adapter", nil)
	})
}
