package echov4limit_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/echov4limit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/weirtest"
)

// withStore is Echo's own rate limiter on store, which limits by the user in the query.
func withStore(store middleware.RateLimiterStore) func(*echo.Echo) {
	return func(e *echo.Echo) {
		e.Use(middleware.RateLimiterWithConfig(middleware.RateLimiterConfig{
			Store:               store,
			IdentifierExtractor: func(c echo.Context) (string, error) { return c.QueryParam("user"), nil },
			DenyHandler: func(c echo.Context, _ string, err error) error {
				if err != nil {
					return echo.NewHTTPError(http.StatusServiceUnavailable, err.Error())
				}
				return middleware.ErrRateLimitExceeded
			},
		}))
		e.GET("/", hello)
	}
}

func TestStoreDenialAndRecovery(t *testing.T) {
	limiter, clock := newLimiter(t)
	url := serve(t, withStore(echov4limit.NewStore(limiter.FixedWindow(), httplimit.Config{
		Limit: 2, Duration: time.Minute, Now: clock.Now,
	})))
	for range 2 {
		resp, text := get(t, url+"?user=alice")
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "hello", text)
	}
	resp, text := get(t, url+"?user=alice")
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Contains(t, text, "rate limit exceeded", "Echo's own answer")
	assertDenialFields(t, resp)
	resp, _ = get(t, url+"?user=bob")
	assert.Equal(t, http.StatusOK, resp.StatusCode)

	clock.Advance(45 * time.Second)
	resp, _ = get(t, url+"?user=alice")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}

func TestAllowWithoutARequest(t *testing.T) {
	limiter, clock := newLimiter(t)
	store := echov4limit.NewStore(limiter.FixedWindow(),
		httplimit.Config{Limit: 1, Duration: time.Minute,
			Now: clock.Now})
	for _, want := range []bool{true, false} {
		allowed, err := store.Allow("alice")
		require.NoError(t, err)
		assert.Equal(t, want, allowed)
	}
	allowed, err := store.Allow("")
	assert.ErrorIs(t, err, httplimit.ErrKey)
	assert.False(t, allowed)
}

func TestStoreThatCannotDecide(t *testing.T) {
	for open, want := range map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable} {
		resp, _ := get(t, serve(t,
			withStore(echov4limit.NewStore(weirtest.FailAll(errors.New("down")), httplimit.Config{
				Limit: 1, Duration: time.Minute, FailOpen: open, Logger: slog.New(slog.DiscardHandler),
			})))+"?user=alice")
		assert.Equal(t, want, resp.StatusCode)
	}
}

func TestStoreInShadowModeDeniesNoRequest(t *testing.T) {
	limiter, clock := newLimiter(t)
	var stats httplimit.Stats
	store := echov4limit.NewStore(limiter.FixedWindow(), httplimit.Config{
		Limit: 1, Duration: time.Minute, Now: clock.Now, Shadow: true, Stats: &stats,
	})
	for range 3 {
		allowed, err := store.Allow("alice")
		require.NoError(t, err)
		assert.True(t, allowed)
	}
	assert.EqualValues(t, 2, stats.Count(httplimit.Denied))
}

func TestStoreRefusesTheDenyList(t *testing.T) {
	limiter, clock := newLimiter(t)
	list := httplimit.NewDenyList(httplimit.DenyListConfig{})
	require.NoError(t, list.Add(httplimit.DenyEntry{Key: "mallory"}))
	store := echov4limit.NewStore(limiter.FixedWindow(), httplimit.Config{
		Limit: 1, Duration: time.Minute, Now: clock.Now, DenyList: list,
	})
	allowed, err := store.Allow("mallory")
	assert.False(t, allowed)
	assert.ErrorContains(t, err, "listed")

	require.NoError(t, list.Add(httplimit.DenyEntry{Prefix: netip.MustParsePrefix("203.0.113.0/24")}))
	for identifier, want := range map[string]bool{"203.0.113.7": false, "198.51.100.7": true} {
		allowed, err = store.Allow(identifier)
		assert.Equal(t, want, allowed, identifier)
		assert.Equal(t, want, err == nil, identifier)
	}
}

func TestNewStorePanicsOnUnsupportedConfig(t *testing.T) {
	for name, cfg := range map[string]httplimit.Config{
		"Extractor":   {Extractor: httplimit.RemoteAddr()},
		"CountIf":     {CountIf: func(int) bool { return true }},
		"MaxInFlight": {MaxInFlight: 1},
		"DenyHandler": {DeniedStatus: http.StatusTeapot},
	} {
		cfg.Limit, cfg.Duration = 1, time.Minute
		func() {
			defer func() { assert.Contains(t, recover(), name) }()
			echov4limit.NewStore(&weirtest.Fake{}, cfg)
		}()
	}
}
