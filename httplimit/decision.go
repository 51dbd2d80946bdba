package httplimit

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
)

// Outcome is the result of the middleware's work on a request.
type Outcome uint8

// The outcomes. The handler ran after Admitted, Bypassed and Exempt, and in shadow mode after all
// of them.
const (
	Admitted Outcome = iota // every policy admitted it
	Denied                  // a policy denied it
	Listed                  // the caller is on the deny list
	NoKey                   // its key could not be extracted
	Failed                  // a Strategy could not decide, and the middleware fails closed
	Bypassed                // a Strategy could not decide, and the middleware fails open; no other policy denied it
	Canceled                // the client disconnected, or the context ended, before a Strategy decided
	Busy                    // too many requests are in flight: of all clients, or of this one
	Exempt                  // no limit applied: Skip, NoLimit, or a CORS preflight

	outcomes = iota
)

var outcomeNames = [outcomes]string{
	"Admitted", "Denied", "Listed", "NoKey", "Failed", "Bypassed", "Canceled", "Busy", "Exempt",
}

// String returns the outcome's name.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "Outcome(" + strconv.Itoa(int(o)) + ")"
}

// Outcomes returns all outcomes, in order.
func Outcomes() []Outcome {
	all := make([]Outcome, outcomes)
	for i := range all {
		all[i] = Outcome(i)
	}
	return all
}

// Source is the part that decided on a request.
type Source uint8

// The sources.
const (
	SourceNone        Source = iota // nothing: no policy ran
	SourceLocal                     // a limiter in this process
	SourceStrategy                  // a Strategy that does not say more, such as one on Redis
	SourcePrimary                   // the primary of a fallback
	SourceLease                     // a block of budget that the primary granted before
	SourceDenialCache               // a denial of the primary that still holds
	SourceDenyList                  // the deny list
	SourceBypass                    // no decision: FailOpen, OnFull, or the fallback's OnFail

	sources = iota
)

var sourceNames = [sources]string{"none", "local", "strategy", "primary", "lease", "denial cache", "deny list", "bypass"}

// String returns the source's name, in lower case.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return "Source(" + strconv.Itoa(int(s)) + ")"
}

// sourceOf translates the source of a fallback.
func sourceOf(s fallback.Source) Source {
	switch s {
	case fallback.FromPrimary:
		return SourcePrimary
	case fallback.FromLease:
		return SourceLease
	case fallback.FromDenials:
		return SourceDenialCache
	case fallback.FromLocal:
		return SourceLocal
	case fallback.FromPolicy:
		return SourceBypass
	}
	return SourceNone
}

// Decision explains the decision on one request and its source. It is a [slog.LogValuer].
type Decision struct {
	Outcome Outcome

	// Key is the extracted key. A client may have chosen its bytes: quote it in logs, and keep it out
	// of the labels of a metric. Empty after NoKey and after Skip.
	Key string

	// Policy is the name of the policy that the fields below describe: the one that denied, for the
	// longest; or that failed; or, of those that admitted, the one with the least room left. Empty if
	// none ran.
	Policy   string
	Strategy string // the policy's algorithm, such as "sliding window"
	Source   Source
	Limit    uint64
	Duration time.Duration
	Cost     uint64 // at least 1, if a policy ran

	// Result is the Strategy's. After Listed its ExpiresAt is the instant at which the listing ends,
	// or zero if it does not. It is zero if nothing was decided.
	Result weir.Result

	// Remaining is how much of Limit is left.
	Remaining uint64

	// Status is the status that the middleware answers, or in shadow mode would have. 0: the handler
	// answers.
	Status int

	// Shadow reports whether the middleware is in shadow mode, and the handler ran whatever the
	// Outcome.
	Shadow bool

	// Err says why there is no key, or why a Strategy could not decide. It may quote what the client
	// sent.
	Err error
}

// LogValue implements [slog.LogValuer]. The Key is not part of it, since it may be a secret.
func (d Decision) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.String("outcome", d.Outcome.String()))
	if d.Source != SourceNone {
		attrs = append(attrs, slog.String("source", d.Source.String()))
	}
	if d.Policy != "" {
		attrs = append(attrs, slog.String("policy", d.Policy), slog.String("strategy", d.Strategy),
			slog.Uint64("limit", d.Limit), slog.String("period", d.Duration.String()), slog.Uint64("cost", d.Cost))
	}
	if d.Policy != "" && d.Result != (weir.Result{}) {
		attrs = append(attrs, slog.Uint64("counted", d.Result.TotalRequests), slog.Uint64("remaining", d.Remaining))
	}
	if at := d.Result.ExpiresAt; !at.IsZero() && !d.Result.Allowed() {
		attrs = append(attrs, slog.Time("passes_at", at))
	}
	if d.Shadow {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	if d.Err != nil {
		attrs = append(attrs, slog.String("error", escape(d.Err.Error())))
	}
	return slog.GroupValue(attrs...)
}

// report makes the Decision, for hooks only: most requests need none.
func (m *middleware) report(c *call) Decision {
	d := Decision{Outcome: c.outcome, Key: c.caller(), Status: c.status, Shadow: m.Shadow, Err: c.err}
	if c.outcome == Listed {
		d.Source = SourceDenyList
		d.Result = weir.Result{State: weir.Deny, ExpiresAt: c.until}
	}
	if c.decider == none {
		return d
	}
	a := &c.asked[c.decider]
	d.Policy, d.Strategy, d.Source = a.Name, a.strategy, a.source
	d.Limit, d.Duration, d.Cost = a.req.Limit, a.req.Duration, a.cost()
	if c.outcome == Bypassed {
		d.Source = SourceBypass
	}
	if a.answered {
		d.Result, d.Remaining = a.res, a.remaining()
	}
	return d
}

// Stats counts decisions by [Outcome]. The zero value is ready to use; it is safe for concurrent
// use.
type Stats struct {
	counts [outcomes]atomic.Uint64
}

// Count returns how many requests have had this outcome; 0 for an undefined outcome.
func (s *Stats) Count(o Outcome) uint64 {
	if int(o) >= len(s.counts) {
		return 0
	}
	return s.counts[o].Load()
}

type bypassKey struct{}

// IsBypassed reports whether the request that ctx belongs to was admitted undecided, by a
// middleware that fails open.
func IsBypassed(ctx context.Context) bool {
	bypassed, _ := ctx.Value(bypassKey{}).(bool)
	return bypassed
}
