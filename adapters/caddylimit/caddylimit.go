// Package caddylimit is a Caddy module that limits requests, http.handlers.weir, with a directive
// for the Caddyfile:
//
//	example.com {
//		weir /login* {
//			limit login=5/1m
//		}
//		weir {
//			limit    100/1m 2000/1h
//			strategy sliding
//			deny     203.0.113.0/24
//			redis    redis://127.0.0.1:6379
//		}
//		reverse_proxy localhost:9000
//	}
//
// To build a Caddy with it:
//
//	xcaddy build --with github.com/weirgo/weir/adapters/caddylimit
//
// [Handler.UnmarshalCaddyfile] lists the directive's options. Counts outlive a reload of the
// configuration, also one with other limits: they belong to a limit's name and period.
package caddylimit

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/weblimit"
	"github.com/weirgo/weir/metrics"
	"github.com/weirgo/weir/metrics/weirprom"
	"github.com/weirgo/weir/overload"
)

func init() {
	caddy.RegisterModule(&Handler{})
	httpcaddyfile.RegisterHandlerDirective("weir", parseDirective)
	// Before the first directive that asks for a password, so that guesses are limited.
	httpcaddyfile.RegisterDirectiveOrder("weir", httpcaddyfile.After, "try_files")
}

// Handler is the Caddy module http.handlers.weir. It answers a refused request with an error, which
// handle_errors can render: 429 if a limit denies it or its caller is denied for a while, 403 if
// its caller is on the deny list, 400 if it has no key, 503 if it could not be decided. RateLimit,
// RateLimit-Policy and Retry-After fields go with it.
//
// It sets the placeholders {http.weir.outcome}, {http.weir.policy}, {http.weir.source} and
// {http.weir.remaining}, for logs and error pages.
type Handler struct {
	// Limits must all admit a request; a denied request is not counted by any. At least one.
	Limits []Limit `json:"limits"`

	// Key says which requests share a budget: "ip" for the client's address, by Caddy's
	// trusted_proxies, IPv6 addresses by their /64; "all" for one budget for everybody; or text with
	// placeholders, such as "{http.request.host}". Several are joined. A request for which a
	// placeholder is empty or unknown is answered with 400. Default: ip.
	Key []string `json:"key,omitempty"`

	// Strategy is the algorithm: fixed, sliding, log or token. Default: sliding.
	Strategy string `json:"strategy,omitempty"`

	// Burst is the size of a token bucket. Default: the limit.
	Burst uint64 `json:"burst,omitempty"`

	// Deny lists the callers that are denied: addresses, prefixes, and keys.
	Deny []string `json:"deny,omitempty"`

	// FailOpen admits requests that cannot be decided. Default: 503.
	FailOpen bool `json:"fail_open,omitempty"`

	// Shadow decides and sets the placeholders, and admits every request.
	Shadow bool `json:"shadow,omitempty"`

	// Headers are the fields that report the limit: draft, legacy (X-RateLimit-*) or none. Default:
	// draft.
	Headers string `json:"headers,omitempty"`

	// Status is the status of a denial. Default: 429.
	Status int `json:"status,omitempty"`

	// Jitter spreads clients that are denied at once: up to so much is added to Retry-After.
	Jitter caddy.Duration `json:"jitter,omitempty"`

	// MaxKeys bounds the budgets that one client address may use in a period; its further keys share
	// one. Default: 10,000; negative: no bound.
	MaxKeys int `json:"max_keys,omitempty"`

	// MaxBuckets bounds the budgets that are kept in memory, about 73 bytes each. Default: 1,048,576.
	MaxBuckets int `json:"max_buckets,omitempty"`

	// CountIf lists statuses of answers, such as "401" or "5xx": only requests that are answered with
	// one of them count. Default: all.
	CountIf []string `json:"count_if,omitempty"`

	// Cost is how much a request counts for: a number, or text with placeholders that makes one. A
	// request for which it makes none, or more than the limit, is denied. Default: 1.
	Cost string `json:"cost,omitempty"`

	// Overload admits requests as long as they fit: it learns how many can be handled at one time. One
	// too many is answered with 503. It learns again after a reload. Default: none.
	Overload *Overload `json:"overload,omitempty"`

	// Class is how important a request is to Overload: sheddable, normal or critical, or text with
	// placeholders that makes one of these; any other text is normal. Default: normal.
	Class string `json:"class,omitempty"`

	// MaxInFlight bounds the requests that are handled at one time; one too many is answered with 503.
	// Default: no bound.
	MaxInFlight int `json:"max_in_flight,omitempty"`

	// MaxInFlightPerClient bounds those of one key, streams and WebSockets too; one too many is
	// answered with Status. It holds over all Caddys that share a Redis. It is counted under the name
	// of the first limit. Default: no bound.
	MaxInFlightPerClient int `json:"max_in_flight_per_client,omitempty"`

	// IPv4Prefix and IPv6Prefix are the leading bits of an address that the key ip goes by. Default:
	// 32 and 64.
	IPv4Prefix int `json:"ipv4_prefix,omitempty"`
	IPv6Prefix int `json:"ipv6_prefix,omitempty"`

	// Redis counts there, so that several Caddys share the limits. Default: in this process.
	Redis *Redis `json:"redis,omitempty"`

	guard   *weblimit.Guard[*http.Request]
	backend *backendKey // nil until it is taken from the pool
}

// Overload says how long a request may take while the service is full.
type Overload struct {
	// Goal is that time. Default: it is learnt.
	Goal caddy.Duration `json:"goal,omitempty"`
}

// CaddyModule returns the module's name and constructor.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.weir", New: func() caddy.Module { return new(Handler) }}
}

// Provision sets the handler up. Handlers with the same Strategy, Burst, MaxBuckets and Redis count
// together, also with those of the configuration that this one replaces: a reload keeps the counts.
// With another Burst or MaxBuckets it copies them; what the old configuration still admits
// meanwhile is lost.
func (h *Handler) Provision(ctx caddy.Context) error {
	if err := h.check(); err != nil {
		return err
	}
	key, err := newBackendKey(h)
	if err != nil {
		return err
	}
	previous := predecessors(key)
	value, _, err := backends.LoadOrNew(key, func() (caddy.Destructor, error) {
		return newBackend(key, previous)
	})
	if err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	h.backend = &key
	cfg, err := h.config()
	if err != nil {
		return err
	}
	cfg.Logger = ctx.Slogger()
	b := value.(*backend)
	if h.MaxInFlightPerClient > 0 {
		cfg.Concurrency = httplimit.Policy{
			Name: h.placesName(), Limit: uint64(h.MaxInFlightPerClient), Strategy: b.places,
		}
	}
	collectors := []prometheus.Collector{decisions, holds, b.collector}
	if h.Overload != nil {
		cfg.Overload, err = overload.New(b.limiter, overload.Config{Goal: time.Duration(h.Overload.Goal)})
		if err != nil {
			return fmt.Errorf("weir: %w", err)
		}
		cfg.Class = classOf(h.Class)
		collectors = append(collectors, weirprom.New(key.String(), metrics.Overload(cfg.Overload.Stats)))
	}
	if err := register(ctx.GetMetricsRegistry(), collectors...); err != nil {
		return err
	}
	h.guard, err = guard(b.strategy, cfg)
	return err
}

// UnmarshalCaddyfile reads the directive. Each option is described at the field of [Handler] or
// [Redis]:
//
//	weir [<matcher>] [<limit>...] {
//		limit       [<name>=]<count>/<period>...
//		key         ip | all | <placeholder>...
//		strategy    fixed | sliding | log | token
//		burst       <count>
//		deny        <address> | <prefix> | <key>...
//		fail        open | closed
//		headers     draft | legacy | none
//		status      <status>
//		jitter      <duration>
//		max_keys    <count>
//		max_buckets <count>
//		count_if    <status>...
//		cost        <count> | <placeholder>
//		overload    [<goal>]
//		class       sheddable | normal | critical | <placeholder>
//		max_in_flight            <count>
//		max_in_flight_per_client <count>
//		ipv4_prefix <bits>
//		ipv6_prefix <bits>
//		shadow
//		redis       <url> {
//			prefix     <text>
//			timeout    <duration>
//			instances  <count>
//			on_failure local | open | closed
//		}
//	}
//
// Limit, key, deny and count_if may stand several times. A period is a duration such as 30s, 1h30m
// or 7d. The default name of a limit is its period, so that a reload with another count continues;
// of several limits for a period all need names. A status is one such as 401 or a class such as
// 5xx.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if err := (&caddyfileReader{h, d}).read(); err != nil {
		return err
	}
	if err := h.check(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// check reports what httplimit does not, and what the Caddyfile's parser should report with its
// line.
func (h *Handler) check() error {
	_, strategyErr := choose("strategy", h.Strategy, strategies)
	_, headersErr := choose("style of headers", h.Headers, headerStyles)
	var errs []error
	if h.Burst != 0 && h.Strategy != "token" {
		errs = append(errs, errors.New("burst is for strategy token"))
	}
	if len(h.Limits) == 0 && h.MaxInFlight == 0 && h.MaxInFlightPerClient == 0 && h.Overload == nil {
		errs = append(errs, errors.New("no limit: want one such as 100/1m, overload, or max_in_flight"))
	}
	if h.MaxBuckets < 0 {
		errs = append(errs, fmt.Errorf("max_buckets is %d", h.MaxBuckets))
	}
	for _, text := range h.Key {
		errs = append(errs, checkKey(text))
	}
	for _, text := range h.CountIf {
		_, err := statuses(text)
		errs = append(errs, err)
	}
	if h.MaxInFlight < 0 || h.MaxInFlightPerClient < 0 {
		errs = append(errs, errors.New("a bound on requests in flight is negative"))
	}
	errs = append(errs, checkClass(h), checkCost(h.Cost), checkBits("ipv4_prefix", h.IPv4Prefix, 32),
		checkBits("ipv6_prefix", h.IPv6Prefix, 128))
	if h.Redis != nil {
		errs = append(errs, h.Redis.check())
	}
	if err := errors.Join(append(errs, strategyErr, headersErr)...); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	return nil
}

// config returns the handler's configuration of httplimit.
func (h *Handler) config() (httplimit.Config, error) {
	style, err := choose("style of headers", h.Headers, headerStyles)
	if err != nil {
		return httplimit.Config{}, err
	}
	cfg := httplimit.Config{
		Extractor: extractor(h.Key, h.address()), ClientIP: h.address(), MaxKeysPerClient: h.MaxKeys,
		CountIf: countIf(h.CountIf), CostFunc: costFunc(h.Cost),
		MaxInFlight: h.MaxInFlight,
		Headers: []httplimit.HeaderStyle{httplimit.HeadersDraft, httplimit.HeadersLegacy,
			httplimit.HeadersNone}[style],
		DeniedStatus: h.Status, Jitter: time.Duration(h.Jitter), FailOpen: h.FailOpen, Shadow: h.Shadow,
		Respond: weblimit.OnDenied(refuse), OnDecision: report, Now: now,
	}
	for _, l := range h.Limits {
		cfg.Policies = append(cfg.Policies, httplimit.Policy{Name: l.name(), Limit: l.Limit,
			Duration: time.Duration(l.Period)})
	}
	cfg.DenyList, err = denyList(h.Deny)
	return cfg, err
}

// placesName returns the name of the limit MaxInFlightPerClient. Handlers that a request passes one
// after the other must not count it together.
func (h *Handler) placesName() string {
	const longest, suffix = 64, " in flight" // longest: of httplimit
	name := strconv.Itoa(h.MaxInFlightPerClient)
	if len(h.Limits) > 0 {
		name = h.Limits[0].name()
	}
	return name[:min(len(name), longest-len(suffix))] + suffix
}

// address returns the Extractor of the client's address, of the request that the guard sees.
func (h *Handler) address() httplimit.IP {
	ip := httplimit.RemoteAddr()
	if h.IPv4Prefix > 0 {
		ip = ip.IPv4Bits(h.IPv4Prefix)
	}
	if h.IPv6Prefix > 0 {
		ip = ip.IPv6Bits(h.IPv6Prefix)
	}
	return ip
}

// Cleanup releases what Provision acquired. Counts are dropped with the last handler that uses
// them.
func (h *Handler) Cleanup() error {
	if h.backend == nil {
		return nil
	}
	_, err := backends.Delete(*h.backend)
	h.backend = nil
	return err
}

// ServeHTTP runs next if the request is admitted.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	seen := r.WithContext(r.Context())
	if client, ok := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string); ok {
		seen.RemoteAddr = net.JoinHostPort(client, "0")
	}
	_, err := h.guard.Run(r, w, seen, "",
		func(w http.ResponseWriter, seen *http.Request) (int, error) {
			// Caddy's handlers communicate through the request itself, so they get the original
			r.Body = seen.Body
			err := next.ServeHTTP(w, r)
			return status(err), err
		})
	return err
}

// status returns the status that Caddy answers an error with; 0 for none.
func status(err error) int {
	var failure caddyhttp.HandlerError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failure) && failure.StatusCode != 0:
		return failure.StatusCode
	}
	return http.StatusInternalServerError
}

// refuse leaves the answer to Caddy. The guard has set the fields.
func refuse(_ *http.Request, d httplimit.Decision) error {
	reason := d.Err
	if d.Full != nil {
		reason = fmt.Errorf("weir: %w", d.Full)
	}
	if reason == nil {
		reason = fmt.Errorf("weir: %s %s", d.Kind, d.Policy)
	}
	return caddyhttp.Error(d.Status, reason)
}

// report counts a decision and sets the placeholders.
func report(r *http.Request, d httplimit.Decision) {
	decisions.OnDecision(r, d)
	repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return
	}
	repl.Set("http.weir.outcome", d.Kind.String())
	repl.Set("http.weir.policy", d.Policy)
	repl.Set("http.weir.source", cmp.Or(d.Source, "none"))
	repl.Set("http.weir.remaining", strconv.FormatUint(d.Remaining, 10))
}

// now is the clock; tests replace it.
var now = time.Now

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ caddyfile.Unmarshaler       = (*Handler)(nil)
)
