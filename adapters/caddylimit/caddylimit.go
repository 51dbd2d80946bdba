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

// Limit is one limit.
type Limit struct {
	// Name is what clients read in the fields, and part of what is counted: limits of one name and
	// period share budgets, also those of different handlers. Default: made of the limit, such as
	// 100/1m.
	Name string `json:"name,omitempty"`

	// Limit is how many requests of a key are admitted in Period.
	Limit uint64 `json:"limit"`

	// Period is a whole number of milliseconds, up to 365 days.
	Period caddy.Duration `json:"period"`
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
	key, err := h.backendKey()
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
