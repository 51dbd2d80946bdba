package envoy

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirgo/weir/cmd/weir/internal/live"
	"github.com/weirgo/weir/cmd/weir/internal/screen"
	"github.com/weirgo/weir/httplimit"
)

// admin returns the handler of the admin port: the status page, the metrics, and the requests that
// inspect or change the rules and counts.
//
// A browser on the same machine can send requests here on behalf of any site. So the Host must be
// an address or localhost, and a request that inspects or changes a count must carry the token,
// which no site knows. The page, the rules and the metrics need none.
func (s *Server) admin() http.Handler {
	mux := http.NewServeMux()
	live.AddPage(mux)
	mux.HandleFunc("GET /-/stats", s.serveStats)
	mux.HandleFunc("GET /rlconfig", s.serveRules)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	mux.Handle("POST /-/reload", s.tokenOnly(s.live.ServeReload))
	mux.Handle("GET /-/explain", s.tokenOnly(func(w http.ResponseWriter, r *http.Request) {
		s.live.ServeExplain(w, r, s.tally.denied)
	}))
	mux.Handle("DELETE /-/caller", s.tokenOnly(s.live.ServeReset))
	mux.Handle("DELETE /-/callers", s.tokenOnly(s.live.ServeResetAll))
	return live.Known(nil, "This server is known by its address and as localhost only.",
		live.Secure(mux))
}

// tokenOnly passes only requests with the admin token. Without a configured token it refuses all.
func (s *Server) tokenOnly(next http.HandlerFunc) http.Handler {
	var origin http.CrossOriginProtection // browsers that know the token bring it for any site
	return origin.Handler(s.gate.Wrap(next))
}

// serveRules lists the current rules in the format of Envoy's service.
func (s *Server) serveRules(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for r := range s.live.Engine.Set().All() {
		_, _ = w.Write([]byte(clean(r.Domain + ": " + r.String() + "\n")))
	}
}

// serveStats answers with what the page shows.
func (s *Server) serveStats(w http.ResponseWriter, _ *http.Request) {
	shown := live.NewShown("weir serve", s.started, &s.meter, s.tally.denied, screen.Printable)
	total := s.tally.totals()
	shown.Requests = map[string]uint64{
		httplimit.Admitted.String(): total.Admitted, httplimit.Denied.String(): total.Denied,
		httplimit.Failed.String(): total.Failed,
	}
	shown.Rules = s.live.Shown("")
	live.WriteJSON(w, shown)
}
