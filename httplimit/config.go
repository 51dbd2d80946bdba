package httplimit

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/overload"
)

// Config selects the client key, the limits and the answers. Extractor must be set, and there must
// be a limit: that given to [New], Duration, LimitFunc, Policies, Decider, Concurrency, Overload or
// MaxInFlight. The zero value of every other field is its documented default. [New] reads the
// Config once.
type Config struct {
	// Extractor returns the key of the client that sent a request: [RemoteAddr], [ClientIP],
	// [Headers], [Pattern], [Join], or your own. There is no default, since each choice trusts
	// other data.
	Extractor Extractor

	// Name, Limit, Duration, LimitFunc and DenyAll are the fields of a [Policy] on the limit or
	// Strategy given to New. That policy runs before Policies. With a Strategy that is no
	// [weir.Limit], leave all of them zero to use Policies alone.
	Name      string
	Limit     uint64
	Duration  time.Duration
	LimitFunc func(*http.Request) *weir.Limit
	DenyAll   bool

	// Policies are further limits on the same request, such as a burst and a daily one. A request
	// passes if all of them admit it; a denied one takes nothing from any; see [limits.Decide]. All
	// are reported together, in order. One Strategy at most may be unable to give back.
	Policies []Policy

	// Decider decides after these, by limits that it finds itself: a rules.Decider. With one,
	// Extractor may be nil: the key is then the client's address by
	// ClientIP, for DenyList, Penalty and Decision, and a request without one is no mistake. A denial
	// of the Decider takes nothing from the policies. nil: none.
	Decider Decider

	// Concurrency bounds the requests of one caller that are in flight at one time, such as its
	// streams. Its Strategy is a limit on work in flight, such as limiter.InFlight().Limit(2), or a
	// [weir.Counter] that can [weir.OpHold]: limiter.InFlight(), redislimit's for all instances
	// together, or a fallback of both. Each request takes one place as [weir.Hold] does, whatever
	// CostFunc returns, and keeps it until the handler returns or panics, and until a
	// connection that it has hijacked is closed too. Duration is the lease, by which the places of an
	// instance that dies are free again; 0: a minute. The default Name is "in flight".
	//
	// Concurrency is decided with Policies, before those whose Strategy is as near: a request that it
	// denies is not counted by them, and one that they deny keeps no place. The client may retry after
	// a second, since a place may be free at any time: a Result has the zero ExpiresAt, or when a
	// lease ends. The zero value: no bound.
	Concurrency Policy

	// CostFunc returns the cost of a request in every policy; 0 counts as 1. nil: 1.
	CostFunc func(*http.Request) uint64

	// CountIf reports whether a request that was answered with this status counts: for failed
	// logins only, func(status int) bool { return status == 401 }. The cost is taken before the
	// handler runs, so that no burst passes, and refunded afterwards if CountIf returns false. The
	// fields sent to the client include the cost.
	//
	// CountIf is not called, and the request counts, if the handler panics, or if the client hung
	// up or failed to send the whole body before a status was written: hanging up must not undo an
	// attempt. Of a hijacked connection it is given the status that the handler writes there, if the
	// first write has a whole status line; otherwise the request counts. nil: every request counts.
	// Every Strategy must be able to [weir.OpReturn].
	CountIf func(status int) bool

	// Skip reports whether a request is exempt: the handler runs, and neither the deny list nor any
	// limit is consulted. Skip runs first, so that an exempt request costs no bucket, and must not
	// trust anything the client can forge. nil: no request is exempt.
	Skip func(*http.Request) bool

	// Overload admits a request as long as the service is not full: it learns how many requests
	// fit, by how long handlers take. It comes after the deny list and before the policies, so that
	// a refusal counts nowhere. A request beyond the part of its class is answered with 503, and one
	// of a caller who holds its share with DeniedStatus and the fields of a limit named
	// "share"; Retry-After grows with how many are refused. The caller is the key of Extractor, as
	// DenyList has it. Several middlewares may share a Guard, unless one is around the other.
	//
	// The place of a stream is dropped when the stream begins, as its time says nothing: when a
	// handler hijacks the connection or sends a Content-Type of text/event-stream, and a second after
	// it first flushed the response. Bound streams with Concurrency. Nor is a request measured that a
	// policy denies or whose handler panics, and one whose client has left or that is answered with
	// 500 or more only if it took longer than the goal. nil: none.
	Overload *overload.Guard

	// Class returns how important a request is to Overload, such as Critical for log-ins; it must not
	// trust anything the client can forge. nil: all are Normal.
	Class func(*http.Request) overload.Class

	// MaxInFlight bounds the requests inside the handler at one time, over all clients: a number
	// that is known, in place of the one that Overload learns. One too many is answered with 503,
	// before Overload and any policy. 0: no bound. A place is released when the handler returns or
	// panics.
	MaxInFlight int

	// MaxKeysPerClient bounds the keys, and with them the buckets, that one client address (an IPv4
	// address or an IPv6 /64, found by ClientIP) may hold in a period; its further keys share one
	// bucket a policy. Without it one client that can vary its key, by path or by API key, fills
	// the table, and new callers get ErrFull. Clients behind a proxy count as one unless ClientIP
	// trusts the proxy. Requests whose peer has no IP address, as on a Unix socket, are not
	// bounded. An Extractor that is an [IP] of at most 64 bits has one key an address and needs no
	// bound. 0: 10,000; negative: no bound.
	MaxKeysPerClient int

	// AdmitFull admits a new client when a Strategy fails with [weir.ErrFull], as FailOpen does for
	// other failures. Clients that hold a bucket are unaffected; with FixedWindow every client needs a
	// new one in each window. false: 503, even with FailOpen: filling the table must not lift the
	// limit.
	AdmitFull bool

	// Headers is the style of the fields that report the limit, on admitted and denied requests.
	Headers HeaderStyle

	// CORS lets scripts in browsers read denials. The zero value adds no CORS field.
	CORS CORS

	// CountPreflights makes CORS preflight requests count. Browsers send them on their own, without
	// the header that may hold the key. false: they pass uncounted; the deny list, Overload and
	// MaxInFlight still apply.
	CountPreflights bool

	// Jitter spreads clients that are denied at once: a random whole number of seconds, 0 to
	// Jitter, is added to Retry-After. 0: none.
	Jitter time.Duration

	// DeniedStatus is the status of a denial, 400 to 599. 0: 429.
	DeniedStatus int

	// Respond writes the answer in the handler's place; the headers are set by then, and it must
	// write d.Status. nil: a body in application/problem+json (RFC 9457).
	Respond func(w http.ResponseWriter, r *http.Request, d Decision)

	// FailOpen admits a request when the Strategy cannot decide. The handler sees it by
	// [IsBypassed], the client by the RateLimit-Bypassed field, which lists the policies that did
	// not decide. FailOpen does not cover a key that cannot be extracted, a full table (see
	// AdmitFull), or a mistake in the program, such as too many different limits. false: 503.
	FailOpen bool

	// Shadow decides, reports and counts, but admits every request, even one without a key, sends the
	// client no field, and adds nothing to the deny list.
	Shadow bool

	// DenyList is consulted before any Strategy. nil: none.
	DenyList *DenyList

	// ClientIP finds the address that the prefixes on DenyList are compared with, and that
	// MaxKeysPerClient counts by. The zero value is the [IP] in Extractor, alone or in a [Join], or
	// else [RemoteAddr].
	ClientIP IP

	// Penalty puts clients that are denied repeatedly on DenyList. The zero value: none.
	Penalty Penalty

	// OnDecision is called once for each request, after the decision and before the answer. No lock is
	// held, calls are concurrent, and each request waits for its own. nil: none.
	OnDecision func(r *http.Request, d Decision)

	// Stats counts the decisions; several middlewares may share one. nil: none.
	Stats *Stats

	// Logger gets a record at level Error when a Strategy fails, and at level Warn when keys share a
	// budget or the address of a proxy counts: at most one a second of each kind, with the number of
	// those left out. nil: slog.Default().
	Logger *slog.Logger

	// LogKeys logs the caller's key, quoted. By default a record carries a digest of it under a
	// secret of this process, which distinguishes callers and does not reveal them.
	LogKeys bool

	// Now is the clock for the fields sent to the client, the ends of penalties and the ages of a
	// client's keys. It must agree with the Strategy's and the DenyList's. nil: time.Now.
	Now func() time.Time
}

func (cfg *Config) setDefaults() {
	cfg.DeniedStatus = cmp.Or(cfg.DeniedStatus, http.StatusTooManyRequests)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Extractor == nil && cfg.Decider != nil {
		cfg.Extractor = cfg.ClientIP
	}
	if ip, ok := findIP(cfg.Extractor); ok && cfg.ClientIP.isZero() {
		cfg.ClientIP = ip
	}
}

// check panics on a mistake, but those in policies.
func (cfg *Config) check() {
	switch {
	case cfg.Extractor == nil:
		panic("httplimit: no Extractor: choose what is limited; RemoteAddr() limits TCP peers")
	case cfg.DeniedStatus < 400 || cfg.DeniedStatus > 599:
		panic(fmt.Sprintf("httplimit: the DeniedStatus %d is no error status", cfg.DeniedStatus))
	case cfg.Headers >= headerStyles:
		panic(fmt.Sprintf("httplimit: there is no HeaderStyle %d", cfg.Headers))
	case cfg.Jitter < 0:
		panic(fmt.Sprintf("httplimit: the Jitter %v is negative", cfg.Jitter))
	case cfg.MaxInFlight < 0:
		panic(fmt.Sprintf("httplimit: the MaxInFlight %d is negative", cfg.MaxInFlight))
	case cfg.Class != nil && cfg.Overload == nil:
		panic("httplimit: a Class without an Overload: set that too, such as to overload.New(limiter, " +
			"overload.Config{})")
	case cfg.CORS.Credentials && slices.Contains(cfg.CORS.Origins, "*"):
		panic("httplimit: CORS: browsers send no credentials to the origin *")
	}
	cfg.Penalty.check(cfg.DenyList)
}

// compile returns the compiled policies, of which Concurrency is the first, and panics on a mistake
// in them. s is the Strategy of those that have none.
func (cfg *Config) compile(s weir.Strategy) (policies []*policy) {
	if !cfg.Concurrency.IsZero() {
		policies = append(policies, compileConcurrency(cfg.Concurrency, s, cfg.DeniedStatus))
	}
	for _, p := range cfg.allPolicies(s) {
		policies = append(policies, compile(p, s, cfg.DeniedStatus, false))
	}
	cfg.checkPolicies(policies)
	return policies
}

// allPolicies returns the policy of s and the fields of Config itself, if there is one, and
// Policies.
func (cfg *Config) allPolicies(s weir.Strategy) []Policy {
	first := Policy{
		Name: cfg.Name, Limit: cfg.Limit, Duration: cfg.Duration,
		LimitFunc: cfg.LimitFunc, DenyAll: cfg.DenyAll,
	}
	_, limited := s.(*weir.Limit)
	switch {
	case limited || cfg.Duration != 0 || cfg.LimitFunc != nil:
		return append([]Policy{first}, cfg.Policies...)
	case cfg.Limit != 0 || cfg.Name != "" || cfg.DenyAll:
		panic("httplimit: Limit, Name or DenyAll without a Duration")
	}
	return cfg.Policies
}

func (cfg *Config) checkPolicies(policies []*policy) {
	if len(policies) == 0 && cfg.MaxInFlight == 0 && cfg.Overload == nil &&
		cfg.Decider == nil {
		panic("httplimit: no limit: give New a weir.Limit, or set Limit and Duration, LimitFunc, " +
			"Policies, Concurrency, Overload, MaxInFlight, or Decider")
	}
	names := make(map[string]bool, len(policies))
	irrevocable := ""
	for _, p := range policies {
		switch {
		case p.Keys != nil && p.Extractor != nil:
			panic(fmt.Sprintf("httplimit: policy %q has both Keys and an Extractor", p.Name))
		case p.Keys == nil && p.Name != "" && names[p.Name]:
			panic(fmt.Sprintf("httplimit: two policies are named %q", p.Name))
		case p.template.CanRefund():
		case p.Keys != nil:
			panic(fmt.Sprintf("httplimit: the Strategy of policy %q, %s, cannot refund, "+
				"and has several keys", p.Name, p.shown.strategy))
		case cfg.CountIf != nil:
			panic(fmt.Sprintf("httplimit: CountIf: the Strategy of policy %q, %s, cannot refund",
				p.Name, p.shown.strategy))
		case irrevocable != "":
			panic(fmt.Sprintf("httplimit: the Strategies of policies %q and %q cannot refund; "+
				"only one can decide last", irrevocable, p.Name))
		default:
			irrevocable = p.Name
		}
		names[p.Name] = true
	}
}
