package httplimit_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/near"
)

// ofUserAndOrg limits a user to 5 and his organisation to 3 in a minute.
func ofUserAndOrg() httplimit.Config {
	return httplimit.Config{
		Extractor: httplimit.Headers("X-User"),
		Policies: []httplimit.Policy{
			{Name: "user", Limit: 5, Duration: time.Minute},
			{Name: "org", Limit: 3, Duration: time.Minute, Extractor: httplimit.Headers("X-Org")},
		},
	}
}

func by(user, org string) *http.Request {
	r := from("203.0.113.7:1")
	for name, value := range map[string]string{"X-User": user, "X-Org": org} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	return r
}

func respond(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A policy with an Extractor of its own counts under its key, and a Decision has that key.
func TestPolicyWithItsOwnKey(t *testing.T) {
	l, clock := atNoon()
	cfg := ofUserAndOrg()
	cfg.Now = clock.Now
	var last httplimit.Decision
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) { last = d }
	cfg.CountIf = func(status int) bool { return status != http.StatusTeapot }
	status := http.StatusOK
	h := httplimit.New(l.FixedWindow(),
		cfg)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
	}))
	send := func(r *http.Request) int { return respond(h, r).Code }

	for _, user := range []string{"ann", "bob", "cid"} {
		assert.Equal(t, 200, send(by(user, "acme")))
	}
	assert.Equal(t, 429, send(by("dan", "acme")))
	assert.Equal(t, "org", last.Policy)
	assert.Equal(t, "acme", last.Key)
	assert.Equal(t, 200, send(by("dan", "other")), "the denial took nothing from the user")
	assert.Equal(t, "other", last.Key, "of the policy with the least left")
	assert.EqualValues(t, 2, last.Remaining)

	require.NoError(t, ops.Reset(t.Context(), l.FixedWindow(), &weir.Request{
		Key: cfg.Policies[1].Key("acme"), Limit: 3, Duration: time.Minute}))
	status = http.StatusTeapot
	for range 9 {
		assert.Equal(t, status, send(by("eve", "acme")), "both are given back")
	}
	assert.Equal(t, 400, send(by("eve", "")))
	assert.ErrorIs(t, last.Err, httplimit.ErrKey)
	assert.ErrorContains(t, last.Err, `policy "org"`)
}

// A request that LimitFunc exempts from a policy needs no key for it.
func TestExemptPolicyNeedsNoKey(t *testing.T) {
	l, _ := atNoon()
	cfg := ofUserAndOrg()
	three := l.FixedWindow().Limit(3, time.Minute)
	cfg.Policies[1].Limit, cfg.Policies[1].Duration = 0, 0
	cfg.Policies[1].LimitFunc = func(r *http.Request) *weir.Limit {
		if r.Header.Get("X-Org") == "" {
			return nil
		}
		return three
	}
	h := httplimit.New(l.FixedWindow(), cfg)(http.HandlerFunc(ok))
	assert.Equal(t, 200, respond(h, by("ann", "")).Code)
	w := respond(h, by("ann", "acme"))
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, `"user";q=5;w=60, "org";q=3;w=60`, w.Header().Get("RateLimit-Policy"))
}

// The penalty box lists the key of the policy that denied.
func TestPenaltyListsThePolicysKey(t *testing.T) {
	l, clock := atNoon()
	cfg := ofUserAndOrg()
	cfg.Now = clock.Now
	cfg.DenyList = httplimit.NewDenyList(httplimit.DenyListConfig{Now: clock.Now})
	cfg.Penalty = httplimit.Penalty{Strategy: l.FixedWindow(), Denials: 2, Within: time.Minute,
		For: time.Hour}
	h := httplimit.New(l.FixedWindow(), cfg)(http.HandlerFunc(ok))
	users := []string{"ann", "bob", "cid", "dan", "eve"}
	for i, user := range users {
		assert.Equal(t, i < 3, respond(h, by(user, "acme")).Code == 200)
	}
	clock.Advance(10 * time.Minute)
	for _, user := range users {
		assert.Equal(t, 429, respond(h, by(user, "acme")).Code, "the organisation is listed")
		assert.Equal(t, 200, respond(h, by(user, "of "+user)).Code, "the user is not")
	}
}

// An entry for a policy's own key is of that policy: nobody gets another listed by a key that looks
// like it, and the operator reads the key as it was extracted.
func TestListedKeysAreThoseOfTheirPolicy(t *testing.T) {
	l, clock := atNoon()
	cfg := ofUserAndOrg()
	cfg.Now = clock.Now
	cfg.DenyList = httplimit.NewDenyList(httplimit.DenyListConfig{Now: clock.Now})
	cfg.Penalty = httplimit.Penalty{Strategy: l.FixedWindow(), Denials: 1, Within: time.Minute,
		For: time.Hour}
	var last httplimit.Decision
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) { last = d }
	h := httplimit.New(l.FixedWindow(), cfg)(http.HandlerFunc(ok))
	for i := range 6 { // one more than the user's limit
		respond(h, by(weir.JoinKey("org", "acme"), "o"+string(rune('a'+i))))
	}
	require.Equal(t, []httplimit.DenyEntry{{Key: weir.JoinKey("org", "acme"),
		Until: clock.Now().Add(time.Hour), Penalty: true}},
		cfg.DenyList.Entries())
	assert.Equal(t, 200, respond(h, by("honest", "acme")).Code)
	for i := range 3 {
		respond(h, by("u"+string(rune('a'+i)), "acme"))
	}
	listed := httplimit.DenyEntry{Key: "acme", Policy: "org", Until: clock.Now().Add(time.Hour),
		Penalty: true}
	assert.Contains(t, cfg.DenyList.Entries(), listed)
	assert.Equal(t, 429, respond(h, by("honest", "acme")).Code)
	assert.Equal(t, httplimit.Listed, last.Kind)
	assert.Equal(t, "acme", last.Key)
	assert.Equal(t, 200, respond(h, by("acme", "another")).Code, "a user of that name is another")
	assert.True(t, cfg.DenyList.Remove(listed))
	clock.Advance(2 * time.Minute)
	assert.Equal(t, 200, respond(h, by("honest", "acme")).Code)
}

// A client with too many keys shares one in the policy that they are of.
func TestPolicyKeysAreBounded(t *testing.T) {
	l, clock := atNoon()
	cfg := ofUserAndOrg()
	cfg.Now, cfg.MaxKeysPerClient, cfg.Extractor = clock.Now, 4, httplimit.RemoteAddr()
	cfg.Policies[0].Limit = 1000
	h := httplimit.New(l.FixedWindow(), cfg)(http.HandlerFunc(ok))
	passed := 0
	for i := range 100 {
		if respond(h, by("", string(rune('a'+i%26))+string(rune('a'+i/26)))).Code == 200 {
			passed++
		}
	}
	assert.Equal(t, 4+3, passed, "one of each of four, and the limit of the shared one")
}

// Keys of different Extractors are different ones, and of one that has one key for each client none
// counts.
func TestKeysOfEachExtractorCount(t *testing.T) {
	for name, row := range map[string]struct {
		own  httplimit.Extractor
		most int // users with an org of the same name that have counts of their own
	}{
		"a field of its own": {httplimit.Headers("X-Org"), 2},
		"the address":        {httplimit.RemoteAddr(), 4},
	} {
		l, clock := atNoon()
		cfg := ofUserAndOrg()
		cfg.Now, cfg.MaxKeysPerClient = clock.Now, 4
		cfg.Policies[0].Limit, cfg.Policies[1].Limit, cfg.Policies[1].Extractor = 2, 1000, row.own
		h := httplimit.New(l.FixedWindow(), cfg)(http.HandlerFunc(ok))
		passed := 0
		for range 3 {
			for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				if respond(h, by(name, name)).Code == 200 {
					passed++
				}
			}
		}
		assert.Equal(t, 2*row.most+2, passed, name)
	}
}

// Config's keys are not counted where no policy counts under them.
func TestKeysThatNoPolicyCountsUnderAreNotBounded(t *testing.T) {
	l, clock := atNoon()
	cfg := ofUserAndOrg()
	cfg.Now, cfg.MaxKeysPerClient = clock.Now, 4
	cfg.Policies = cfg.Policies[1:]
	h := httplimit.New(l.FixedWindow(), cfg)(http.HandlerFunc(ok))
	for i := range 100 {
		respond(h, by("user"+string(rune('a'+i)), "one"))
	}
	assert.Equal(t, 200, respond(h, by("user", "two")).Code, "the second of four keys")
	assert.Equal(t, 200, respond(h, by("user", "three")).Code)
	assert.Equal(t, 200, respond(h, by("user", "four")).Code)
	w := respond(h, by("user", "four"))
	assert.Contains(t, w.Header().Get("RateLimit"), "r=1", "four has its own count")
}

// No name of a Go type is in a Decision or a record, whatever strategies are wrapped.
func TestNoGoTypeIsNamed(t *testing.T) {
	l, _ := atNoon()
	hybrid := func(s weir.Strategy) weir.Strategy {
		f, err := fallback.New(s, l.FixedWindow(), fallback.Config{AllowUnlike: true})
		require.NoError(t, err)
		return f
	}
	limit := func(s weir.Strategy) *weir.Limit {
		m, err := weir.NewLimit(s, 5, time.Minute)
		require.NoError(t, err)
		return m
	}
	for name, s := range map[string]weir.Strategy{
		"fixed window": near.NewDenials(hybrid(l.FixedWindow()), near.DenialsConfig{}),
		"sliding window": hybrid(near.NewLeases(near.NewDenials(l.SlidingWindow(), near.DenialsConfig{}),
			near.LeaseConfig{Block: 2})),
		"all of token bucket, fixed window": limits.All(
			limit(hybrid(l.TokenBucket(0))), limit(near.NewDenials(l.FixedWindow(), near.DenialsConfig{}))),
	} {
		var log bytes.Buffer
		var seen []httplimit.Decision
		cfg := hundred()
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) {
			seen = append(seen, d)
			cfg.Logger.Info("decision", "limit", d)
		}
		h := httplimit.New(s, cfg)(http.HandlerFunc(ok))
		respond(h, from("203.0.113.7:1"))
		require.NoError(t, l.Close())
		respond(h, from("203.0.113.7:1")) // it fails, and is logged
		l, _ = atNoon()
		require.Len(t, seen, 2)
		assert.Equal(t, name, seen[0].Strategy)
		for _, text := range []string{"weir.", "fallback.", "near.", "redislimit.", "*"} {
			assert.NotContains(t, log.String(), text, name)
		}
	}
}
