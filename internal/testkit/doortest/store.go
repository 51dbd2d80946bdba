package doortest

import (
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/overload"
	"github.com/weirgo/weir/weirtest"
)

// Store is one for the rate limiter of a framework.
type Store interface {
	Allow(identifier string) (bool, error)
}

// Stores is a way to make them.
type Stores struct {
	New func(s weir.Strategy, cfg httplimit.Config) Store

	// Serve starts the framework's limiter on a store, with the user of the query as the identifier,
	// in front of a server that answers "hello".
	Serve func(t *testing.T, s Store) (url string)

	// Denied checks the fields of a denial, of which the request passes after 45 s.
	Denied func(t *testing.T, resp *http.Response)
}

// Check checks the stores.
func (s Stores) Check(t *testing.T) {
	t.Run("denial and recovery", s.recovery)
	t.Run("without a request", s.alone)
	t.Run("cannot decide", s.undecided)
	t.Run("shadow", s.shadow)
	t.Run("deny list", s.denyList)
	t.Run("unsupported", s.unsupported)
}

// once returns the Config of one request in a minute, or of n.
func once(clock *weirtest.Clock, n uint64) httplimit.Config {
	return httplimit.Config{Limit: n, Duration: time.Minute, Now: clock.Now}
}

func (s Stores) recovery(t *testing.T) {
	limiter, clock := NewLimiter(t)
	url := s.Serve(t, s.New(limiter.FixedWindow(), once(clock, 2)))
	for range 2 {
		resp, text := Get(t, url+"?user=alice")
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "hello", text)
	}
	resp, text := Get(t, url+"?user=alice")
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Contains(t, text, "rate limit exceeded", "the framework's own answer")
	s.Denied(t, resp)
	resp, _ = Get(t, url+"?user=bob")
	assert.Equal(t, http.StatusOK, resp.StatusCode)

	clock.Advance(45 * time.Second)
	resp, _ = Get(t, url+"?user=alice")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}

func (s Stores) alone(t *testing.T) {
	limiter, clock := NewLimiter(t)
	store := s.New(limiter.FixedWindow(), once(clock, 1))
	for _, want := range []bool{true, false} {
		allowed, err := store.Allow("alice")
		require.NoError(t, err)
		assert.Equal(t, want, allowed)
	}
	allowed, err := store.Allow("")
	assert.ErrorIs(t, err, httplimit.ErrKey)
	assert.False(t, allowed)
}

func (s Stores) undecided(t *testing.T) {
	for open, want := range map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable} {
		resp, _ := Get(t, s.Serve(t, s.New(weirtest.FailAll(errors.New("down")), httplimit.Config{
			Limit: 1, Duration: time.Minute, FailOpen: open, Logger: slog.New(slog.DiscardHandler),
		}))+"?user=alice")
		assert.Equal(t, want, resp.StatusCode)
	}
}

// A store in shadow mode denies no request.
func (s Stores) shadow(t *testing.T) {
	limiter, clock := NewLimiter(t)
	var stats httplimit.Stats
	cfg := once(clock, 1)
	cfg.Shadow, cfg.Stats = true, &stats
	store := s.New(limiter.FixedWindow(), cfg)
	for range 3 {
		allowed, err := store.Allow("alice")
		require.NoError(t, err)
		assert.True(t, allowed)
	}
	assert.EqualValues(t, 2, stats.Count(httplimit.Denied))
}

func (s Stores) denyList(t *testing.T) {
	limiter, clock := NewLimiter(t)
	cfg := once(clock, 1)
	cfg.DenyList = httplimit.NewDenyList(httplimit.DenyListConfig{})
	require.NoError(t, cfg.DenyList.Add(httplimit.DenyEntry{Key: "mallory"}))
	store := s.New(limiter.FixedWindow(), cfg)
	allowed, err := store.Allow("mallory")
	assert.False(t, allowed)
	assert.ErrorContains(t, err, "listed")

	require.NoError(t,
		cfg.DenyList.Add(httplimit.DenyEntry{Prefix: netip.MustParsePrefix("203.0.113.0/24")}))
	for identifier, want := range map[string]bool{"203.0.113.7": false, "198.51.100.7": true} {
		allowed, err = store.Allow(identifier)
		assert.Equal(t, want, allowed, identifier)
		assert.Equal(t, want, err == nil, identifier)
	}
}

func (s Stores) unsupported(t *testing.T) {
	RefusesInFlight(t, "Config.Concurrency", func(of weir.Strategy, cfg httplimit.Config) error {
		cfg.Extractor = nil
		s.New(of, cfg)
		return nil
	})
	for name, cfg := range map[string]httplimit.Config{
		"Extractor":   {Extractor: httplimit.RemoteAddr()},
		"CountIf":     {CountIf: func(int) bool { return true }},
		"MaxInFlight": {MaxInFlight: 1},
		"Overload":    {Overload: new(overload.Guard)},
		"DenyHandler": {DeniedStatus: http.StatusTeapot},
	} {
		cfg.Limit, cfg.Duration = 1, time.Minute
		func() {
			defer func() { assert.Contains(t, recover(), name) }()
			s.New(&weirtest.Fake{}, cfg)
		}()
	}
}
