package httplimit_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
)

// ofUserAndAlias limits a user to 3 in a minute, under the names in both fields.
func ofUserAndAlias() httplimit.Config {
	aliased := func(r *http.Request) bool { return r.Header.Get("X-Org") != "" }
	return httplimit.Config{
		Extractor: httplimit.Headers("X-User"),
		Policies: []httplimit.Policy{
			{Name: "user", Limit: 3, Duration: time.Minute},
			{Name: "user", Limit: 3, Duration: time.Minute, Applies: aliased, Alternate: true,
				Extractor: httplimit.Headers("X-Org")},
		},
	}
}

// TestAlternatePolicies has requests of users with two names.
func TestAlternatePolicies(t *testing.T) {
	l, clock := atNoon()
	cfg := ofUserAndAlias()
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
		{"the name counts as an alternate too", "bob", "ann", 200, `"user";r=1;t=60`, "ann"},
		{"whichever comes first", "ann", "cid", 200, `"user";r=0;t=60`, "ann"},
		{"the alternate denies", "bob", "ann", 429, `"user";r=0;t=60`, "ann"},
		{"a denial takes nothing", "bob", "", 200, `"user";r=1;t=60`, "bob"},
		{"two denials list the name that was denied", "cid", "ann", 429, `"user";r=0;t=60`, "ann"},
		{"which is listed as an alternate", "bob", "ann", 429, "", "ann"},
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
	assert.Equal(t, httplimit.Entry{Key: "ann", Until: entries[0].Until}, entries[0])
	assert.True(t, cfg.DenyList.Remove(httplimit.Entry{Key: "ann"}))
}

// TestAnAlternateOfNothingIsAMistake has policies that New refuses.
func TestAnAlternateOfNothingIsAMistake(t *testing.T) {
	l, _ := atNoon()
	for name, change := range map[string]func(*httplimit.Config){
		"no Extractor":              func(c *httplimit.Config) { c.Policies[1].Extractor = nil },
		"another name":              func(c *httplimit.Config) { c.Policies[1].Name = "org" },
		"before what it belongs to": func(c *httplimit.Config) { slices.Reverse(c.Policies) },
		"two of one name":           func(c *httplimit.Config) { c.Policies[1].Alternate = false },
	} {
		cfg := ofUserAndAlias()
		change(&cfg)
		assert.Panics(t, func() { httplimit.New(l.FixedWindow(), cfg) }, name)
	}
	assert.NotPanics(t, func() { httplimit.New(l.FixedWindow(), ofUserAndAlias()) })
}
