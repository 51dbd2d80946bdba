package proxy

import (
	"net/http"
	"testing"

	"github.com/weirgo/weir/internal/testkit/doortest"
)

// opens returns the Open of a proxy with the limits of cfg.
func opens(limits func(t *testing.T) Config) func(*testing.T, *doortest.Setup) func(...string) doortest.Answer {
	return func(t *testing.T, s *doortest.Setup) func(...string) doortest.Answer {
		cfg := by(t, limits(t), "header:Key")
		cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(s.Serve(r.Header))
		})
		cfg.Guard, cfg.Deny = s.Config, s.Deny
		cfg.Guard.MaxInFlight, cfg.MaxInFlight = 0, s.Config.MaxInFlight
		cfg.MaxInFlightPerClient, cfg.Overload.On = int(s.Places), s.Full
		if s.Cost > 0 {
			cfg = withRoutes(t, cfg, "/ cost=2")
		}
		if s.Exempt {
			cfg.Allow = loopback
		}
		if s.Own {
			cfg.Guard.Respond = doortest.Own
		}
		return doortest.Send(t, serve(t, cfg).front.URL)
	}
}

func TestTheDoorsOfTheProxy(t *testing.T) {
	doortest.Run(t, "../../../../..", doortest.Door{
		Name: "proxy --limit",
		Open: opens(func(t *testing.T) Config { return config(t, "2/1d") }),
	}, doortest.Door{
		Name: "proxy --rules",
		Open: opens(func(t *testing.T) Config {
			cfg, _ := rulesConfig(t, doortest.Rules)
			return cfg
		}),
	})
}
