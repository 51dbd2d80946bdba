package proxy

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/live"
	"github.com/weirgo/weir/cmd/weir/internal/onredis"
	"github.com/weirgo/weir/cmd/weir/internal/routes"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/overload"
)

// heldTo is a limit that callers are held to, with how many requests it has denied.
type heldTo struct {
	limitTitle
	route  *routed
	policy httplimit.Policy
	denied *atomic.Uint64
}

// routed counts the requests that were held to the limits of a route.
type routed struct {
	pattern  string // empty: all requests, or those of no route with limits of its own
	requests atomic.Uint64
}

// hold notes the limits of a route, for the page and for explain.
func (p *Proxy) hold(pattern string, limits []rule.Rule, policies []httplimit.Policy) {
	r := cmp.Or(p.before().routed[pattern], &routed{pattern: pattern})
	p.routed[pattern] = r
	for i, l := range limits {
		p.holdTo(&heldTo{limitTitle: titleOf(l), route: r, policy: policies[i]})
	}
}

// holdTo notes a limit. It goes on with the denials of the same one of the configuration before.
func (p *Proxy) holdTo(h *heldTo) {
	h.denied = new(atomic.Uint64)
	for _, old := range p.before().held {
		if old.route == h.route && old.limitTitle == h.limitTitle {
			h.denied = old.denied
		}
	}
	p.held = append(p.held, h)
}

// countHeld counts a decision of the limits.
func (p *Proxy) countHeld(r *http.Request, d httplimit.Decision) {
	var room [routes.MaxTargets]*routed
	of := p.routesOf(r, room[:0])
	switch d.Kind {
	default:
		return
	case httplimit.Denied, httplimit.Busy:
		i := slices.IndexFunc(p.held, func(h *heldTo) bool {
			return h.Name == d.Policy && (h.route == p.inAll || slices.Contains(of, h.route))
		})
		if i < 0 && d.Kind == httplimit.Busy { // all limits are busy, and it was held to none
			return
		}
		if i >= 0 {
			p.held[i].denied.Add(1)
		}
	case httplimit.Admitted:
	}
	if p.inAll != nil {
		p.inAll.requests.Add(1)
	}
	for _, route := range of {
		route.requests.Add(1)
	}
}

// routesOf appends the routes whose limits a request is held to.
func (p *Proxy) routesOf(r *http.Request, of []*routed) []*routed {
	targets := recordOf(r.Context()).targets.List
	if len(targets) == 0 { // no limit depends on the path
		return append(of, p.routed[""])
	}
	for _, t := range targets {
		route := p.routed[p.routes.Owner(t.Pattern)]
		if route != nil && !slices.Contains(of, route) {
			of = append(of, route)
		}
	}
	return of
}

// serveExplain answers with the cli.Explained of a caller: a key, an address or, with rules, a
// descriptor. It counts nothing.
func (p *Proxy) serveExplain(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("descriptor") != "" {
		if p.ruled == nil {
			http.Error(w, "there are no rules here, and so no descriptors", http.StatusBadRequest)
			return
		}
		p.ruled.ServeExplain(w, r, nil) // the denials are those of keys
		return
	}
	key, err := p.keyNamed(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	live.WriteJSON(w, p.explain(r.Context(), key))
}

// keyNamed returns the key that a request names: by its id, or as an entry of the deny list is
// written. An address stands for the key of its client.
func (p *Proxy) keyNamed(r *http.Request) (string, error) {
	if id := r.FormValue("id"); id != "" {
		return live.KeyOf(id)
	}
	text := r.FormValue("key")
	if text == "" {
		return "", errors.New("want a key")
	}
	e, err := cli.Entry(text)
	switch {
	case err != nil:
		return "", err
	case e.Key != "":
		return p.keyOf(e.Key)
	}
	if p.cfg.By.text != "ip" || !e.Prefix.IsSingleIP() {
		return p.keyOf(text)
	}
	return p.cfg.keyOfAddr(e.Prefix.Addr())
}

// keyOf returns the key that text names: that of a caller who is known and shown so, which escapes
// what cannot be printed, or By.key of text.
func (p *Proxy) keyOf(text string) (string, error) {
	by := p.cfg.By
	if len(by.parts) < 2 && !strings.Contains(text, `\`) {
		return text, nil
	}
	known, _ := p.recent.callers(time.Now())
	top, _ := p.denials.Top(live.Counted)
	for _, o := range top {
		known[o.Key] = netip.Addr{}
	}
	if _, ok := known[text]; ok || by.split(text) != nil {
		return text, nil
	}
	for key := range known {
		if by.shown(key) == text {
			return key, nil
		}
	}
	return by.key(text)
}

// explain returns why the caller with a key is limited, or why it is not.
func (p *Proxy) explain(ctx context.Context, key string) *cli.Explained {
	now := time.Now()
	x := &cli.Explained{ID: live.ID(key), Name: p.cfg.By.shown(key), Now: now.UnixMilli(),
		Shadow: p.cfg.Guard.Shadow, Rules: p.ruled != nil}
	addr := addrOf(p, key)
	x.Exempt = addr.IsValid() && contain(p.cfg.Allow, addr)
	if e, ok := p.denied.Lookup(key, addr); ok {
		l := p.listed(e)
		x.Listed = &l
	}
	if p.redis != nil {
		x.Alone = slices.ContainsFunc(p.redis.Hybrids(), func(h onredis.Hybrid) bool {
			return h.Stats().State != fallback.Closed
		})
	}
	if p.full != nil {
		look, err := p.full.Look(key, overload.Normal)
		x.Full = &cli.Full{Refuses: look.Refuses(), Says: look.Of(x.Name)}
		if err != nil {
			x.Full.Says = "not known: " + err.Error()
		}
	}
	for _, h := range p.held {
		x.Limits = append(x.Limits, h.look(ctx, key, now))
	}
	p.denials.Explain(x, key)
	x.Sent = sentBy(p, key, now)
	x.Tell()
	return x
}

// addrOf returns the last address of a caller; the zero Addr if it is unknown.
func addrOf(p *Proxy, key string) netip.Addr {
	addr := p.recent.addr(key)
	if p.cfg.By.text == "ip" && !addr.IsValid() {
		if at, err := cli.Prefix(key); err == nil {
			return at.Addr()
		}
	}
	return addr
}

// look returns what the limit holds of a caller.
func (h *heldTo) look(ctx context.Context, key string, now time.Time) cli.Held {
	held := cli.Held{Name: h.Name, Limit: h.Limit, Counting: h.Strategy, Route: h.route.pattern,
		AtOnce: h.AtOnce}
	ask := limits.Attempts{limits.NewAttempt(h.policy.Strategy)}
	ask[0].Look = true
	ask[0].Request = weir.Request{Key: h.policy.Key(key), Limit: h.policy.Limit,
		Duration: cmp.Or(h.policy.Duration, time.Minute)}
	if _, err := ask.Take(ctx, nil); err != nil {
		held.Error = err.Error()
		return held
	}
	held.Left = ask[0].Remaining()
	held.Used = ask[0].Most() - held.Left
	of := weir.CounterOf(h.policy.Strategy)
	if !of.About().Verbs.Has(weir.OpPeek) {
		return held
	}
	op := &weir.Op{Counter: of, Verb: weir.OpPeek, Request: ask[0].Request}
	of.Do(ctx, []*weir.Op{op})
	switch peek := &op.Result; {
	case op.Err != nil:
		held.Error = op.Err.Error()
	case !peek.Allowed() && h.Strategy == places && h.policy.Limit > 0:
		held.Busy = true
	case !peek.Allowed() && peek.ExpiresAt.IsZero():
		held.Never = true
	case !peek.Allowed() && peek.ExpiresAt.After(now):
		// on the wall clock as it is now, which differs by some ns each time
		held.Passes = now.Add(peek.ExpiresAt.Sub(now)).Round(time.Millisecond).UnixMilli()
	}
	return held
}

// whom returns e without what is not whom it is for.
func whom(e httplimit.DenyEntry) httplimit.DenyEntry {
	return httplimit.DenyEntry{Key: e.Key, Prefix: e.Prefix}
}

// listed returns an entry of the deny list as the page shows it.
func (p *Proxy) listed(e httplimit.DenyEntry) cli.Listed {
	l := cli.Listed{Name: p.describe(e), Kind: "prefix", By: "hand"}
	switch {
	case e.Key != "":
		l.ID, l.Kind = live.ID(e.Key), "key"
	case e.Prefix.IsSingleIP():
		l.Prefix, l.Kind = e.Prefix.String(), "address"
	default:
		l.Prefix = e.Prefix.String()
	}
	if from := (*p.from.Load())[whom(e)]; e.Penalty {
		l.By = "penalty box"
	} else if from != "" {
		l.By = from
	}
	if !e.Until.IsZero() {
		l.Until = e.Until.UnixMilli()
	}
	return l
}

// stopped returns how many callers of the last minute each entry of the deny list stops.
func (p *Proxy) stopped() map[httplimit.DenyEntry]int {
	stopped := make(map[httplimit.DenyEntry]int)
	if p.denied.Len() == 0 {
		return stopped
	}
	callers, each := p.recent.callers(time.Now())
	for key, addr := range callers {
		if e, ok := p.denied.Lookup(key, addr); ok {
			stopped[whom(e)] += each
		}
	}
	return stopped
}
