package httplimit_test

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/ops"
)

// namesOf returns the names of a user in both fields.
func namesOf(r *http.Request) (names []string, err error) {
	for _, field := range []string{"X-User", "X-Org"} {
		if name := r.Header.Get(field); name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// ofUserAndAlias limits a user to 3 in a minute, under the names in both fields.
func ofUserAndAlias() httplimit.Config {
	return httplimit.Config{
		Extractor: httplimit.Headers("X-User"),
		Policies:  []httplimit.Policy{{Name: "user", Limit: 3, Duration: time.Minute, Keys: namesOf}},
	}
}

// twice is ofUserAndAlias by two policies of one name.
func twice() httplimit.Config {
	cfg, first := ofUserAndAlias(), func(i int) func(r *http.Request) ([]string, error) {
		return func(r *http.Request) ([]string, error) {
			names, err := namesOf(r)
			return names[min(i, len(names)):min(i+1, len(names))], err
		}
	}
	cfg.Policies = append(cfg.Policies, cfg.Policies[0])
	cfg.Policies[0].Keys, cfg.Policies[1].Keys = first(0), first(1)
	return cfg
}

// TestPoliciesWithKeys has requests of users with two names.
func TestPoliciesWithKeys(t *testing.T) {
	l, _ := atNoon()
	user := l.FixedWindow().Limit(3, time.Minute).Named("user")
	plan := twice()
	plan.Policies[0].Strategy, plan.Policies[0].Limit, plan.Policies[0].Duration = user, 0, 0
	plan.Policies[1] = httplimit.Policy{Keys: plan.Policies[1].Keys,
		LimitFunc: func(*http.Request) *weir.Limit { return user }}
	for name, cfg := range map[string]httplimit.Config{
		"one": ofUserAndAlias(), "two": twice(), "one of a plan": plan,
	} {
		t.Run(name, func(t *testing.T) { testKeys(t, cfg) })
	}
}

func testKeys(t *testing.T, cfg httplimit.Config) {
	l, clock := atNoon()
	cfg.Now, cfg.MaxKeysPerClient = clock.Now, 3
	cfg.DenyList = httplimit.NewDenyList(httplimit.DenyListConfig{Now: clock.Now})
	cfg.Penalty = httplimit.Penalty{Strategy: l.FixedWindow(), Denials: 2, Within: time.Hour,
		For: time.Hour}
	var last httplimit.Decision
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) { last = d }
	h := httplimit.New(l.FixedWindow(), cfg)(http.HandlerFunc(ok))
	for _, row := range []struct {
		name, user, alias string
		status            int
		left, key         string
	}{
		{"one name", "ann", "", 200, `"user";r=2;t=60`, "ann"},
		{"the name counts as a further one too", "bob", "ann", 200, `"user";r=1;t=60`, "ann"},
		{"whichever comes first", "ann", "cid", 200, `"user";r=0;t=60`, "ann"},
		{"the further one denies", "bob", "ann", 429, `"user";r=0;t=60`, "ann"},
		{"a denial takes nothing", "bob", "", 200, `"user";r=1;t=60`, "bob"},
		{"two denials list the name that was denied", "cid", "ann", 429, `"user";r=0;t=60`, "ann"},
		{"which is listed as a further one", "bob", "ann", 429, "", "ann"},
		{"and by itself", "ann", "", 429, "", "ann"},
		{"and nobody else is", "bob", "cid", 200, `"user";r=0;t=60`, "bob"},
	} {
		w := respond(h, by(row.user, row.alias))
		assert.Equal(t, row.status, w.Code, row.name)
		assert.Equal(t, row.left, w.Header().Get("RateLimit"), row.name)
		assert.Equal(t, row.key, last.Key, row.name)
		if row.left != "" {
			assert.Equal(t, `"user";q=3;w=60`, w.Header().Get("RateLimit-Policy"), row.name)
			assert.Equal(t, "user", last.Policy, row.name)
		}
		if row.status == 429 && row.left != "" {
			assert.Contains(t, w.Body.String(), `"violated-policies":["user"]`, row.name)
		}
	}
	entries := cfg.DenyList.Entries()
	require.Len(t, entries, 1)
	assert.Equal(t, httplimit.DenyEntry{Key: "ann", Until: entries[0].Until, Penalty: true},
		entries[0])
	assert.True(t, cfg.DenyList.Remove(httplimit.DenyEntry{Key: "ann"}))
}

// failsFor returns s, which cannot decide on one key.
func failsFor(s weir.Strategy, key string) weir.Strategy {
	return ops.Through(s, func(_ context.Context, op *weir.Op, next func()) {
		if op.Verb == weir.OpTake && op.Key == key {
			op.Err = errDown
			return
		}
		next()
	})
}

// Of several keys of a policy one that nobody decided on is not shown, wherever it stands.
func TestAKeyThatNobodyDecidedOnDoesNotBind(t *testing.T) {
	for _, names := range [][]string{{"down", "ann"}, {"ann", "down"}, {"ann", "down", "bob"}} {
		l, clock := atNoon()
		cfg := ofUserAndAlias()
		cfg.Now, cfg.FailOpen, cfg.Logger = clock.Now, true, slog.New(slog.DiscardHandler)
		cfg.Policies[0].Keys = func(*http.Request) ([]string, error) { return names, nil }
		cfg.Policies[0].Strategy = failsFor(l.FixedWindow(), cfg.Policies[0].Key("down"))
		w := respond(httplimit.New(l.FixedWindow(), cfg)(http.HandlerFunc(ok)), by("x", ""))
		assert.Equal(t, http.StatusOK, w.Code)
		assert.Equal(t, `"user";r=2;t=60`, w.Header().Get("RateLimit"), names)
	}
}

// TestKeysThatAreMistakes has policies that New refuses.
func TestKeysThatAreMistakes(t *testing.T) {
	l, _ := atNoon()
	for name, change := range map[string]func(*httplimit.Config){
		"an Extractor, too": func(c *httplimit.Config) { c.Policies[1].Extractor = c.Extractor },
		"two of one name":   func(c *httplimit.Config) { c.Policies[1].Keys = nil },
		"no Refund":         func(c *httplimit.Config) { c.Policies[1].Strategy = noRefund{} },
	} {
		cfg := twice()
		change(&cfg)
		assert.Panics(t, func() { httplimit.New(l.FixedWindow(), cfg) }, name)
	}
	assert.NotPanics(t, func() { httplimit.New(l.FixedWindow(), twice()) })
}

// Keys may be many, none, too long, or an error.
func TestKeysOfOneRequest(t *testing.T) {
	l, _ := atNoon()
	var keys []string
	var failure error
	cfg := ofUserAndAlias()
	cfg.Policies[0].Keys = func(*http.Request) ([]string, error) { return keys, failure }
	cfg.MaxKeysPerClient = -1
	guard := httplimit.NewGuard(l.FixedWindow(), cfg)
	ask := func(of ...string) httplimit.Kind {
		keys = of
		ticket := guard.Begin(by("ann", ""))
		defer ticket.End(0)
		return ticket.Decision().Kind
	}
	assert.Equal(t, httplimit.Exempt, ask())
	assert.Equal(t, httplimit.NoKey, ask(strings.Repeat("x", 2000)))
	assert.Equal(t, httplimit.NoKey, ask("a", strings.Repeat("x", 2000)))
	for range 3 {
		assert.Equal(t, httplimit.Admitted, ask("b", "b"), "one is counted")
		assert.Equal(t, httplimit.NoKey, ask("b", ""))
		assert.Equal(t, httplimit.NoKey, ask(""))
	}
	assert.Equal(t, httplimit.Denied, ask("b"))
	many := make([]string, 100)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	for _, want := range []httplimit.Kind{httplimit.Admitted, httplimit.Admitted,
		httplimit.Admitted, httplimit.Denied} {
		assert.Equal(t, want, ask(many...))
	}
	assert.Equal(t, httplimit.Denied, ask("99"))
	assert.Equal(t, httplimit.Denied, ask("a", "0"))
	assert.Equal(t, httplimit.Admitted, ask("a"), "what another key denies takes nothing")
	failure = httplimit.ErrKey
	assert.Equal(t, httplimit.NoKey, ask("a"))
}

// Keys of a request that was refused before its limits were asked are none of the next one's.
func TestKeysOfAnEarlierRequest(t *testing.T) {
	l, clock := atNoon()
	list := httplimit.NewDenyList(httplimit.DenyListConfig{Now: clock.Now})
	cfg := ofUserAndAlias()
	cfg.DenyList, cfg.Extractor = list, httplimit.RemoteAddr()
	cfg.Policies = append(cfg.Policies,
		httplimit.Policy{Name: "org", Limit: 3, Duration: time.Minute, Extractor: httplimit.Headers("X-Id")},
		httplimit.Policy{Name: "last", Limit: 3, Duration: time.Minute,
			Keys: func(*http.Request) ([]string, error) { return []string{"x", "y"}, nil }})
	guard := httplimit.NewGuard(l.FixedWindow(), cfg)
	ask := func(r *http.Request) httplimit.Kind {
		ticket := guard.Begin(r)
		defer ticket.End(0)
		return ticket.Decision().Kind
	}
	for range 8 { // for a pool may drop what was used
		assert.Equal(t, httplimit.NoKey, ask(by("ann", "bob")), "there is no X-Id")
	}
	require.NoError(t, list.Add(httplimit.DenyEntry{Key: "bob"}))
	r := by("", "")
	r.Header.Set("X-Id", "1")
	assert.Equal(t, httplimit.Admitted, ask(r), "bob has not sent this")
}
