package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/httplimit"
)

// adminServer serves the status page, the statistics and the deny list.
//
// A client of it can read which callers are limited and deny service to any of them, and a browser
// on the same machine can send requests on behalf of any site. So the Host must be an IP address or
// a configured name (a site can make its own name resolve to this address), a request must carry
// the token if one is set, and a change must come from the page itself or from outside a browser,
// with a header that no form can send.
type adminServer struct{ p *Proxy }

func (a adminServer) handler() http.Handler {
	p := a.p
	mux := http.NewServeMux()
	live.AddPage(mux)
	mux.HandleFunc("GET /-/stats", statistics{p}.serve)
	mux.HandleFunc("GET /-/explain", explainer{p}.serve)
	mux.Handle("GET /-/metrics", metricsOf(p))
	mux.Handle("POST /-/deny", changes(a.serveDeny))
	mux.Handle("DELETE /-/deny", changes(a.serveDeny))
	var guarded http.Handler = mux
	tokenOnly := p.gate.Wrap // it refuses all requests if no token is set
	if p.gate != nil {
		guarded = p.gate.Wrap(mux)
		tokenOnly = func(next http.Handler) http.Handler { return next } // they have passed the gate
	}
	if p.ruled != nil {
		mux.Handle("POST /-/reload", tokenOnly(changes(p.ruled.ServeReload)))
		mux.Handle("DELETE /-/caller", tokenOnly(changes(p.ruled.ServeReset)))
		mux.Handle("DELETE /-/callers", tokenOnly(changes(p.ruled.ServeResetAll)))
	}
	guarded = live.Known(p.cfg.Admin.Hosts,
		"This server does not accept that host name; see --admin-host.", guarded)

	// Health checks need no token, may use any name, and reveal nothing else.
	outer := http.NewServeMux()
	outer.HandleFunc("GET /-/healthz", a.serveHealth)
	outer.Handle("/", guarded)
	return live.Secure(outer)
}

// changeHeader is required on requests that change something: a form cannot send it, and a script
// of another site only with this server's consent, which it never gives.
const changeHeader = "Weir-Admin"

// changes refuses requests that another site may have sent.
func changes(next http.HandlerFunc) http.Handler {
	var origin http.CrossOriginProtection
	return origin.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(changeHeader) == "" {
			http.Error(w, "Set the header "+changeHeader+": 1.", http.StatusForbidden)
			return
		}
		next(w, r)
	}))
}

func (a adminServer) serveHealth(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if a.p.stopping.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte("stopping\n"))
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// change is the body of a request that adds an entry to the deny list or removes it. Exactly one of
// the first three fields is set.
type change struct {
	What    string `json:"what"`    // an address, a prefix or a key, as an operator writes it
	Prefix  string `json:"prefix"`  // an address or a prefix
	ID      string `json:"id"`      // a key as in serveStats
	For     string `json:"for"`     // how long, as in 10m or 7d; empty: without end
	Confirm int    `json:"confirm"` // the number of callers in a doubt about the same change
}

// doubt is the answer, with status 409, to a change that would stop more than the operator may
// have meant.
type doubt struct {
	Error   string `json:"error"`
	Confirm int    `json:"confirm"` // how many callers it stops, at least 1; repeats the change
}

// doubtOf returns the doubt about adding e, or nil if there is none. An entry is in doubt if it
// stops more than a quarter of the callers of the last minute or of all addresses, or the client
// that sent r. The number that was confirmed may have doubled since, as callers come and go.
func (a adminServer) doubtOf(e httplimit.DenyEntry, r *http.Request, confirmed int) *doubt {
	p := a.p
	alone := p.denied.empty()
	if alone.Add(e) != nil {
		return nil // it cannot be added to the list either
	}
	stops := func(key string, addr netip.Addr) bool {
		_, ok := alone.Lookup(key, addr)
		return ok
	}
	var reasons []string
	stopped, all := p.recent.count(time.Now(), stops)
	if 4*stopped > all {
		reasons = append(reasons, fmt.Sprintf("%d of the %d callers of the last minute", stopped, all))
	}
	if e.Key == "" && isWide(e.Prefix) {
		reasons = append(reasons, "more than a quarter of all addresses")
	}
	if addr, err := p.ip.Addr(r); err == nil && !contain(p.cfg.Allow, addr) {
		key := ""
		if p.cfg.By.text == "ip" {
			key, _ = p.ip.Extract(r) // Addr has not failed
		}
		if stops(key, addr) {
			reasons = append(reasons, fmt.Sprintf("you, at %s", addr))
		}
	}
	stopped = max(stopped, 1)
	if len(reasons) == 0 || (stopped+1)/2 <= confirmed {
		return nil
	}
	return &doubt{fmt.Sprintf("%s would stop %s; to do so, repeat it with \"confirm\": %d",
		p.cfg.By.describe(e), strings.Join(reasons, ", and "), stopped), stopped}
}

// entryHeader has, after a denial, its entry in JSON, which is enough to take it back.
const entryHeader = "Weir-Entry"

// entered is an entry that was added to the deny list, and what it replaced.
type entered struct {
	ID       string `json:"id,omitempty"`     // of a key
	Prefix   string `json:"prefix,omitempty"` // of a prefix
	Replaced bool   `json:"replaced"`         // it was on the list
	Until    int64  `json:"until,omitempty"`  // until when, if it ended; in ms since the Unix epoch
}

// enteredOf describes e, which is added next. The file's mu is held.
func enteredOf(p *Proxy, e httplimit.DenyEntry) entered {
	l := p.denied.shown(e, p.cfg.By)
	is := entered{ID: l.ID, Prefix: l.Prefix}
	for _, old := range p.denied.Entries() {
		if whom(old) == whom(e) && old.Policy == e.Policy {
			is.Replaced, is.Until = true, p.denied.shown(old, p.cfg.By).Until
		}
	}
	return is
}

// isWide reports whether p has more than a quarter of the addresses that clients have: of IPv6,
// those are 2000::/3.
func isWide(p netip.Prefix) bool {
	if p.Addr().Is4() {
		return p.Bits() < 2
	}
	return p.Bits() < 5
}

func (c change) entry(now time.Time) (e httplimit.DenyEntry, err error) {
	switch {
	case c.What != "" && c.Prefix == "" && c.ID == "":
		e, err = cli.Entry(c.What)
	case c.What == "" && c.Prefix != "" && c.ID == "":
		e.Prefix, err = cli.Prefix(c.Prefix)
	case c.What == "" && c.Prefix == "" && c.ID != "":
		e.Key, err = live.KeyOf(c.ID)
	default:
		err = errors.New("want exactly one of what, prefix and id")
	}
	if err == nil && c.For != "" {
		var d time.Duration
		d, err = rule.ParseDuration(c.For)
		if err == nil && d <= 0 {
			err = fmt.Errorf("%q is over already", c.For)
		}
		e.Until = now.Add(d)
	}
	return e, err
}

// unlist takes e, which is c's, off the list and reports whether it was there. If an operator wrote
// it, an address is also the key of its client: the penalty box lists keys.
func (c change) unlist(e httplimit.DenyEntry, p *Proxy) bool {
	removed := p.denied.Remove(e)
	if c.What == "" || e.Key != "" || p.cfg.By.text != "ip" {
		return removed
	}
	key, err := p.cfg.keyOfAddr(e.Prefix.Addr())
	if of, _ := cli.Prefix(key); err == nil && (e.Prefix.IsSingleIP() || of == e.Prefix) {
		return p.denied.Remove(httplimit.DenyEntry{Key: key}) || removed
	}
	return removed
}

// serveDeny changes the deny list.
func (a adminServer) serveDeny(w http.ResponseWriter, r *http.Request) {
	p := a.p
	var c change
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 16<<10))
	body.DisallowUnknownFields()
	err := body.Decode(&c)
	if err == nil && body.Decode(new(change)) != io.EOF {
		err = errors.New("more than one JSON value")
	}
	if err != nil {
		http.Error(w, "Invalid change: "+err.Error(), http.StatusBadRequest)
		return
	}
	e, err := c.entry(time.Now())
	if err == nil && c.What != "" && e.Key != "" {
		e.Key, err = explainer{p}.keyOf(e.Key)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Method == http.MethodPost {
		if d := a.doubtOf(e, r, c.Confirm); d != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusConflict)
			_ = json.NewEncoder(w).Encode(d) // the client is gone
			return
		}
	}
	p.denied.file.mu.Lock()
	defer p.denied.file.mu.Unlock()
	is := enteredOf(p, e)
	if r.Method == http.MethodDelete {
		if !c.unlist(e, p) {
			http.Error(w, "That is not on the list.", http.StatusNotFound)
			return
		}
	} else if err := p.denied.Add(e); err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, httplimit.ErrDenyListFull) {
			status = http.StatusInsufficientStorage
		}
		http.Error(w, err.Error(), status)
		return
	}
	p.cfg.Log.Info("deny list changed", "by", r.Method, "entry", p.cfg.By.describe(e))
	if err := p.denied.file.save(p.denied.DenyList); err != nil {
		p.cfg.Log.Error("the deny list cannot be saved", "error", err.Error())
		http.Error(w, "The list is changed, but cannot be saved: "+err.Error()+".",
			http.StatusInternalServerError)
		return
	}
	if r.Method == http.MethodPost {
		text, _ := json.Marshal(is) // it has only texts and numbers
		w.Header().Set(entryHeader, string(text))
	}
	w.WriteHeader(http.StatusNoContent)
}
