package httplimit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/limits"
)

// Every place of a request is released at its end, however many there are, although one of them
// cannot be.
func TestEveryPlaceOfARequestIsReleased(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e"}
	inFlight := httplimit.Policy{Name: "in flight"}
	for n := 1; n <= len(all); n++ {
		for broken := -1; broken < n; broken++ {
			t.Run(fmt.Sprintf("%d places, number %d is broken", n, broken+1), func(t *testing.T) {
				limiter := newLimiter(t, at(noon))
				log := new(bytes.Buffer)
				holder := failingHolder(limiter.InFlight(), func(key string) bool {
					return broken >= 0 && key == inFlight.Key(all[broken])
				})
				cfg := hundred()
				cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
				cfg.Concurrency = httplimit.Policy{Strategy: holder, Limit: 1,
					Keys: func(*http.Request) ([]string, error) { return all[:n], nil }}
				h := httplimit.New(limiter.FixedWindow(), cfg)(http.HandlerFunc(
					func(http.ResponseWriter, *http.Request) {
						for _, key := range all[:n] {
							assert.EqualValues(t, 1, places(t, limiter.InFlight(), key), key)
						}
					}))
				assert.Equal(t, http.StatusOK, respond(h, from("203.0.113.7:1")).Code)
				for i, key := range all[:n] {
					assert.Equal(t, i == broken, places(t, limiter.InFlight(), key) == 1, key)
				}
				assert.Equal(t, broken >= 0, bytes.Contains(log.Bytes(), []byte("was not released")))
			})
		}
	}
}

// The places of a Decider's limits are released as those of Concurrency beside them.
func TestEveryPlaceOfADecidersLimitsIsReleased(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	cfg := hundred()
	cfg.Concurrency = httplimit.Policy{Strategy: limiter.InFlight(), Limit: 1}
	cfg.Decider = decider(func(r *http.Request, v *httplimit.Consultation) {
		for _, key := range []string{"x", "y", "z"} {
			one, err := limits.NewAttempt(limiter.InFlight()).Holding()
			assert.NoError(t, err)
			one.Op.Request = weir.Request{Key: key, Limit: 1, Duration: cfg.Duration}
			v.Attempts = append(v.Attempts, one)
		}
		allowed, err := v.Attempts.Take(r.Context(), nil)
		v.Denied, v.Err = !allowed, err
	})
	h := httplimit.New(limiter.FixedWindow(), cfg)(http.HandlerFunc(ok))
	for range 3 {
		require.Equal(t, http.StatusOK, respond(h, from("203.0.113.7:1")).Code)
		require.Zero(t, limiter.Stats().Held)
	}
}

// A client that left hides the status of its request, which counts; with a Writer and without.
func TestARequestWhoseClientLeftCounts(t *testing.T) {
	for _, left := range []bool{false, true} {
		for name, handle := range map[string]func(ticket httplimit.Ticket, hangUp func()){
			"without a Writer": func(_ httplimit.Ticket, hangUp func()) { hangUp() },
			"before a status": func(ticket httplimit.Ticket, hangUp func()) {
				w, _ := ticket.Writer(httptest.NewRecorder())
				hangUp()
				w.WriteHeader(http.StatusOK)
			},
			"before a body": func(ticket httplimit.Ticket, hangUp func()) {
				w, _ := ticket.Writer(httptest.NewRecorder())
				hangUp()
				_, _ = w.Write([]byte("x"))
			},
			"and nothing is written": func(ticket httplimit.Ticket, hangUp func()) {
				ticket.Writer(httptest.NewRecorder())
				hangUp()
			},
		} {
			guard := newRig(t, func(cfg *httplimit.Config) {
				cfg.CountIf = func(int) bool { return false }
			})
			ctx, cancel := context.WithCancel(t.Context())
			hangUp := func() {
				if left {
					cancel()
				}
			}
			ticket := guard.Begin(from("203.0.113.7:1").WithContext(ctx))
			require.EqualValues(t, 1, guard.counted(t))
			handle(ticket, hangUp)
			ticket.End(http.StatusOK)
			cancel()
			assert.Equal(t, left, guard.counted(t) == 1, "%s, left: %v", name, left)
		}
	}
}
