package httplimit

import (
	"log/slog"
	"net/http"
	"time"
)

// Config says who is limited, to how much, and what he is told. Extractor, and a limit in one of three ways, must be set;
// the zero value of everything else is the documented default. It is read once, by [New].
type Config struct {
	// Extractor finds out who sent a request: [RemoteAddr], [ClientIP], [Headers], [Pattern], [Join], or your own. There
	// is no default, since each choice trusts somebody.
	Extractor Extractor

	// Name, Limit, Duration and LimitFunc are the fields of a [Policy] that runs on the Strategy given to New: the first
	// one, before Policies. Leave Duration and LimitFunc zero to have Policies alone.
	Name      string
	Limit     uint64
	Duration  time.Duration
	LimitFunc func(*http.Request) (limit uint64, duration time.Duration)

	// Policies are further limits on the same request: a burst and a daily one. A request passes if all admit it; one
	// that is denied takes nothing from any of them. They are asked in order and reported together. Every Strategy but
	// that of the last must be a [weir.Refunder].
	Policies []Policy

	// CostFunc returns what a request costs in every policy; 0 counts as 1. nil: 1.
	CostFunc func(*http.Request) uint64

	// CountIf returns whether a request that the handler answered with this status counts: for "only failed logins
	// count", func(s int) bool { return s == 401 }. The room is taken before the handler runs, so that no burst slips
	// through, and given back after it if CountIf says no; the fields that the client reads have it as taken. A request
	// whose handler panics counts. nil: every request does. Every Strategy must be a [weir.Refunder].
	CountIf func(status int) bool

	// Headers is the style in which the client is told where he stands, whether he was admitted or denied.
	Headers HeaderStyle

	// Jitter spreads clients that are denied at once, so that they do not all come back at once: a random whole number
	// of seconds up to this much is added to Retry-After. 0: none.
	Jitter time.Duration

	// DeniedStatus is the status of a denial. 0: 429.
	DeniedStatus int

	// Respond writes an answer that the middleware gives in the handler's place; the headers are set by then, and it must
	// write d.Status. nil: a body in application/problem+json (RFC 9457).
	Respond func(w http.ResponseWriter, r *http.Request, d Decision)

	// FailOpen lets a request pass when the Strategy cannot decide. The handler can tell by [IsBypassed], the client by
	// the RateLimit-Bypassed field, which lists the policies that were not asked. A request whose key cannot be extracted
	// is refused all the same. false: 503.
	FailOpen bool

	// Shadow decides, reports and counts, but lets every request pass, even one without a key. It puts nobody on the deny
	// list.
	Shadow bool

	// DenyList is asked before any Strategy. nil: nobody is listed.
	DenyList *DenyList

	// ClientIP finds the address that the prefixes on DenyList are compared with. The zero value is [RemoteAddr]; an [IP]
	// given as Extractor is used in its place.
	ClientIP IP

	// Penalty puts callers who are denied again and again on DenyList. The zero value: nobody.
	Penalty Penalty

	// OnDecision is called once for each request, when everything is decided and before anything is answered. No lock is
	// held; it is called from many goroutines, and the request waits for it. nil: nothing is called.
	OnDecision func(r *http.Request, d Decision)

	// Stats counts the decisions; several middlewares may share one. nil: nobody counts.
	Stats *Stats

	// Logger is told at level Error when a Strategy fails. nil: slog.Default().
	Logger *slog.Logger

	// LogKeys logs the caller's key, quoted. By default a log line carries a digest of it, under a secret of this
	// process: enough to see that two lines speak of one caller, not who he is.
	LogKeys bool

	// Now is the clock that the fields sent to the client count from; it must agree with the Strategy's. nil: time.Now.
	Now func() time.Time
}
