package replay

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
)

// begins selects the paths with one of the prefixes.
func begins(prefixes ...string) *Routes {
	return &Routes{Match: func(r *http.Request) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool {
			return strings.HasPrefix(r.URL.Path, p)
		})
	}}
}

func TestFilter(t *testing.T) {
	requests := traffic(9, 3000)
	file := write(t, "a.log", requests, request.caddy)
	since, until := requests[500].at, requests[2500].at
	for name, tc := range map[string]struct {
		filter Filter
		want   func(r request) bool
	}{
		"since and until": {Filter{Since: since, Until: until}, func(r request) bool {
			return !r.at.Before(since) && r.at.Before(until)
		}},
		"routes": {Filter{Routes: begins("/p1", "/p7")}, func(r request) bool {
			return strings.HasPrefix(r.path, "/p1") || r.path == "/p7"
		}},
		"a status": {Filter{Statuses: &Statuses{Match: func(s int) bool {
			return s == 401
		}}}, func(r request) bool { return r.status() == 401 }},
		"all of them": {Filter{Since: since, Routes: begins("/p1"),
			Statuses: &Statuses{Match: func(s int) bool {
				return s != 401
			}}},
			func(r request) bool {
				return !r.at.Before(since) && strings.HasPrefix(r.path, "/p1") && r.status() != 401
			}},
	} {
		cfg := config(t, []string{file}, "1/1m")
		cfg.Filter = tc.filter
		got := ran(t, cfg, name)
		var want uint64
		for _, r := range requests {
			if tc.want(r) {
				want++
			}
		}
		require.NotZero(t, want, name)
		assert.Equal(t, want, got.Requests, name)
	}
	for _, f := range []Filter{{Until: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)},
		{Since: time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)}} {
		cfg := config(t, []string{file}, "1/1m")
		cfg.Filter = f
		got := ran(t, cfg)
		assert.EqualValues(t, 3000, got.Requests, "a time that an int64 of nanoseconds does not hold")
	}
	cfg := config(t, []string{file}, "1/1m")
	cfg.Filter.Routes = begins("/none")
	_, err := Run(cfg)
	assert.ErrorContains(t, err, "none of the 3000 requests is one of those asked for")
	assert.True(t, errors.As(err, new(*InputError)))
}

// TestCountIf checks that a request whose status does not count is decided on and takes nothing, as
// in the middleware.
func TestCountIf(t *testing.T) {
	var text string
	for i, status := range []int{401, 200, 401, 200, 401, 401, 200} {
		text += fmt.Sprintf(`{"ts":%d.5,"request":{"remote_ip":"10.0.0.1"},"status":%d}`+"\n",
			1_700_000_000+i, status)
	}
	cfg := config(t, []string{writeText(t, "a.log", text)})
	cfg.Rules = crossed(t, []string{"3/1h", "3/1h,3/2h"}, rule.Strategies...)
	cfg.Filter.CountIf = &Statuses{Match: func(status int) bool { return status == 401 }}
	got := ran(t, cfg)
	assert.EqualValues(t, 3, got.Uncounted)
	for _, rr := range got.Rules {
		want := uint64(2) // denied after the third request that counts
		if rr.Rule.Strategy == rule.Leaky {
			want = 1 // one leaves at once and three wait
		}
		assert.Equal(t, want, rr.Denied, rr.Rule.String())
	}
}
