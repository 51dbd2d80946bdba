package httplimit

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/overload"
)

// Kind says what a middleware has done with a request, the "outcome" of logs and metrics.
type Kind uint8

// The kinds. The handler ran after Admitted, Bypassed and Exempt, and in shadow mode after all
// of them.
const (
	Admitted Kind = iota // every policy admitted it
	Denied               // a policy denied it
	Listed               // the caller is on the deny list
	NoKey                // its key could not be extracted
	Failed               // a Strategy could not decide, and the middleware fails closed
	// a Strategy could not decide, no policy denied, and the middleware fails open
	Bypassed
	Canceled // the client disconnected, or the context ended, before a Strategy decided
	Busy     // MaxInFlight requests are in flight, or Overload refuses it; Concurrency denies
	Exempt   // Skip, a CORS preflight, or no policy applies

	kinds = iota
)

var kindNames = [kinds]string{
	"admitted", "denied", "listed", "no key", "failed", "bypassed", "canceled", "busy", "exempt",
}

// String returns the name, in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// The sources of a Decision, besides the ones that a Strategy names.
const (
	sourceStrategy = "strategy"
	sourceDenyList = "deny list"
	sourceOverload = "overload"
	sourceBypass   = "bypass"
)

// Decision explains the decision on one request and its source. It is a [slog.LogValuer].
type Decision struct {
	Kind Kind

	// Key is the extracted key. Its bytes may be the client's choice: quote them in logs and keep them
	// out of metric labels. Empty after NoKey and after Skip.
	Key string

	// Policy is the name of the policy that the fields below describe: the one that denied for the
	// longest, or that failed, or, if all admitted, the one with the least remaining. Empty if none
	// ran.
	Policy   string
	Strategy string // the policy's algorithm, such as "sliding window"

	// Source is the part that decided: "local", a limiter in this process; "primary", the one of a
	// fallback; "lease", a block of budget that the primary granted earlier; "denial cache", a denial
	// of the primary that still holds; "strategy", any other Strategy, such as one on Redis; "deny
	// list"; "overload", Config's Overload; or "bypass", nobody, because of FailOpen, AdmitFull, or
	// the fallback's OnFail. It is empty if no policy ran.
	Source string

	Limit    uint64 // with Duration: the policy's, or the binding tier's
	Duration time.Duration
	Cost     uint64 // at least 1, if a policy ran

	// Result is the Strategy's. After Listed its ExpiresAt is the end of the entry, or zero if it
	// has none. The zero Result means that no Strategy decided.
	Result weir.Result

	// Remaining is how much of Limit is left, or of a token bucket's burst.
	Remaining uint64

	// RetryAfter is how long a client that is refused should wait before it repeats the request, with
	// the jitter; 0 if that does not help, or nobody knows how long.
	RetryAfter time.Duration

	// Status is the status of the middleware's answer, in shadow mode the one it would have had. 0:
	// the handler answers.
	Status int

	// Shadow reports whether the middleware is in shadow mode, and the handler ran whatever the
	// Kind.
	Shadow bool

	// Err is the reason for a missing key, or the Strategy's error. It may quote bytes that the
	// client sent.
	Err error

	// Full is why Overload refuses the request, by its class and with figures; nil: it does not.
	Full *overload.FullError
}

// LogValue implements [slog.LogValuer]. The Key is not part of it, since it may be a secret.
func (d Decision) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.String("outcome", d.Kind.String()))
	if d.Source != "" {
		attrs = append(attrs, slog.String("source", d.Source))
	}
	if d.Policy != "" {
		attrs = append(attrs, slog.String("policy", d.Policy), slog.String("strategy", d.Strategy),
			slog.Uint64("limit", d.Limit), slog.String("period", d.Duration.String()),
			slog.Uint64("cost", d.Cost))
	}
	if d.Policy != "" && d.Result != (weir.Result{}) {
		attrs = append(attrs, slog.Uint64("counted", d.Result.TotalRequests),
			slog.Uint64("remaining", d.Remaining))
	}
	if at := d.Result.ExpiresAt; !at.IsZero() && !d.Result.Allowed() {
		attrs = append(attrs, slog.Time("passes_at", at))
	}
	if d.Shadow {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	if d.Full != nil {
		attrs = append(attrs, slog.String("class", d.Full.Class.String()),
			slog.String("reason", d.Full.Reason.String()), slog.String("full", d.Full.Error()))
	}
	if d.Err != nil {
		attrs = append(attrs, slog.String("error", escape(d.Err.Error())))
	}
	return slog.GroupValue(attrs...)
}

// Stats counts decisions by [Kind]. The zero value is ready to use, and safe for concurrent use.
type Stats struct {
	counts [kinds]atomic.Uint64
}

// Count returns how many requests were of this kind; 0 for an undefined kind.
func (s *Stats) Count(k Kind) uint64 {
	if int(k) >= len(s.counts) {
		return 0
	}
	return s.counts[k].Load()
}

type bypassKey struct{}

// IsBypassed reports whether the request that ctx belongs to was admitted undecided, by a
// middleware that fails open.
func IsBypassed(ctx context.Context) bool {
	is, _ := ctx.Value(bypassKey{}).(bool)
	return is
}

// bypassed returns ctx, marked for IsBypassed.
func bypassed(ctx context.Context) context.Context {
	return context.WithValue(ctx, bypassKey{}, true)
}
