package envoy

import (
	"embed"
	"html/template"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirgo/weir/cmd/weir/internal/live"
	"github.com/weirgo/weir/offenders"
)

//go:embed page.html
var pageFile embed.FS

var page = template.Must(template.ParseFS(pageFile, "page.html"))

// admin returns the handler of the admin port: the status page, the metrics, and the requests that
// inspect or change the rules and counts.
//
// A browser on the same machine can send requests here on behalf of any site. So the Host must be
// an address or localhost, and a request that inspects or changes a count must carry the token,
// which no site knows. The page, the rules and the metrics need none.
func (s *Server) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.servePage)
	mux.HandleFunc("GET /rlconfig", s.serveRules)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	mux.Handle("POST /-/reload", s.tokenOnly(s.live.ServeReload))
	mux.Handle("GET /-/explain", s.tokenOnly(func(w http.ResponseWriter, r *http.Request) {
		s.live.ServeExplain(w, r, s.tally.denied)
	}))
	mux.Handle("DELETE /-/caller", s.tokenOnly(s.live.ServeReset))
	mux.Handle("DELETE /-/callers", s.tokenOnly(s.live.ServeResetAll))
	return live.Known(nil, "This server is known by its address and as localhost only.", secure(mux))
}

// secure sets the fields that make a browser run nothing, refuse to frame the page and cache
// nothing.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy",
			"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
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

// pageData is the data of the page.
type pageData struct {
	Status     live.Status
	Age        time.Duration
	OK, Over   uint64
	Undecided  uint64
	Rules      []live.Row
	More       int
	TopDenied  []offenders.Offender
	ShortHash  string
	LastError  string
	LastFailed string
}

// maxRows bounds the rules on the page.
const maxRows = 200

func (s *Server) servePage(w http.ResponseWriter, _ *http.Request) {
	st := s.live.Status()
	data := pageData{
		Status: st, Age: time.Since(st.Loaded).Round(time.Second), ShortHash: live.Short(st.Version),
		OK: s.tally.ok.Load(), Over: s.tally.over.Load(),
	}
	data.Rules, data.More = s.live.Figures.Top(maxRows, "")
	data.TopDenied, _ = s.tally.denied.Top(20)
	for i := range s.tally.errors {
		data.Undecided += s.tally.errors[i].Load()
	}
	if st.Err != nil {
		data.LastError, data.LastFailed = st.Err.Error(), st.Failed.UTC().Format(time.RFC3339)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, data) // an error means that the client disconnected
}
