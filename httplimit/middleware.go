package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weirgo/weir"
)

// New returns the middleware that asks s before each request: the handler runs if s admits it, and once or not at all.
//
// The middleware answers in the handler's place with 429 when s denies, 400 when the caller cannot be told, 503 when s
// cannot decide, and 403 or 429 to a caller on the deny list, for good or for a while. What the handler panics with passes
// through. It is safe for concurrent use, as s is, and costs one Run per policy and a
// handful of allocations, most of them what net/http needs to hold the header.
//
// The key that s counts under is weir.JoinKey(policy name, extracted key); that is the one to Reset or to Inspect.
//
// New panics on a Config that can never be right, since that is a mistake in the program: no s, no Extractor, no limit,
// a bad name or Duration, two policies of one name, or a Strategy without the [weir.Refunder] that CountIf or a further
// policy needs.
func New(s weir.Strategy, cfg Config) func(http.Handler) http.Handler {
	m := newMiddleware(s, cfg)
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httplimit: no handler to guard")
		}
		return &handler{m, next}
	}
}

type handler struct {
	*middleware
	next http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := h.calls.Get().(*call)
	h.decide(c, r)
	now := h.Now()
	if c.outcome == Denied && !h.Shadow {
		h.penalize(r.Context(), c.caller(), now)
	}
	if h.Stats != nil {
		h.Stats.counts[c.outcome].Add(1)
	}
	if h.OnDecision != nil {
		h.OnDecision(r, h.report(c))
	}
	f := newFields(w.Header(), h.room(c))
	if c.decider != none {
		h.tell(&f, c, now)
	}
	switch passes := c.status == 0 || h.Shadow; {
	case !passes:
		h.answer(w, r, &f, c, now)
		h.calls.Put(c)
	case h.CountIf != nil && c.taken:
		h.serveAndRefund(w, h.mark(&f, c, r), c)
		h.calls.Put(c)
	default:
		r = h.mark(&f, c, r)
		h.calls.Put(c) // first: the handler may take long
		h.next.ServeHTTP(w, r)
	}
}

// room returns how many fields the answer may take, so that one slice holds the values of them all.
func (m *middleware) room(c *call) int {
	if c.status == 0 {
		return m.told
	}
	return m.told + 4 // X-Ratelimit-Retry-After, Retry-After, Content-Type, Cache-Control
}

// mark tells the handler, by the context, and the client, by a field, that a request was let through undecided.
func (m *middleware) mark(f *fields, c *call, r *http.Request) *http.Request {
	if c.outcome != Bypassed {
		return r
	}
	if m.Headers != HeadersNone {
		f.add(fieldBypassed, string(appendBypassed(nil, c.asked)))
	}
	return r.WithContext(context.WithValue(r.Context(), bypassKey{}, true))
}

// middleware is a Config made ready by New, and read-only from then on but for calls.
type middleware struct {
	Config
	policies   []*policy
	keyRoom    int    // the longest extracted key that makes no joined key too long
	told       int    // how many fields the style has
	policyLine string // the RateLimit-Policy field; empty if a LimitFunc makes it differ
	calls      sync.Pool
}

// newMiddleware checks cfg and makes it ready; it panics on a mistake.
func newMiddleware(s weir.Strategy, cfg Config) *middleware {
	if s == nil {
		panic("httplimit: no Strategy")
	}
	m := &middleware{Config: cfg}
	m.setDefaults()
	m.check()
	all := cfg.Policies
	if cfg.Duration != 0 || cfg.LimitFunc != nil {
		first := Policy{Name: cfg.Name, Limit: cfg.Limit, Duration: cfg.Duration, LimitFunc: cfg.LimitFunc}
		all = append([]Policy{first}, all...)
	}
	for _, p := range all {
		m.policies = append(m.policies, compile(p, s, m.DeniedStatus))
	}
	m.checkPolicies()
	m.precompute()
	return m
}

func (m *middleware) setDefaults() {
	if m.DeniedStatus == 0 {
		m.DeniedStatus = http.StatusTooManyRequests
	}
	if m.Now == nil {
		m.Now = time.Now
	}
	if ip, ok := m.Extractor.(IP); ok {
		m.ClientIP = ip
	}
}

func (m *middleware) check() {
	switch {
	case m.Extractor == nil:
		panic("httplimit: no Extractor: say who is limited; RemoteAddr() goes by the TCP peer")
	case m.DeniedStatus < 400 || m.DeniedStatus > 599:
		panic(fmt.Sprintf("httplimit: the DeniedStatus %d is no error status", m.DeniedStatus))
	case m.Headers >= headerStyles:
		panic(fmt.Sprintf("httplimit: there is no HeaderStyle %d", m.Headers))
	case m.Jitter < 0:
		panic(fmt.Sprintf("httplimit: the Jitter %v is negative", m.Jitter))
	}
	m.Penalty.check(m.DenyList)
}

func (m *middleware) checkPolicies() {
	if len(m.policies) == 0 {
		panic("httplimit: no limit: set Limit and Duration, LimitFunc, or Policies")
	}
	names := make(map[string]bool, len(m.policies))
	for i, p := range m.policies {
		if names[p.Name] {
			panic(fmt.Sprintf("httplimit: two policies are named %q", p.Name))
		}
		names[p.Name] = true
		if p.refunder != nil {
			continue
		}
		if m.CountIf != nil {
			panic(fmt.Sprintf("httplimit: CountIf: the Strategy of policy %q, a %T, cannot refund", p.Name, p.Strategy))
		}
		if i < len(m.policies)-1 {
			panic(fmt.Sprintf("httplimit: policy %q must come last: its Strategy, a %T, cannot refund", p.Name, p.Strategy))
		}
	}
}

func (m *middleware) precompute() {
	longest := len(penaltyPrefix)
	static := true
	asked := make([]asked, len(m.policies))
	for i, p := range m.policies {
		longest = max(longest, len(p.prefix))
		static = static && p.LimitFunc == nil
		asked[i].policy = p
	}
	m.keyRoom = maxKeyLen - longest - len("1024:")
	if static {
		m.policyLine = string(appendPolicies(nil, asked))
	}
	m.told = map[HeaderStyle]int{HeadersDraft: 2, HeadersLegacy: 3, HeadersOriginal: 3}[m.Headers]
	m.calls.New = func() any { return newCall(m.policies) }
}

func newCall(policies []*policy) *call {
	c := &call{asked: make([]asked, len(policies))}
	for i, p := range policies {
		c.asked[i].policy = p
	}
	return c
}
