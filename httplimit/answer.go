package httplimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/overload"
)

// answer is the decision on a request, and how its client and the hooks are told.
type answer struct {
	asks
	kind    Kind
	shadow  bool // the request passes, whatever the kind
	status  int  // see Decision.Status
	err     error
	full    *overload.FullError // why Overload refuses the request; nil: it does not
	decider int                 // index in states of the limit that the Decision describes, or none
	jitter  time.Duration       // whole seconds
	line    []byte              // buffer: a field
	last    string              // the RateLimit field of the last denial
}

const none = -1

// reset writes no pointer that is zero already: while marking, the garbage collector notes every
// write of one.
func (a *answer) reset() {
	a.kind, a.status, a.shadow = Admitted, 0, a.guard.cfg.Shadow
	if a.err != nil {
		a.err = nil
	}
	if a.full != nil {
		a.full = nil
	}
	a.decider, a.jitter, a.key = none, 0, a.key[:0]
	if n := len(a.guard.policies); len(a.states) > n { // more were added for the last request
		a.limits, a.states = a.limits[:n], a.states[:n]
	}
	if a.verdict != nil {
		a.verdict.Attempts = nil
	}
}

// stop ends the decision, for a refusal with a status.
func (a *answer) stop(k Kind, status int, err error) {
	a.kind, a.status, a.err = k, status, err
	if status != 0 {
		a.jitter = randomSeconds(a.guard.cfg.Jitter)
	}
}

// stopUnasked ends a request whose caller is listed: with 403 if the entry has no end, so that
// retrying is of no use. With another err the caller is not known.
func (a *answer) stopUnasked(err error) {
	switch {
	case err != error(&a.listed):
		a.stop(NoKey, http.StatusBadRequest, err)
	case a.listed.until.IsZero():
		a.stop(Listed, http.StatusForbidden, nil)
	default:
		a.stop(Listed, a.guard.cfg.DeniedStatus, nil)
	}
}

// stopUndecided ends a request that a limit could not decide, and that is refused for it.
func (a *answer) stopUndecided(ctx context.Context, err error) {
	for i := 0; i < len(a.states) && a.decider == none; i++ {
		ask := a.states[i].ask
		failed := ask.Op.Err != nil && !ask.Taken() // else it could not give back
		if failed && (ctx.Err() != nil || !a.guard.bypasses(ask.Op.Err)) {
			a.decider, err = i, ask.Op.Err
		}
	}
	switch {
	case ctx.Err() != nil:
		a.stop(Canceled, http.StatusServiceUnavailable, err)
	case errors.Is(err, weir.ErrID):
		a.stop(NoKey, http.StatusBadRequest, err)
	default:
		a.stop(Failed, http.StatusServiceUnavailable, err)
	}
}

func (a *answer) passes() bool { return a.status == 0 || a.shadow }

// counting reports whether CountIf decides at the end whether the request counts.
func (a *answer) counting() bool { return a.guard.cfg.CountIf != nil && a.passes() && a.taken() }

// taken reports whether a limit counts the request. Without a decider no policy has decided, and
// limits are still of another request.
func (a *answer) taken() bool {
	return a.decider != none && taken(a.limits) || a.verdict != nil && taken(a.verdict.Attempts)
}

func taken(limits limits.Attempts) bool {
	for i := range limits {
		if limits[i].Taken() {
			return true
		}
	}
	return false
}

// caller returns the extracted key, by the policy that decides if there is one.
func (a *answer) caller() string {
	switch {
	case a.kind == NoKey:
		return ""
	case a.decider == none:
		return string(a.key)
	}
	return a.states[a.decider].caller(a.key)
}

// report returns the Decision. Only hooks, custom responses and adapters need it.
func (a *answer) report() Decision {
	d := Decision{Kind: a.kind, Key: a.caller(), Status: a.status, Shadow: a.shadow, Err: a.err,
		RetryAfter: a.retryAfter(), Full: a.full}
	if a.full != nil {
		d.Source = sourceOverload
	}
	if a.kind == Listed {
		d.Source = sourceDenyList
		d.Result = weir.Result{State: weir.Deny, ExpiresAt: a.listed.until}
	}
	if a.decider == none {
		return d
	}
	s := &a.states[a.decider]
	s.describe(&d)
	if a.kind == Bypassed {
		d.Source = sourceBypass
	}
	if s.ask.Decided() {
		d.Result, d.Remaining = s.ask.Op.Result, s.ask.Remaining()
	}
	return d
}

// logFailures logs which Strategies failed, unless the request ended for that as a client's fault.
func (a *answer) logFailures(ctx context.Context) {
	for i := range a.states {
		s := &a.states[i]
		l := s.ask
		if l.Op.Err == nil || i == a.decider && (a.kind == Canceled || a.kind == NoKey) {
			continue
		}
		t := &a.guard.throttles.failure
		if errors.Is(l.Op.Err, weir.ErrFull) {
			t = &a.guard.throttles.full
		}
		d := Decision{Kind: a.kind, Shadow: a.shadow, Err: l.Op.Err}
		s.describe(&d)
		if l.Taken() {
			d.Err = fmt.Errorf("refund: %w", l.Op.Err)
		}
		a.guard.log(ctx, t, slog.LevelError, "httplimit: the limiter failed", s.caller(a.key),
			d.LogValue().Group()...)
	}
}

// retryAfter returns the time to wait, with the jitter; 0 if waiting does not help or its length is
// unknown.
func (a *answer) retryAfter() time.Duration {
	var wait time.Duration
	switch {
	case a.kind == Denied:
		wait = longest(a.states, 0)
	case a.kind == Listed && !a.listed.until.IsZero():
		wait = max(time.Millisecond, a.guard.until(a.listed.until))
	case a.full != nil:
		wait = a.full.RetryAfter
	case a.kind == Busy:
		wait = retryPlace // a retry may pass at any time
	case a.kind == Failed && errors.Is(a.err, weir.ErrFull):
		wait = longest(a.states, retryPlace)
	}
	if wait > 0 {
		return spread(wait, a.jitter)
	}
	return 0
}

// setFields sets the fields of the style. In shadow mode there are none.
func (a *answer) setFields(f *fields) {
	style := a.guard.cfg.Headers
	if a.full != nil && a.full.Reason == overload.ShareUsed && !a.shadow {
		setShareFields(f, style, a.full, a.retryAfter())
		return
	}
	if a.decider == none || a.shadow {
		return
	}
	switch s := &a.states[a.decider]; {
	case style == HeadersNone:
		return
	case style == HeadersDraft:
		a.setDraftFields(f)
	case !s.ask.Decided():
	case style == HeadersLegacy:
		s.setLegacyFields(f, a.guard, ceilSeconds(a.retryAfter()))
	case style == HeadersOriginal:
		s.setOriginalFields(f, a.guard)
	}
	if a.kind == Bypassed {
		f.add(fieldBypassed, string(appendBypassed(nil, a.states)))
	}
}

// setDraftFields sets RateLimit-Policy and RateLimit.
func (a *answer) setDraftFields(f *fields) {
	line := a.guard.policyLine
	if line == "" {
		a.line = appendPolicies(a.line[:0], a.states)
		line = string(a.line)
	}
	if line == "" {
		return
	}
	f.add(fieldPolicy, line)
	a.line = appendRemaining(a.line[:0], a.states, a.status != 0, a.jitter)
	switch {
	case len(a.line) == 0:
	case a.kind == Denied:
		// the text of the last denial if it is equal, as those of repeated denials are
		if string(a.line[len(comma):]) != a.last {
			a.last = string(a.line[len(comma):])
		}
		f.add(fieldRateLimit, a.last)
	default:
		f.add(fieldRateLimit, string(a.line[len(comma):]))
	}
}

// setRetryAfter sets Retry-After, unless waiting does not help.
func (a *answer) setRetryAfter(f *fields) {
	if wait := a.retryAfter(); wait > 0 && !a.passes() {
		f.set(fieldRetryAfter, strconv.FormatInt(ceilSeconds(wait), 10))
	}
}

// write answers in the handler's place.
func (a *answer) write(w http.ResponseWriter, r *http.Request) {
	g := a.guard
	values := make([]string, len(styleFields[g.cfg.Headers])+refusalFields)
	f := fields{header: w.Header(), values: values}
	a.setFields(&f)
	a.setRetryAfter(&f)
	f.set(fieldCache, "no-store") // RFC 6585: a cache must not store a 429
	g.cfg.CORS.allow(w.Header(), r, g.exposed)
	if g.cfg.Respond != nil {
		g.cfg.Respond(w, r, a.report())
		return
	}
	f.set(fieldContentType, problemMediaType)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body()) // an error means that the client is gone
}

// body returns the body of a refusal.
func (a *answer) body() []byte {
	p := problem{Status: a.status}
	switch a.kind {
	case Denied:
		return a.deniedBody()
	case Listed:
		p.Type, p.Title = problemAbnormal, "Abnormal Usage Detected"
		p.Detail = "This caller is on the deny list."
	case NoKey:
		p.Type, p.Title = problemUntyped, http.StatusText(a.status)
		p.Detail = "The request does not say who sent it."
		if a.verdict != nil && a.verdict.Invalid != nil {
			p.Detail = "This request is refused: " + a.err.Error() + "."
		}
	case Busy:
		if a.full != nil && a.full.Reason == overload.ShareUsed {
			return deniedProblem(a.status, detailShare, shareName)
		}
		p.Type, p.Title, p.Detail = problemCapacity, titleCapacity, "Too many requests are in flight."
	default:
		p.Type, p.Title, p.Detail = problemCapacity, titleCapacity, "The rate limiter could not decide."
	}
	return p.body()
}

func (a *answer) deniedBody() []byte {
	names := violated(a.states)
	detail := detailUsedUp
	if a.decider == none { // a Decider has reported no limit
		return deniedProblem(a.status, detail)
	}
	switch s := &a.states[a.decider]; {
	case len(names) > 1:
		detail = detailSeveral
	case s.ask.Never() && s.ask.Op.Request.Limit > 0:
		detail = detailCost
	case s.policy != nil:
		return s.problem
	}
	return deniedProblem(a.status, detail, names...)
}
