package live

import (
	"embed"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/serve/traffic"
)

//go:embed page
var pageFiles embed.FS

// AddPage has mux serve the status page, which shows what GET /-/stats answers with: a Shown.
func AddPage(mux *http.ServeMux) {
	mux.Handle("GET /{$}", http.RedirectHandler("/-/", http.StatusFound))
	mux.Handle("GET /-/{$}", file("page.html", "text/html; charset=utf-8"))
	mux.Handle("GET /-/page.js", file("page.js", "text/javascript; charset=utf-8"))
	mux.Handle("GET /-/page.css", file("page.css", "text/css; charset=utf-8"))
}

// file serves one of the embedded files.
func file(name, contentType string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		http.ServeFileFS(w, r, pageFiles, "page/"+name)
	})
}

// Secure sets the fields that make a browser run only the page's own files, refuse to frame it, and
// cache nothing.
func Secure(next http.Handler) http.Handler {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
		"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// Shown is what the page shows of every server. Times are in ms since the Unix epoch.
type Shown struct {
	Program string `json:"program"` // "weir proxy" or "weir serve"
	Started int64  `json:"started"`
	Now     int64  `json:"now"`

	Requests  map[string]uint64 `json:"requests"`   // by httplimit's Outcome
	PerSecond PerSecond         `json:"per_second"` // oldest first
	Minute    Sums              `json:"minute"`     // the last one
	Hour      Sums              `json:"hour"`
	Total     Sums              `json:"total"`

	Window  string      `json:"window"` // that Worst and Busiest look back on
	Denials uint64      `json:"denials"`
	Worst   []Caller    `json:"worst"`
	Rules   *RulesShown `json:"rules,omitempty"`

	Deciding []Deciding `json:"deciding"` // null without Redis
}

// PerSecond has the decisions of each second.
type PerSecond struct {
	Admitted []uint64 `json:"admitted"`
	Denied   []uint64 `json:"denied"`
	Failed   []uint64 `json:"failed"`
	Errors   []uint64 `json:"errors"`
}

// Caller was denied between N-Error and N times, or sent as many requests.
type Caller struct {
	ID     string  `json:"id"`
	Name   string  `json:"name"`
	N      uint64  `json:"n"`
	Error  uint64  `json:"error"`
	Share  float64 `json:"share"` // of all callers' N
	Last   int64   `json:"last"`
	Listed bool    `json:"listed"`
}

// CallerOf returns a caller of a view as the page shows it.
func CallerOf(c *traffic.Caller, v *traffic.View, name func(key string) string) Caller {
	return Caller{ID: ID(c.Key), Name: name(c.Key), N: c.N, Error: c.Error,
		Share: share(c.N, v.Requests), Last: c.Last.UnixMilli()}
}

// share returns part of all, or 0 of nothing.
func share(part, all uint64) float64 { return float64(part) / float64(max(all, 1)) }

// WorstShown is how many of the worst callers the page shows.
const WorstShown = 20

// NewShown returns a Shown, but for its Requests, Rules and Deciding. Callers have what name
// returns.
func NewShown(
	program string, started time.Time, m *Meter, d *Denials, w traffic.Window,
	name func(key string) string,
) Shown {
	s := Shown{Program: program, Window: w.String(), Started: started.UnixMilli(),
		Now: time.Now().UnixMilli()}
	past := m.Past()
	n := len(past)
	rates := PerSecond{make([]uint64, n), make([]uint64, n), make([]uint64, n), make([]uint64, n)}
	for i, x := range past {
		rates.Admitted[i], rates.Denied[i], rates.Failed[i] = x.Admitted, x.Denied, x.Failed
		rates.Errors[i] = x.Errors
	}
	s.PerSecond = rates
	s.Minute, s.Hour, s.Total = m.Sums()
	worst := d.View(w)
	s.Worst = Callers(&worst, name)
	_, s.Denials = d.Top(0)
	return s
}

// Callers returns the first callers of a view as the page shows them, by their names.
func Callers(v *traffic.View, name func(key string) string) []Caller {
	shown := make([]Caller, min(len(v.Callers), WorstShown))
	for i := range shown {
		shown[i] = CallerOf(&v.Callers[i], v, name)
	}
	return shown
}

// ID encodes a key, which may hold any bytes, as text; KeyOf decodes it.
func ID(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

// KeyOf is the inverse of ID.
func KeyOf(id string) (string, error) {
	key, err := base64.RawURLEncoding.DecodeString(id)
	return string(key), err
}

// RuleShown is a rule on the page.
type RuleShown struct {
	Rule     string `json:"rule"`
	Limit    string `json:"limit"`
	Counting string `json:"counting"`
	AtOnce   uint64 `json:"at_once"` // the most that passes within a moment
	Hits     uint64 `json:"hits"`
	Within   uint64 `json:"within"`
	Near     uint64 `json:"near"`
	Over     uint64 `json:"over"`
	Shadowed uint64 `json:"shadowed"`
	Lost     uint64 `json:"lost"`
}

// RulesShown is the part of the page about rules.
type RulesShown struct {
	Domain   string      `json:"domain,omitempty"` // empty: all
	Version  string      `json:"version"`
	Loaded   int64       `json:"loaded"`
	Loads    uint64      `json:"loads"`
	Refused  uint64      `json:"refused"`
	Warnings int         `json:"warnings"`
	Count    int         `json:"count"`
	Error    string      `json:"error,omitempty"` // of the last load
	Failed   int64       `json:"failed,omitempty"`
	Top      []RuleShown `json:"top"`
}

// maxRulesShown bounds the rules on the page.
const maxRulesShown = 200

// WriteJSON answers with v in JSON.
func WriteJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // an error means that the client disconnected
}
