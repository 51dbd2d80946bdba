package httplimit

import (
	"net/http"

	"github.com/weirgo/weir"
)

// Guard decides on requests, in three steps: [Guard.Begin] decides, [Ticket.Answer] answers a
// refused request, and [Ticket.End] ends an admitted one. [Guard.Wrap] is the middleware made of
// them; adapters to frameworks take the steps themselves. A Guard is safe for concurrent use, as
// its Strategies are.
type Guard struct{ m *middleware }

// NewGuard returns a Guard that consults s about each request. s is a [weir.Limit], or another
// Strategy with a Limit and a Duration in cfg, or nil if the limits are all in cfg.
//
// A limit counts as its own methods do, under the extracted key; another Strategy under
// [Policy.Key]: the policy's name and the extracted key. Guards on one Strategy are separate if the
// names of their policies differ, and share budgets if the names are equal. Replicas that share a
// Redis must share budgets, so NewGuard cannot invent a name for each Guard: the default name is
// made of the limit, and only one Guard on a Strategy may use it, unless all are given one and the
// same Limit.
//
// NewGuard panics on an invalid Config: no Extractor, no limit, a Class without an Overload, a
// limit on work in flight that is not Concurrency, numbers beside a [weir.Limit] that has its own,
// a bad name or Duration, a Limit of 0 without DenyAll, two policies of one name, a second Guard
// with default names on one Strategy, or a Strategy that cannot give back, as CountIf and further
// policies need it.
func NewGuard(s weir.Strategy, cfg Config) *Guard { return &Guard{newMiddleware(s, cfg)} }

// New is [Guard.Wrap] of [NewGuard], with the same panics.
func New(s weir.Strategy, cfg Config) func(http.Handler) http.Handler {
	return NewGuard(s, cfg).Wrap
}

// Wrap returns the middleware that consults the Guard before each request: next runs at most once,
// if the request passes.
//
// Otherwise the middleware answers: 429 to a denied request (Config.DeniedStatus), 400 to one
// without a key, 503 if a limit cannot be decided or too many requests are in flight, and to a
// client on the deny list 403, or 429 if the entry has an end. Panics of next pass through. A
// request costs one Run per policy, a Peek more for each in this process if there are several, and
// a handful of allocations, most of which net/http needs to hold the header. Wrap panics if next is
// nil.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	if next == nil {
		panic("httplimit: no handler to guard")
	}
	return &handler{g, next}
}

// Begin decides on r: by the deny list, the bounds on requests in flight and the limits, in this
// order, as far as needed. It calls OnDecision before it returns.
func (g *Guard) Begin(r *http.Request) Ticket {
	c := g.m.begin(r)
	return Ticket{c, r, c.uses.Load()}
}

type handler struct {
	guard *Guard
	next  http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := h.guard.m.begin(r)
	switch {
	case c.lasts():
		h.serve(w, Ticket{c, r, c.uses.Load()})
	case c.passes():
		w, r = c.writer(w, r)
		c.m.calls.Put(c) // first: the handler may take long
		h.next.ServeHTTP(w, r)
	default:
		c.write(w, r)
		c.m.calls.Put(c)
	}
}

// serve is ServeHTTP for a request at whose end something is left to do.
func (h *handler) serve(w http.ResponseWriter, t Ticket) {
	defer t.Abort()
	if t.Passes() {
		h.next.ServeHTTP(t.Writer(w))
	} else {
		t.Answer(w)
	}
	t.End(0)
}
