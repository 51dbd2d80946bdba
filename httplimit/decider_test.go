package httplimit_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/weirtest"
)

// decider is a function as a Decider.
type decider func(r *http.Request, v *httplimit.Consultation)

func (f decider) Decide(r *http.Request, v *httplimit.Consultation) { f(r, v) }

// A Decider may say less than it knows.
func TestADeciderThatReportsNothing(t *testing.T) {
	for name, row := range map[string]struct {
		decide decider
		want   httplimit.Kind
		status int
	}{
		"admits":     {func(*http.Request, *httplimit.Consultation) {}, httplimit.Admitted, 200},
		"denies":     {func(_ *http.Request, v *httplimit.Consultation) { v.Denied = true }, httplimit.Denied, 429},
		"exempts":    {func(_ *http.Request, v *httplimit.Consultation) { v.Exempt = true }, httplimit.Exempt, 200},
		"fails":      {func(_ *http.Request, v *httplimit.Consultation) { v.Err = errDown }, httplimit.Failed, 503},
		"is full":    {func(_ *http.Request, v *httplimit.Consultation) { v.Err = weir.ErrFull }, httplimit.Failed, 503},
		"cannot say": {func(_ *http.Request, v *httplimit.Consultation) { v.Invalid = errors.New("?") }, httplimit.NoKey, 400},
		"in shadow": {func(_ *http.Request, v *httplimit.Consultation) { v.Denied, v.Shadow = true, true },
			httplimit.Denied, 200},
	} {
		var seen httplimit.Decision
		h := httplimit.New(nil, httplimit.Config{Decider: row.decide,
			Logger:     slog.New(slog.DiscardHandler),
			OnDecision: func(_ *http.Request, d httplimit.Decision) { seen = d }})(&hello{})
		for range 2 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, from("203.0.113.7:1"))
			assert.Equal(t, row.status, w.Code, name)
			assert.Equal(t, row.want, seen.Kind, name)
			assert.Equal(t, "203.0.113.7", cmpKey(seen), name)
		}
	}
}

// cmpKey is the key of a Decision, which is left out if it says that there is none.
func cmpKey(d httplimit.Decision) string {
	if d.Kind == httplimit.NoKey {
		return "203.0.113.7"
	}
	return d.Key
}

// A refusal has the t of the limits that denied, and of no others: of none if the Decider does not
// say which did.
func TestARefusalHasTheResetOfThoseThatDenied(t *testing.T) {
	attempts := limits.Attempts{
		limits.NewAttempt(denying(5, 9*time.Second)), limits.NewAttempt(admitting(1, 8*time.Second)),
		limits.NewAttempt(weirtest.FailAll(errDown)), limits.NewAttempt(weirtest.FailAll(weir.ErrFull)),
	}
	for i := range attempts {
		_, _ = attempts[i:i+1].Take(t.Context(), nil)
	}
	report := func(v *httplimit.Consultation) {
		v.Report(httplimit.Decision{Policy: "denies", Kind: httplimit.Denied}, &attempts[0], 9*time.Second)
		v.Report(httplimit.Decision{Policy: "admits"}, &attempts[1], 8*time.Second)
	}
	failsBy := func(a *limits.Attempt) decider {
		return func(_ *http.Request, v *httplimit.Consultation) {
			v.Err = a.Op.Err
			report(v)
			v.Report(httplimit.Decision{Policy: "fails"}, a, 0)
		}
	}
	for name, row := range map[string]struct {
		decide     decider
		want, wait string
	}{
		"it denies, and says no more": {func(_ *http.Request, v *httplimit.Consultation) { v.Denied = true },
			`"100/1m";r=100`, ""},
		"it denies": {func(_ *http.Request, v *httplimit.Consultation) { v.Denied = true; report(v) },
			`"100/1m";r=100, "denies";r=0;t=9, "admits";r=0`, "9"},
		"it fails": {failsBy(&attempts[2]),
			`"100/1m";r=100, "denies";r=0;t=9, "admits";r=0`, ""},
		"it is full": {failsBy(&attempts[3]),
			`"100/1m";r=100, "denies";r=0;t=9, "admits";r=0`, "9"},
	} {
		cfg := hundred()
		cfg.Decider, cfg.Logger = row.decide, slog.New(slog.DiscardHandler)
		w, ran := serve(admitting(1, 30*time.Second), cfg, from("203.0.113.7:1"))
		assert.Zero(t, ran, name)
		assert.Equal(t, row.want, w.Header().Get("RateLimit"), name)
		assert.Equal(t, row.wait, w.Header().Get("Retry-After"), name)
	}
}

// A policy that does not apply has no part in a request that a Decider decides, whatever it has
// said of an earlier one.
func TestAPolicyThatDoesNotApplyBesideADecider(t *testing.T) {
	var seen httplimit.Decision
	h := httplimit.New(nil, httplimit.Config{
		Policies: []httplimit.Policy{{Name: "p", Limit: 1, Duration: time.Minute,
			Strategy: weirtest.FailAll(errDown),
			Applies:  func(r *http.Request) bool { return r.Method == http.MethodPost }}},
		FailOpen: true, Logger: slog.New(slog.DiscardHandler),
		Decider:    decider(func(*http.Request, *httplimit.Consultation) {}),
		OnDecision: func(_ *http.Request, d httplimit.Decision) { seen = d },
	})(&hello{})
	for range 3 {
		for method, want := range map[string]httplimit.Kind{
			http.MethodPost: httplimit.Bypassed, http.MethodGet: httplimit.Admitted,
		} {
			r := from("203.0.113.7:1")
			r.Method = method
			h.ServeHTTP(httptest.NewRecorder(), r)
			assert.Equal(t, want, seen.Kind, method)
		}
	}
}
