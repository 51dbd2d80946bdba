package proxy

import (
	"net/http"
	"sync"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/cmd/weir/internal/serve/traffic"
	"github.com/weirgo/weir/httplimit"
)

// figures is the body of /-/stats. Times are in ms since the Unix epoch.
type figures struct {
	live.Shown

	Stopping bool         `json:"stopping"`
	Upstream string       `json:"upstream"`
	By       string       `json:"by"`
	Shadow   bool         `json:"shadow"`
	FailOpen bool         `json:"fail_open"`
	Limits   []limitShown `json:"limits"`
	InFlight int64        `json:"in_flight"`
	Table    table        `json:"table"`
	DenyList []cli.Listed `json:"deny_list"`
	Listed   int          `json:"listed"` // the number of entries, of which DenyList may be a part
	Try      *tried       `json:"try,omitempty"`
	Overload *overloaded  `json:"overload,omitempty"`
	Service  *service     `json:"service"`
	Busiest  []sender     `json:"busiest"` // callers, of the window
	Near     []group      `json:"near"`    // of them, by their prefix
}

type (
	limitTitle struct {
		Name     string `json:"name"`
		Limit    string `json:"limit"`
		Strategy string `json:"strategy"`
		AtOnce   uint64 `json:"at_once"` // the most that a caller gets within a moment
	}

	limitShown struct {
		limitTitle
		// its pattern; empty: all requests, or those of no route with limits of its own
		Route    string `json:"route,omitempty"`
		Requests uint64 `json:"requests"` // of the route
		Denied   uint64 `json:"denied"`   // by this limit
	}

	table struct {
		Buckets     int     `json:"buckets"`
		MaxBuckets  int     `json:"max_buckets"`
		Sweeps      uint64  `json:"sweeps"`
		Swept       uint64  `json:"swept"`
		LastSweepMs float64 `json:"last_sweep_ms"`
		Full        uint64  `json:"full"` // new callers refused with ErrFull
	}
)

func titleOf(l rule.Rule) limitTitle {
	return limitTitle{l.Name, l.Limit, rule.Titles[l.Strategy], l.AtOnce()}
}

const listedShown = 200

// statistics are the figures of a proxy.
type statistics struct{ p *Proxy }

func (s statistics) serve(w http.ResponseWriter, r *http.Request) {
	window, err := traffic.ParseWindow(r.FormValue("window"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	live.WriteJSON(w, s.figures(window))
}

// figures collects them. The callers with most requests and denials are those of w.
func (s statistics) figures(w traffic.Window) *figures {
	p := s.p
	sent := p.callers.View(w, time.Now())
	f := &figures{
		Shown:    live.NewShown("weir proxy", p.started, &p.meter, p.denials, w, p.cfg.By.shown),
		Stopping: p.stopping.Load(),
		By:       p.cfg.By.String(),
		Shadow:   p.cfg.Guard.Shadow,
		FailOpen: p.cfg.Guard.FailOpen,
		InFlight: p.open.Load(),
		Limits:   p.held.shown(p.cfg.Routes),
		Table:    p.table.read(p.limiter),
	}
	if p.cfg.Upstream != nil {
		f.Upstream = p.cfg.Upstream.String()
	}
	f.Requests = make(map[string]uint64)
	for o := httplimit.Admitted; o <= httplimit.Exempt; o++ {
		f.Requests[o.String()] = p.tally.count(o)
	}
	for i := range f.Worst {
		key, _ := live.KeyOf(f.Worst[i].ID) // it is one
		_, f.Worst[i].Listed = listingOf(p, key)
	}
	f.Busiest, f.Near, f.Service = busiestOf(p, &sent), groupsOf(p, &sent), serviceOf(p)
	f.DenyList, f.Listed = s.denied()
	f.Try, f.Overload = p.trial.shown(p.cfg.By), overloadedOf(p)
	if p.ruled != nil {
		f.Rules = p.ruled.Shown(p.ruled.domain)
	}
	if p.redis != nil {
		f.Deciding = live.DecidingOf(p.redis, OnFailNames[p.cfg.Redis.Fallback.OnFail])
	}
	return f
}

// denied returns the first entries of the deny list, and how many there are.
func (s statistics) denied() ([]cli.Listed, int) {
	p := s.p
	entries, stopped := p.denied.Entries(), p.denied.stopped(p.recent)
	sent := p.callers.View(traffic.Minute, time.Now())
	of := make(map[string]*traffic.Caller, len(sent.Callers))
	for i := range sent.Callers {
		of[sent.Callers[i].Key] = &sent.Callers[i]
	}
	shown := make([]cli.Listed, min(len(entries), listedShown))
	for i := range shown {
		e := entries[i]
		shown[i] = p.denied.shown(e, p.cfg.By)
		shown[i].Stops = stopped[whom(e)]
		if c := of[e.Key]; c != nil && e.Key != "" {
			shown[i].Agents, shown[i].Paths = c.Agents.Count(), c.Paths.Count()
		}
	}
	return shown, len(entries)
}

// tableFigures caches the limiter's statistics for tableEvery: computing them visits all buckets.
type tableFigures struct {
	mu   sync.Mutex
	at   time.Time // guarded by mu, as last
	last weir.Stats
}

const tableEvery = time.Second

func (t *tableFigures) stats(l *weir.Limiter) weir.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.at) >= tableEvery {
		t.last, t.at = l.Stats(), now
	}
	return t.last
}

// read returns the figures as /-/stats has them.
func (t *tableFigures) read(l *weir.Limiter) table {
	s := t.stats(l)
	return table{
		Buckets: s.Buckets, MaxBuckets: s.MaxBuckets, Sweeps: s.Sweeps, Swept: s.Swept,
		LastSweepMs: float64(s.LastSweep.Microseconds()) / 1e3, Full: s.Full,
	}
}
