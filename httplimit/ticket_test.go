package httplimit_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/limits"
)

// rig is a guard that admits two requests of a caller in a minute and one at a time.
type rig struct {
	*httplimit.Guard
	limiter *weir.Limiter
	limit   *weir.Limit
}

func newRig(t *testing.T, change func(*httplimit.Config)) *rig {
	limiter := newLimiter(t, at(noon))
	cfg := httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Now: at(noon),
		Concurrency: httplimit.Policy{Name: "in flight", Strategy: limiter.InFlight(), Limit: 1},
	}
	if change != nil {
		change(&cfg)
	}
	limit := limiter.FixedWindow().Limit(2, time.Minute)
	return &rig{httplimit.NewGuard(limit, cfg), limiter, limit}
}

// inFlight returns how many requests of the caller are in flight.
func (g *rig) inFlight(t *testing.T) uint64 {
	t.Helper()
	return places(t, g.limiter.InFlight(), "203.0.113.7")
}

// counted returns how many requests of the caller count.
func (g *rig) counted(t *testing.T) uint64 {
	t.Helper()
	res, err := g.limit.Peek(t.Context(), "203.0.113.7")
	require.NoError(t, err)
	return res.TotalRequests
}

// assertOver checks that a ticket does nothing any more.
func assertOver(t *testing.T, ticket httplimit.Ticket) {
	t.Helper()
	assert.False(t, ticket.Passes())
	assert.Equal(t, httplimit.Decision{}, ticket.Decision())
	assert.False(t, httplimit.IsBypassed(ticket.Context()))
	w := httptest.NewRecorder()
	ticket.SetFields(w.Header())
	ticket.Answer(w)
	same, _ := ticket.Writer(w)
	assert.Same(t, w, same)
	assert.Empty(t, w.Header())
	assert.False(t, w.Flushed || w.Body.Len() > 0)
	ticket.End(http.StatusUnauthorized)
	ticket.Abort()
}

func TestAZeroTicketDoesNothing(t *testing.T) { assertOver(t, httplimit.Ticket{}) }

// What was begun ends once, whoever ends it and how often.
func TestATicketEndsOnce(t *testing.T) {
	never := func(cfg *httplimit.Config) { cfg.CountIf = func(int) bool { return false } }
	for name, row := range map[string]struct {
		end     func(httplimit.Ticket)
		counted uint64
	}{
		"End":             {func(t httplimit.Ticket) { t.End(http.StatusOK) }, 0},
		"Abort":           {httplimit.Ticket.Abort, 1},
		"End without":     {func(t httplimit.Ticket) { t.End(0) }, 1},
		"End twice":       {func(t httplimit.Ticket) { t.End(http.StatusOK); t.End(http.StatusOK) }, 0},
		"Abort, then End": {func(t httplimit.Ticket) { t.Abort(); t.End(http.StatusOK) }, 1},
		"End, then Abort": {func(t httplimit.Ticket) { t.End(http.StatusOK); t.Abort() }, 0},
		"a copy":          {func(t httplimit.Ticket) { of := t; of.End(http.StatusOK); t.Abort() }, 0},
		"ends of goroutines": {func(t httplimit.Ticket) {
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() { t.End(http.StatusOK) })
			}
			group.Wait()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			guard := newRig(t, never)
			ticket := guard.Begin(from("203.0.113.7:1"))
			require.True(t, ticket.Passes())
			assert.EqualValues(t, 1, guard.counted(t))
			assert.EqualValues(t, 1, guard.inFlight(t))
			row.end(ticket)
			assert.Equal(t, row.counted, guard.counted(t))
			assert.Zero(t, guard.inFlight(t))
			assertOver(t, ticket)
			assert.Equal(t, row.counted, guard.counted(t), "a ticket that is over gives nothing back")
		})
	}
}

// A ticket that was kept does nothing to the requests that come after its own, which may use the
// same memory.
func TestAKeptTicketTouchesNoOtherRequest(t *testing.T) {
	guard := newRig(t, func(cfg *httplimit.Config) {
		cfg.Concurrency.Limit = 100
		cfg.CountIf = func(int) bool { return false }
	})
	kept := make([]httplimit.Ticket, 0, 64)
	for range cap(kept) {
		ticket := guard.Begin(from("203.0.113.7:1"))
		ticket.End(http.StatusOK)
		kept = append(kept, ticket)
	}
	var group sync.WaitGroup
	done := make(chan bool)
	for _, ticket := range kept[:4] {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					assertOver(t, ticket)
				}
			}
		})
	}
	for range 1000 {
		ticket := guard.Begin(from("203.0.113.7:1"))
		assert.True(t, ticket.Passes())
		assert.Equal(t, "203.0.113.7", ticket.Decision().Key)
		assert.EqualValues(t, 1, guard.inFlight(t))
		ticket.End(http.StatusOK)
	}
	close(done)
	group.Wait()
	assert.Zero(t, guard.counted(t))
	assert.Zero(t, guard.inFlight(t))
}

// Answer writes refusals only: what a handler has written stands.
func TestAnswerLeavesAHandlersAnswer(t *testing.T) {
	guard := newRig(t, nil)
	w := httptest.NewRecorder()
	ticket := guard.Begin(from("203.0.113.7:1"))
	_, _ = io.WriteString(w, "hello")
	ticket.Answer(w)
	assert.Equal(t, "hello", w.Body.String())
	assert.Equal(t, http.StatusOK, w.Code)

	refused := guard.Begin(from("203.0.113.7:1"))
	assert.False(t, refused.Passes())
	assert.Equal(t, time.Second, refused.Decision().RetryAfter)
	same, _ := refused.Writer(w)
	assert.Same(t, w, same, "no handler is to run")
	refused.Answer(w)
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
	refused.End(0)
	ticket.End(0)
	assert.Zero(t, guard.inFlight(t))
}

// Tickets that are dropped without an End keep their places until the lease ends, and disturb no
// other request.
func TestATicketWithoutAnEndKeepsItsPlace(t *testing.T) {
	guard := newRig(t, nil)
	require.True(t, guard.Begin(from("203.0.113.7:1")).Passes())
	assert.False(t, guard.Begin(from("203.0.113.7:1")).Passes())
	assert.True(t, guard.Begin(from("203.0.113.8:1")).Passes())
}

// RetryAfter is a Duration, as exact as the decision.
func TestADecisionsRetryAfterIsExact(t *testing.T) {
	limiter := newLimiter(t, at(noon.Add(500*time.Millisecond)))
	guard := httplimit.NewGuard(limiter.FixedWindow().Limit(1, time.Minute), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Now: at(noon.Add(500 * time.Millisecond)),
	})
	guard.Begin(from("203.0.113.7:1")).End(0)
	ticket := guard.Begin(from("203.0.113.7:1"))
	defer ticket.End(0)
	want := noon.Truncate(time.Minute).Add(time.Minute).Sub(noon.Add(500 * time.Millisecond))
	assert.Equal(t, want, ticket.Decision().RetryAfter)
}

// A connection that a handler has hijacked keeps the place until it is closed, or the handler
// panics.
func TestAHijackedConnectionKeepsThePlace(t *testing.T) {
	for _, how := range []string{"closes later", "closes", "panics"} {
		t.Run(how, func(t *testing.T) {
			guard := newRig(t, nil)
			var conn net.Conn
			served := make(chan bool)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(served)
				defer func() { _ = recover() }()
				r.RemoteAddr = "203.0.113.7:1"
				ticket := guard.Begin(r)
				defer ticket.Abort()
				w, _ = ticket.Writer(w)
				var err error
				conn, _, err = http.NewResponseController(w).Hijack()
				assert.NoError(t, err)
				switch how {
				case "closes":
					assert.NoError(t, conn.Close())
				case "panics":
					panic(http.ErrAbortHandler)
				}
				assert.EqualValues(t, 1, guard.inFlight(t), "the handler is still at work")
				ticket.End(0)
			}))
			defer srv.Close()
			client, err := net.Dial("tcp", srv.Listener.Addr().String())
			require.NoError(t, err)
			defer func() { _ = client.Close() }()
			_, err = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			require.NoError(t, err)
			<-served
			if how == "closes later" {
				assert.EqualValues(t, 1, guard.inFlight(t))
			}
			_ = conn.Close()
			_ = conn.Close()
			assert.Zero(t, guard.inFlight(t))
		})
	}
}

// The status that End is given counts if none was written to the Writer.
func TestEndsStatusCountsUnlessOneWasWritten(t *testing.T) {
	for name, row := range map[string]struct {
		handle http.HandlerFunc
		end    int
		want   int
	}{
		"nothing is written, and End knows":      {func(http.ResponseWriter, *http.Request) {}, 401, 401},
		"nothing is written, and nobody knows":   {func(http.ResponseWriter, *http.Request) {}, 0, 200},
		"a status is written, and End disagrees": {writeHeaders(404), 401, 404},
		"a hint is written, and End knows":       {writeHeaders(103), 401, 401},
	} {
		seen := 0
		guard := newRig(t, func(cfg *httplimit.Config) {
			cfg.CountIf = func(status int) bool { seen = status; return true }
		})
		ticket := guard.Begin(from("203.0.113.7:1"))
		row.handle(ticket.Writer(httptest.NewRecorder()))
		ticket.End(row.end)
		assert.Equal(t, row.want, seen, name)
	}
}

// A request has nothing of those before it, whose memory it uses: neither the status that was
// written, nor the places that a Decider's limits held.
func TestARequestHasNothingOfThoseBefore(t *testing.T) {
	seen := 0
	guard := newRig(t, func(cfg *httplimit.Config) {
		cfg.CountIf = func(status int) bool { seen = status; return false }
	})
	for range 10 {
		ticket := guard.Begin(from("203.0.113.7:1"))
		w, _ := ticket.Writer(httptest.NewRecorder())
		w.WriteHeader(http.StatusNotFound)
		ticket.End(0)
		require.Equal(t, http.StatusNotFound, seen)
		guard.Begin(from("203.0.113.7:1")).End(http.StatusUnauthorized)
		require.Equal(t, http.StatusUnauthorized, seen)
	}

	limiter := newLimiter(t, at(noon))
	one, err := limits.NewAttempt(limiter.InFlight()).Holding()
	require.NoError(t, err)
	one.Op.Request = weir.Request{Key: "k", Limit: 1, Duration: time.Minute}
	decides := httplimit.NewGuard(nil, httplimit.Config{
		Decider: decider(func(r *http.Request, v *httplimit.Consultation) {
			v.Attempts = limits.Attempts{one}
			allowed, err := v.Attempts.Take(r.Context(), nil)
			v.Denied, v.Err = !allowed, err
		}),
	})
	for range 10 {
		ticket := decides.Begin(from("203.0.113.7:1"))
		require.True(t, ticket.Passes())
		ticket.End(0)
	}
}
