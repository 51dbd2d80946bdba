package httplimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/offenders"
	"github.com/weirgo/weir/weirtest"
)

// These tests run the middleware on a real limiter.

func newLimiter(t *testing.T, now func() time.Time) *weir.Limiter {
	limiter, err := weir.New(weir.Config{Now: now})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, limiter.Close()) })
	return limiter
}

// strategies returns the strategies of a limiter that do not wait.
func strategies(l *weir.Limiter) map[string]weir.Strategy {
	return map[string]weir.Strategy{
		"fixed window": l.FixedWindow(), "sliding window": l.SlidingWindow(),
		"sliding log":            l.SlidingLog(),
		"token bucket":           l.TokenBucket(0),
		"watched sliding window": offenders.New(offenders.Config{}).Watch(l.SlidingWindow()),
	}
}

// admitted sends n concurrent requests from each of several clients, and returns how many of each
// reach the handler.
func admitted(guard func(http.Handler) http.Handler, clients, n int) []int64 {
	counts := make([]atomic.Int64, clients)
	handler := guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(r.Header.Get("X-Client"))
		counts[i].Add(1)
	}))
	var wg sync.WaitGroup
	for i := range clients {
		for range 8 {
			wg.Go(func() {
				for range n / 8 {
					handler.ServeHTTP(httptest.NewRecorder(),
						from(fmt.Sprintf("203.0.113.%d:1", i), "X-Client: "+strconv.Itoa(i)))
				}
			})
		}
	}
	wg.Wait()
	result := make([]int64, clients)
	for i := range counts {
		result[i] = counts[i].Load()
	}
	return result
}

func TestExactlyTheLimitReachesTheHandler(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	for name, s := range strategies(limiter) {
		cfg := hundred()
		cfg.Name = name
		assert.Equal(t, []int64{100, 100, 100, 100}, admitted(httplimit.New(s, cfg), 4, 400), name)
	}
	// The negative control: a Strategy that reads and then counts admits too many.
	one := hundred()
	one.Limit = 1
	got := admitted(httplimit.New(newLookThenCount(), one), 1, 40)
	assert.Greater(t, got[0], int64(1))
}

// lookThenCount reads the count and writes it later, so that requests in between are admitted too.
// The first two certainly are: neither counts before both have read.
type lookThenCount struct {
	mu     sync.Mutex
	counts map[string]uint64

	readers atomic.Int64
	two     sync.WaitGroup
}

func newLookThenCount() *lookThenCount {
	s := &lookThenCount{counts: make(map[string]uint64)}
	s.two.Add(2)
	return s
}

func (s *lookThenCount) Run(_ context.Context, r *weir.Request) (*weir.Result, error) {
	s.mu.Lock()
	n := s.counts[r.Key]
	s.mu.Unlock()
	if s.readers.Add(1) <= 2 {
		s.two.Done()
	}
	s.two.Wait()
	if n >= r.Limit {
		return &weir.Result{State: weir.Deny, TotalRequests: n, ExpiresAt: noon.Add(r.Duration)}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[r.Key]++
	return &weir.Result{State: weir.Allow, TotalRequests: n + 1, ExpiresAt: noon.Add(r.Duration)}, nil
}

// Retry-After is exact to the second: a client that waits for it is admitted, and one that comes a
// second earlier is denied, unless the wait was not a whole number of seconds.
func TestRetryAfterIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 4))
	clock := weirtest.NewClock(noon)
	limiter := newLimiter(t, clock.Now)
	for name, s := range strategies(limiter) {
		for trial := range 200 {
			duration := time.Duration(1+rng.IntN(60)) * time.Second
			guard := httplimit.New(s, httplimit.Config{
				Extractor: httplimit.RemoteAddr(), Name: name, Limit: uint64(1 + rng.IntN(9)),
				Duration: duration, Now: clock.Now,
			})(&hello{})
			peer := fmt.Sprintf("[2001:db8:0:%x::1]:1", trial)
			w := httptest.NewRecorder()
			for w.Code != http.StatusTooManyRequests {
				clock.Advance(time.Duration(rng.IntN(300)) * time.Millisecond)
				w = httptest.NewRecorder()
				guard.ServeHTTP(w, from(peer))
				if rng.IntN(200) == 0 {
					break // this client stays below its limit
				}
			}
			if w.Code != http.StatusTooManyRequests {
				continue
			}
			seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
			require.NoError(t, err)
			clock.Advance(time.Duration(seconds)*time.Second - time.Second - time.Millisecond)
			early := httptest.NewRecorder()
			guard.ServeHTTP(early, from(peer))
			require.Equal(t, http.StatusTooManyRequests, early.Code, name)
			clock.Advance(time.Second + time.Millisecond)
			w = httptest.NewRecorder()
			guard.ServeHTTP(w, from(peer))
			require.Equal(t, http.StatusOK, w.Code, name)
		}
	}
}

// Of concurrent wrong passwords at most the limit reach the handler, and right ones never count.
func TestCountIfBoundsConcurrentAttempts(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	for name, s := range strategies(limiter) {
		cfg := httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Name: name, Limit: 5, Duration: time.Minute, Now: at(noon),
			CountIf: func(status int) bool { return status == http.StatusUnauthorized },
		}
		var tries atomic.Int64
		closed := make(chan struct{})
		open := sync.OnceFunc(func() { close(closed) })
		defer time.AfterFunc(10*time.Second, open).Stop() // in case too few are denied
		logins := httplimit.New(s, cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Password") == "right" {
				return
			}
			tries.Add(1)
			<-closed // all admitted requests are concurrent
			w.WriteHeader(http.StatusUnauthorized)
		}))
		for range 1000 {
			w := httptest.NewRecorder()
			logins.ServeHTTP(w, from("203.0.113.7:1", "X-Password: right"))
			require.Equal(t, http.StatusOK, w.Code, name)
		}
		var wg sync.WaitGroup
		var denied atomic.Int64
		for range 50 {
			wg.Go(func() {
				w := httptest.NewRecorder()
				logins.ServeHTTP(w, from("203.0.113.7:1", "X-Password: wrong"))
				if w.Code == http.StatusTooManyRequests && denied.Add(1) == 45 {
					open()
				}
			})
		}
		wg.Wait()
		assert.Equal(t, int64(5), tries.Load(), name)
	}
}

func TestAddressNotationsShareKey(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	for want, peers := range map[int][]string{
		1: {"203.0.113.7:1", "203.0.113.7:65535", "[::ffff:203.0.113.7]:1", "[::FFFF:cb00:7107]:1",
			"[0:0:0:0:0:ffff:cb00:7107]:1", "[::ffff:203.0.113.7%eth0]:1"},
		2: {"[2001:db8::1]:1", "[2001:0DB8:0::2]:1", "[2001:db8::1.2.3.4]:1", "[2001:db8::3%x]:1",
			"[2001:db8:0:1::1]:1"},
		3: {"[::ffff:198.51.100.1]:1", "[::ffff:198.51.100.2]:1", "198.51.100.3:1", "198.51.100.2:1"},
	} {
		cfg := hundred()
		cfg.Name, cfg.Limit = strconv.Itoa(want), 1
		guard := httplimit.New(limiter.FixedWindow(), cfg)
		h := &hello{}
		for _, peer := range peers {
			guard(h).ServeHTTP(httptest.NewRecorder(), from(peer))
		}
		assert.Equal(t, want, h.ran, peers)
	}
}

// With the defaults inside a bubble, the limiter and the middleware use the bubble's clock.
func TestInASynctestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer limiter.Close()
		list := httplimit.NewDenyList(httplimit.DenyListConfig{})
		guard := httplimit.New(limiter.SlidingLog(), httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Limit: 3, Duration: 10 * time.Second, DenyList: list,
		})(&hello{})
		ask := func() (int, string) {
			w := httptest.NewRecorder()
			guard.ServeHTTP(w, from("203.0.113.7:1"))
			return w.Code, w.Header().Get("Retry-After")
		}
		for i := range 3 {
			code, _ := ask()
			require.Equal(t, http.StatusOK, code)
			time.Sleep(time.Duration(i) * time.Second)
		}
		code, after := ask()
		assert.Equal(t, http.StatusTooManyRequests, code)
		assert.Equal(t, "7", after)
		time.Sleep(7 * time.Second)
		code, _ = ask()
		assert.Equal(t, http.StatusOK, code)

		require.NoError(t, list.Add(httplimit.DenyEntry{Prefix: netip.MustParsePrefix("203.0.113.0/24"),
			Until: time.Now().Add(time.Hour)}))
		code, after = ask()
		assert.Equal(t, http.StatusTooManyRequests, code)
		assert.Equal(t, "3600", after)
		time.Sleep(time.Hour)
		code, _ = ask()
		assert.Equal(t, http.StatusOK, code)
	})
}

// A token bucket of its own size reports what is in the bucket, also within a wrapper: a client
// that paces itself by the fields must not wait while tokens are left.
func TestTheFieldsCountTheBurst(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1_800_000_000, 0))
	limiter := newLimiter(t, clock.Now)
	primary, local := newLimiter(t, clock.Now).TokenBucket(21), limiter.TokenBucket(21)
	both, err := fallback.New(primary, local, fallback.Config{Now: clock.Now})
	require.NoError(t, err)
	client := 0
	for name, s := range map[string]weir.Strategy{
		"bucket":   limiter.TokenBucket(21),
		"watched":  offenders.New(offenders.Config{}).Watch(limiter.TokenBucket(21)),
		"fallback": both,
	} {
		for style, want := range map[httplimit.HeaderStyle]map[string]string{
			httplimit.HeadersDraft:  {"Ratelimit-Policy": `"x";q=10;w=1`, "Ratelimit": `"x";r=20;t=1`},
			httplimit.HeadersLegacy: {"X-Ratelimit-Limit": "21", "X-Ratelimit-Remaining": "20"},
		} {
			guard := httplimit.New(s, httplimit.Config{
				Name: "x", Extractor: httplimit.RemoteAddr(), Limit: 10, Duration: time.Second,
				Headers: style, Now: clock.Now,
			})
			w := httptest.NewRecorder()
			client++ // each has a bucket of its own
			guard(http.NotFoundHandler()).ServeHTTP(w, from(fmt.Sprintf("203.0.113.%d:1", client)))
			for field, value := range want {
				assert.Equal(t, value, w.Header().Get(field), "%s: %s", name, field)
			}
		}
	}
}

// The fields and the Decision name the tier that binds, also of tiers among other policies.
func TestTheTierThatBinds(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1_800_000_000, 0))
	limiter := newLimiter(t, clock.Now)
	tiers := limiter.Tiers(weir.Tier{Limit: 3, Duration: time.Second},
		weir.Tier{Limit: 4, Duration: 10 * time.Second})
	var decided httplimit.Decision
	guard := httplimit.New(tiers, httplimit.Config{
		Name: "tiers", Extractor: httplimit.RemoteAddr(), Limit: 4, Duration: 10 * time.Second,
		Policies: []httplimit.Policy{{Name: "daily", Strategy: limiter.FixedWindow(), Limit: 100,
			Duration: 24 * time.Hour}},
		Headers: httplimit.HeadersLegacy, Now: clock.Now,
		OnDecision: func(_ *http.Request, d httplimit.Decision) { decided = d },
	})
	for _, want := range []struct {
		advance          time.Duration
		limit, remaining uint64
		period           time.Duration
	}{
		{0, 3, 2, time.Second}, {0, 3, 1, time.Second}, {time.Second, 4, 1, 10 * time.Second},
		{0, 4, 0, 10 * time.Second}, {0, 4, 0, 10 * time.Second}, // a denial
	} {
		clock.Advance(want.advance)
		w := httptest.NewRecorder()
		guard(http.NotFoundHandler()).ServeHTTP(w, from("203.0.113.1:1"))
		assert.Equal(t, fmt.Sprint(want.limit), w.Header().Get("X-Ratelimit-Limit"))
		assert.Equal(t, fmt.Sprint(want.remaining), w.Header().Get("X-Ratelimit-Remaining"))
		assert.Equal(t, "tiers", decided.Policy)
		assert.Equal(t, want.limit, decided.Limit)
		assert.Equal(t, want.period, decided.Duration)
		assert.Equal(t, want.remaining, decided.Remaining)
	}
	assert.Equal(t, httplimit.Denied, decided.Kind)
}
