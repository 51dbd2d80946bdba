package httplimit

import (
	"context"
	"net/http"

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
