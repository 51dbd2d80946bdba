package fiberlimit

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/limiter"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/limits"
)

// Handler returns a LimiterMiddleware for the Config of Fiber's limiter that counts by s:
//
//	app.Use(limiter.New(limiter.Config{
//		Max:               100,
//		Expiration:        time.Minute,
//		LimiterMiddleware: fiberlimit.Handler(weirLimiter.SlidingWindow(), httplimit.Config{
//			Name: "api",
//		}),
//	}))
//
// The key is that of Fiber's KeyGenerator, c.IP() by default, which goes by the TrustProxy of the
// fiber.Config. The fields of Fiber's Config mean what Fiber says, but for these: Storage must be
// nil; a key that is empty is answered with 400; a request that is denied and, with
// SkipFailedRequests or SkipSuccessfulRequests, one that does not count takes nothing from the
// limit; an Expiration is exact to the millisecond. The fields sent to the client are Fiber's,
// X-RateLimit-Limit, -Remaining and -Reset, and Retry-After; the last is when the request would
// pass.
//
// Of cfg, a Name is needed, under which s counts: limiters of one Name on one Strategy share
// budgets. FailOpen, Shadow, DenyList, Policies, OnDecision and the like are as in package
// httplimit. Extractor, Limit, Duration, LimitFunc, CountIf, Skip, Respond and Headers must be
// zero, since Fiber's Config has their part. The zero MaxKeysPerClient is no bound, since Fiber
// finds the client's address. LimitReached answers requests that are denied or whose client is on
// the deny list; others that are refused are a fiber.Error.
//
// New of the result panics on what must be zero, and where httplimit.NewGuard does.
func Handler(s weir.Strategy, cfg httplimit.Config) limiter.Handler { return handler{s, cfg} }

type handler struct {
	strategy weir.Strategy
	cfg      httplimit.Config
}

// New implements limiter.Handler.
func (h handler) New(config *limiter.Config) fiber.Handler {
	of := withDefaults(config)
	cfg := h.cfg
	_, limited := h.strategy.(*weir.Limit)
	attempt := limits.NewAttempt(h.strategy)
	switch {
	case attempt.InFlight():
		panic("fiberlimit: the Strategy bounds work in flight: give it to Config.Concurrency")
	case limited:
		panic("fiberlimit: the limit is that of the limiter.Config: " +
			"give Handler a Strategy, not a weir.Limit")
	case cfg.Name == "":
		panic("fiberlimit: a Name is needed")
	case of.Storage != nil:
		panic("fiberlimit: Storage has no effect: the Strategy counts")
	case cfg.Extractor != nil, cfg.Limit != 0, cfg.Duration != 0, cfg.LimitFunc != nil:
		panic("fiberlimit: key and limit are those of the limiter.Config: leave Extractor, Limit, " +
			"Duration and LimitFunc zero")
	case cfg.CountIf != nil, cfg.Skip != nil, cfg.Respond != nil, cfg.Headers != 0:
		panic(
			"fiberlimit: answers are those of the limiter.Config: leave CountIf, Skip, Respond and " +
				"Headers zero",
		)
	}
	cfg.Extractor = httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
		return of.KeyGenerator(Context(r)), nil
	})
	limitOf := limitsOf(h.strategy)
	cfg.LimitFunc = func(r *http.Request) *weir.Limit { return limitOf(limit(&of, Context(r))) }
	cfg.CountIf = countIf(&of)
	cfg.Headers = httplimit.HeadersNone
	cfg.Respond = respond(&of)
	if of.Next != nil {
		cfg.Skip = func(r *http.Request) bool { return of.Next(Context(r)) }
	}
	cfg.MaxKeysPerClient = cmp.Or(cfg.MaxKeysPerClient, -1)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if !of.DisableHeaders {
		cfg.OnDecision = report(cfg.OnDecision, cfg.Now)
	}
	return New(httplimit.NewGuard(h.strategy, cfg))
}

// withDefaults sets the defaults that limiter.New sets, for callers of New alone.
func withDefaults(config *limiter.Config) limiter.Config {
	if config == nil {
		config = &limiter.Config{}
	}
	of := *config
	if of.Max <= 0 {
		of.Max = limiter.ConfigDefault.Max
	}
	if of.Expiration <= 0 {
		of.Expiration = limiter.ConfigDefault.Expiration
	}
	if of.MaxFunc == nil {
		of.MaxFunc = func(fiber.Ctx) int { return of.Max }
	}
	if of.ExpirationFunc == nil {
		of.ExpirationFunc = func(fiber.Ctx) time.Duration { return of.Expiration }
	}
	if of.KeyGenerator == nil {
		of.KeyGenerator = limiter.ConfigDefault.KeyGenerator
	}
	if of.LimitReached == nil {
		of.LimitReached = limiter.ConfigDefault.LimitReached
	}
	return of
}

// limit returns the limit for a request. As in Fiber, a maximum of 0 is no limit, a negative one
// admits nothing, and an expiration that is none is the default.
func limit(of *limiter.Config, c fiber.Ctx) (uint64, time.Duration) {
	most := of.MaxFunc(c)
	if most == 0 {
		return 0, 0
	}
	period := of.ExpirationFunc(c).Truncate(time.Millisecond)
	if period <= 0 {
		period = limiter.ConfigDefault.Expiration
	}
	return uint64(max(most, 0)), period
}

// maxLimits bounds how many limits are kept: further ones are made for each request.
const maxLimits = 1024

// limitsOf returns a function that returns the limit of n in d by s, or nil for no d.
func limitsOf(s weir.Strategy) func(n uint64, d time.Duration) *weir.Limit {
	type numbers struct {
		n uint64
		d time.Duration
	}
	var known sync.Map // from numbers to *weir.Limit
	var kept atomic.Int64
	return func(n uint64, d time.Duration) *weir.Limit {
		if d == 0 {
			return nil
		}
		if m, ok := known.Load(numbers{n, d}); ok {
			return m.(*weir.Limit)
		}
		m, err := weir.NewLimit(s, n, d)
		if err != nil {
			m, _ = weir.NewLimit(failing{err}, n, time.Minute)
		}
		if kept.Add(1) <= maxLimits {
			known.Store(numbers{n, d}, m)
		}
		return m
	}
}

// failing is the Strategy of numbers that can never be right.
type failing struct{ err error }

// Run implements weir.Strategy.
func (f failing) Run(context.Context, *weir.Request) (*weir.Result, error) { return nil, f.err }

// countIf returns nil if every request counts, so that a Strategy without a Refund will do.
func countIf(of *limiter.Config) func(int) bool {
	if !of.SkipFailedRequests && !of.SkipSuccessfulRequests {
		return nil
	}
	return func(status int) bool {
		if status >= fiber.StatusBadRequest {
			return !of.SkipFailedRequests
		}
		return !of.SkipSuccessfulRequests
	}
}

// respond returns the answer to a refused request.
func respond(of *limiter.Config) func(http.ResponseWriter, *http.Request, httplimit.Decision) {
	answer := OnDenied(func(c fiber.Ctx, d httplimit.Decision) error {
		if d.Kind == httplimit.Denied || d.Kind == httplimit.Listed {
			return of.LimitReached(c)
		}
		return fiber.NewError(d.Status)
	})
	return func(w http.ResponseWriter, r *http.Request, d httplimit.Decision) {
		if of.DisableHeaders {
			w.Header().Del(fiber.HeaderRetryAfter)
		}
		answer(w, r, d)
	}
}

// report returns an OnDecision that sets Fiber's fields before it calls the one given.
func report(then func(*http.Request, httplimit.Decision),
	now func() time.Time) func(*http.Request, httplimit.Decision) {
	return func(r *http.Request, d httplimit.Decision) {
		if !d.Shadow && d.Policy != "" && d.Result != (weir.Result{}) {
			c := Context(r)
			c.Set("X-RateLimit-Limit", strconv.FormatUint(d.Limit, 10))
			c.Set("X-RateLimit-Remaining", strconv.FormatUint(d.Remaining, 10))
			if at := d.Result.ExpiresAt; !at.IsZero() {
				seconds := (at.Sub(now()) + time.Second - 1) / time.Second
				c.Set("X-RateLimit-Reset", strconv.FormatInt(int64(max(seconds, 0)), 10))
			}
		}
		if then != nil {
			then(r, d)
		}
	}
}
