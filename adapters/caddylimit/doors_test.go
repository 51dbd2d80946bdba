package caddylimit_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
)

func TestTheDoorOfCaddy(t *testing.T) {
	doortest.Run(t, "../..", doortest.Door{
		Name:  "caddy",
		Lacks: doortest.NotInCaddy,
		Open: func(t *testing.T, s *doortest.Setup) func(...string) doortest.Answer {
			upstream := httptest.NewServer(s.Handler())
			t.Cleanup(upstream.Close)
			options := []string{"limit 2/1d", "key {http.request.header.Key}"}
			add := func(given bool, format string, args ...any) {
				if given {
					options = append(options, fmt.Sprintf(format, args...))
				}
			}
			cfg := &s.Config
			add(cfg.Headers == httplimit.HeadersLegacy, "headers legacy")
			add(cfg.Headers == httplimit.HeadersNone, "headers none")
			add(cfg.DeniedStatus != 0, "status %d", cfg.DeniedStatus)
			add(cfg.Jitter != 0, "jitter %s", cfg.Jitter)
			add(cfg.CountIf != nil, "count_if 401")
			add(cfg.Shadow, "shadow")
			add(cfg.MaxKeysPerClient != 0, "max_keys %d", cfg.MaxKeysPerClient)
			add(cfg.MaxInFlight != 0, "max_in_flight %d", cfg.MaxInFlight)
			add(s.Full, "overload")
			add(s.Places != 0, "max_in_flight_per_client %d", s.Places)
			add(s.Cost != 0, "cost %d", s.Cost)
			for _, e := range s.Deny {
				add(true, "deny %s", e.Key)
			}
			matcher, errors := "", ""
			if s.Exempt {
				matcher = "@counted"
			}
			if s.Own {
				errors = "handle_errors {\nheader Own own\nrespond own {err.status_code}\n}\n"
			}
			url, _ := run(t, "@counted not remote_ip 127.0.0.1/32\nweir "+matcher+" {\n"+
				strings.Join(options, "\n")+"\n}\nreverse_proxy "+upstream.URL+"\n"+errors)
			return doortest.Send(t, url)
		},
	})
}
