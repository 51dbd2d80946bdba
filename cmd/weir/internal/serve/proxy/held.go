package proxy

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/routes"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/limits"
)

// held are the limits that callers are held to, for the page and for explain.
type held struct {
	table  *routes.Table
	limits []*heldTo
	routed map[string]*routed // by pattern, the routes of limits
	inAll  *routed            // of the limit on requests in flight, for all routes; nil: none
}

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

// hold adds the limits of a route. was are those of the configuration before.
func (h *held) hold(was *held, pattern string, limits []rule.Rule, policies []httplimit.Policy) {
	r := cmp.Or(was.routed[pattern], &routed{pattern: pattern})
	h.routed[pattern] = r
	for i, l := range limits {
		h.add(was, &heldTo{limitTitle: titleOf(l), route: r, policy: policies[i]})
	}
}

// holdAll adds a limit for all routes.
func (h *held) holdAll(was *held, title limitTitle, policy httplimit.Policy) {
	h.inAll = cmp.Or(was.inAll, new(routed))
	h.add(was, &heldTo{limitTitle: title, route: h.inAll, policy: policy})
}

// add adds a limit. It goes on with the denials of the same one of the configuration before.
func (h *held) add(was *held, l *heldTo) {
	l.denied = new(atomic.Uint64)
	for _, old := range was.limits {
		if old.route == l.route && old.limitTitle == l.limitTitle {
			l.denied = old.denied
		}
	}
	h.limits = append(h.limits, l)
}

// count counts a decision of the limits.
func (h *held) count(r *http.Request, d httplimit.Decision) {
	var room [routes.MaxTargets]*routed
	of := h.routesOf(r, room[:0])
	switch d.Kind {
	default:
		return
	case httplimit.Denied, httplimit.Busy:
		i := slices.IndexFunc(h.limits, func(l *heldTo) bool {
			return l.Name == d.Policy && (l.route == h.inAll || slices.Contains(of, l.route))
		})
		if i < 0 && d.Kind == httplimit.Busy { // all limits are busy, and it was held to none
			return
		}
		if i >= 0 {
			h.limits[i].denied.Add(1)
		}
	case httplimit.Admitted:
	}
	if h.inAll != nil {
		h.inAll.requests.Add(1)
	}
	for _, route := range of {
		route.requests.Add(1)
	}
}

// routesOf appends the routes whose limits a request is held to.
func (h *held) routesOf(r *http.Request, of []*routed) []*routed {
	targets := recordOf(r.Context()).targets.List
	if len(targets) == 0 { // no limit depends on the path
		return append(of, h.routed[""])
	}
	for _, t := range targets {
		route := h.routed[h.table.Owner(t.Pattern)]
		if route != nil && !slices.Contains(of, route) {
			of = append(of, route)
		}
	}
	return of
}

// shown has a row for each limit, and then for each cost of these routes.
func (h *held) shown(costs []Route) []limitShown {
	var shown []limitShown
	for _, l := range h.limits {
		shown = append(shown, limitShown{l.limitTitle, l.route.pattern, l.route.requests.Load(),
			l.denied.Load()})
		if len(h.routed) == 1 && h.table.HaveCosts() {
			shown[len(shown)-1].Route = "all" // an empty one beside others is that of all others
		}
	}
	for _, r := range costs {
		if r.Cost > 0 {
			title := limitTitle{Name: "cost", Limit: fmt.Sprintf("%d a request", r.Cost)}
			shown = append(shown, limitShown{limitTitle: title, Route: r.Pattern})
		}
	}
	return shown
}

// look returns what the limit holds of a caller.
func (h *heldTo) look(ctx context.Context, key string, now time.Time) cli.Held {
	held := cli.Held{Name: h.Name, Limit: h.Limit, Counting: h.Strategy, Route: h.route.pattern,
		AtOnce: h.AtOnce}
	ask := limits.Attempts{limits.NewAttempt(h.policy.Strategy)}
	ask[0].Look = true
	ask[0].Op.Request = weir.Request{Key: h.policy.Key(key), Limit: h.policy.Limit,
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
	op := &weir.Op{Counter: of, Verb: weir.OpPeek, Request: ask[0].Op.Request}
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
