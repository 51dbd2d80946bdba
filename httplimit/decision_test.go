package httplimit_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
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

// A Decision has the source and policy, the count, what remains, and when a denied request would
// pass.
func TestDecisionAttributes(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	list := httplimit.NewDenyList(httplimit.DenyListConfig{Now: at(noon)})
	require.NoError(t, list.Add(httplimit.DenyEntry{Key: "198.51.100.1", Until: noon.Add(time.Hour)}))
	for want, row := range map[string]struct {
		s    weir.Strategy
		peer string
		set  func(*httplimit.Config)
	}{
		"outcome=admitted source=local policy=100/1m strategy=\"fixed window\" " +
			"limit=100 period=1m0s cost=1 counted=1 remaining=99": {
			limiter.FixedWindow(), "203.0.113.7:1", nil},
		"outcome=denied source=strategy policy=100/1m strategy=weirtest.Fake " +
			"limit=100 period=1m0s cost=1 counted=100 remaining=0 passes_at=2026-11-20T12:00:09.000Z": {
			denying(100, 9*time.Second), "203.0.113.7:1", nil},
		"outcome=denied source=strategy policy=100/1m strategy=weirtest.Fake " +
			"limit=100 period=1m0s cost=1 counted=100 remaining=0 passes_at=2026-11-20T12:00:09.000Z " +
			"shadow=true": {
			denying(100, 9*time.Second), "203.0.113.7:1", func(c *httplimit.Config) { c.Shadow = true }},
		"outcome=listed source=\"deny list\" passes_at=2026-11-20T13:00:00.000Z": {limiter.FixedWindow(),
			"198.51.100.1:1", nil},
		"outcome=bypassed source=bypass policy=100/1m strategy=weirtest.Fake " +
			"limit=100 period=1m0s cost=1 error=\"the store is down\"": {
			weirtest.FailAll(errDown), "203.0.113.7:1", func(c *httplimit.Config) { c.FailOpen = true }},
		"outcome=exempt": {weirtest.DenyAll(), "203.0.113.7:1", func(c *httplimit.Config) {
			c.Skip = func(*http.Request) bool { return true }
		}},
		"outcome=\"no key\" error=\"httplimit: no key: the peer's address \\\\\\\"@\\\\\\\" is no IP " +
			"address\"": {
			weirtest.DenyAll(), "@", nil},
	} {
		var text strings.Builder
		logger := slog.New(slog.NewTextHandler(&text, nil))
		cfg := hundred()
		cfg.DenyList, cfg.Logger = list, slog.New(slog.DiscardHandler)
		cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) { logger.Info("x", "", d) }
		if row.set != nil {
			row.set(&cfg)
		}
		serve(row.s, cfg, from(row.peer))
		_, got, _ := strings.Cut(text.String(), "msg=x ")
		assert.Equal(t, want, strings.TrimSpace(got))
		assert.NotContains(t, got, "203.0.113.7", "the key may be a secret")
	}
}

// Log lines of the middleware have the same attributes.
func TestLogAttributes(t *testing.T) {
	var log strings.Builder
	cfg := hundred()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	serve(weirtest.FailAll(errDown), cfg, from("203.0.113.7:1"))
	assert.Regexp(t, regexp.MustCompile(
		`outcome=failed source=strategy policy=100/1m strategy=weirtest.Fake limit=100 period=1m0s `+
			`cost=1 `+
			`error="the store is down" key=hmac:[0-9a-f]{16}`), log.String())
}

// Repeated failures of one kind do not suppress log lines about another kind.
func TestRepeatedFailuresDoNotHideOthers(t *testing.T) {
	var log strings.Builder
	failure := weir.ErrFull
	cfg := hundred()
	cfg.Logger, cfg.Now = slog.New(slog.NewTextHandler(&log, nil)), at(noon)
	guard := httplimit.New(&weirtest.Fake{
		Answer: func(context.Context, *weir.Request, time.Time) (weir.Result, error) {
			return weir.Result{}, failure
		}}, cfg)(&hello{})
	for range 10 {
		guard.ServeHTTP(httptest.NewRecorder(), from("203.0.113.7:1"))
	}
	failure = errDown
	guard.ServeHTTP(httptest.NewRecorder(), from("203.0.113.7:1"))
	assert.Equal(t, 2, strings.Count(log.String(), "\n"))
	assert.Contains(t, log.String(), errDown.Error())
}

// The Decision names the source of a fallback's Result.
func TestSourcesOfAFallback(t *testing.T) {
	for by, want := range map[weir.Source]string{
		weir.FromPrimary: "primary", weir.FromLease: "lease",
		weir.FromDenials: "denial cache", weir.FromLocal: "local",
		weir.FromOnFail: "bypass", weir.Nowhere: "strategy",
	} {
		cfg := hundred()
		var seen string
		cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) { seen = d.Source }
		s := ops.Through(admitting(1, time.Second), func(_ context.Context, op *weir.Op, next func()) {
			next()
			op.Source = by
		})
		serve(s, cfg, from("203.0.113.7:1"))
		assert.Equal(t, want, seen)
	}
}
