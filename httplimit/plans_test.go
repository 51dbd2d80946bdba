package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/weirtest"
)

// Plans of a LimitFunc share the bucket of a client: what one of them has used is used in the
// other, in requests.
func TestPlansShareATokenBucket(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 0))
	l, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	defer l.Close()
	free, pro := l.TokenBucket(5).Limit(1, time.Minute), l.TokenBucket(5).Limit(600, time.Minute)
	handler := httplimit.New(free, httplimit.Config{
		Now: clock.Now, Name: "plan", Extractor: httplimit.RemoteAddr(),
		LimitFunc: func(r *http.Request) *weir.Limit {
			if r.Header.Get("Plan") == "pro" {
				return pro
			}
			return nil
		},
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, step := range []struct {
		name, plan string
		after      time.Duration
		status     int
		retry      string
	}{
		{"of 5 tokens", "free", 0, 200, ""},
		{"the free plan", "free", 0, 200, ""},
		{"may use", "free", 0, 200, ""},
		{"four", "free", 0, 200, ""},
		{"the better plan has one left", "pro", time.Second, 200, ""},
		{"and none", "pro", 0, 429, "1"},
		{"a token of it comes soon", "pro", 100 * time.Millisecond, 200, ""},
		{"one of the free plan does not", "free", 0, 429, "60"},
	} {
		clock.Advance(step.after)
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Plan", step.plan)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		assert.Equal(t, step.status, w.Code, step.name)
		assert.Equal(t, step.retry, w.Header().Get("Retry-After"), step.name)
	}
}
