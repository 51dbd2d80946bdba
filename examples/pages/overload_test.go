package pages

import (
	"net/http"
	"net/http/httptest"
	"testing"

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
