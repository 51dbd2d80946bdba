package httplimit_test

import (
	"net/http"
	"net/http/httptest"
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

// bucketElsewhere returns s as a token bucket of another package.
func bucketElsewhere(s weir.Strategy) weir.Strategy {
	bucket := ops.Without(s)
	bucket.Is.Lapses = weir.LapsesByToken
	return bucket
}

// A middleware counts by a Limit elsewhere as the Limit itself does: with the same Request.
func TestLimitElsewhereCountsAsByItself(t *testing.T) {
	for _, key := range []string{"ann", strings.Repeat("a", 900)} {
		for _, name := range []string{"", "logins", strings.Repeat("n", 64)} {
			fake := new(weirtest.Fake)
			m, err := weir.NewLimit(bucketElsewhere(fake), 60, time.Minute)
			require.NoError(t, err)
			if name != "" {
				m = m.Named(name)
			}
			_, err = m.Take(t.Context(), key, 1)
			require.NoError(t, err)
			caller := httplimit.ExtractorFunc(func(*http.Request) (string, error) { return key, nil })
			handler := httplimit.New(m, httplimit.Config{Extractor: caller})(http.NotFoundHandler())
			for range 2 { // the second has the key of the first
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			}
			calls := fake.Calls()
			require.GreaterOrEqual(t, len(calls), 3, "a name of %d bytes, a key of %d", len(name), len(key))
			for _, call := range calls[1:] {
				if call.Method != "Run" {
					continue
				}
				call.Request.Cost = max(1, call.Request.Cost)
				assert.Equal(t, calls[0].Request, call.Request, "a name of %d bytes, a key of %d",
					len(name), len(key))
			}
		}
	}
}
