package httplimit

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/throttle"
	"github.com/weirgo/weir/internal/doors/clientaddr"
)

// Guard decides on requests, in three steps: [Guard.Begin] decides, [Ticket.Answer] answers a
// refused request, and [Ticket.End] ends an admitted one. [Guard.Wrap] is the middleware made of
// them; adapters to frameworks take the steps themselves. A Guard is safe for concurrent use, as
// its Strategies are.
type Guard struct {
	// Read-only after NewGuard: the checked Config, and the values computed from it.
	cfg          Config
	key          appender // of Extractor
	policies     []*policy
	maxExtracted int // the longest extracted key that makes no joined key too long
	// of a writer with fields: the style's, and RateLimit-Bypassed
	sending        writerState
	exposed        string           // Access-Control-Expose-Headers
	tolerates      func(error) bool // bypasses
	forecasts      bool             // a field reports when more is available
	describes      bool             // OnDecision or a field asks which policy binds, if all admit
	realTime       bool             // Now is time.Now
	policyLine     string           // the RateLimit-Policy field; empty if a policy varies
	mayRepeat      bool             // two policies may take from one count, by LimitFunc
	keyless        bool             // a request without a key is no mistake: there is a Decider
	boundsInFlight bool             // by MaxInFlight, Overload or Concurrency

	calls     sync.Pool
	all       *semaphore.Weighted // see MaxInFlight; nil: no bound
	keys      *clientaddr.Keys    // nil: no bound
	throttles throttles
	unchecked atomic.Int32 // how many more requests warnOfProxy looks at
}

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
func NewGuard(s weir.Strategy, cfg Config) *Guard {
	g := &Guard{realTime: cfg.Now == nil, keyless: cfg.Extractor == nil && cfg.Decider != nil}
	cfg.setDefaults()
	cfg.check()
	g.cfg, g.key, g.policies = cfg, appenderOf(cfg.Extractor), cfg.compile(s)
	g.tolerates = g.bypasses
	g.precompute()
	if cfg.MaxInFlight > 0 {
		g.all = semaphore.NewWeighted(int64(cfg.MaxInFlight))
	}
	g.boundsInFlight = g.all != nil || cfg.Overload != nil || !cfg.Concurrency.IsZero()
	g.keys = newKeys(&cfg, g.policies)
	if g.usesAddress() {
		g.unchecked.Store(peersChecked)
	}
	claimDefaultNames(g)
	return g
}

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
	c := g.begin(r)
	return Ticket{c, r, c.uses.Load()}
}

// precompute sets what follows from the Config and its policies.
func (g *Guard) precompute() {
	longest := len(penaltyPrefix)
	static := g.cfg.Decider == nil
	for _, p := range g.policies {
		prefix := max(len(p.part), len(p.prefix))
		if p.plans != nil && p.plans.of.Name == "" {
			prefix = max(prefix, len("256:")+maxLimitName)
		}
		longest = max(longest, prefix)
		if p.Extractor != nil {
			longest = max(longest, len(penaltyPolicy)+len("1024:")+prefix)
		}
		static = static && !p.varies
		g.mayRepeat = g.mayRepeat || p.plans != nil && len(g.policies) > 1
	}
	g.maxExtracted = maxKeyLen - longest - len("1024:")
	if static {
		g.policyLine = string(appendPolicies(nil, newAsks(g).states))
	}
	g.forecasts = !g.cfg.Shadow && (g.cfg.Headers == HeadersDraft || g.cfg.Headers == HeadersLegacy)
	g.describes = g.cfg.OnDecision != nil || g.cfg.Headers == HeadersLegacy ||
		g.cfg.Headers == HeadersOriginal
	g.sending.style = append(slices.Clone(styleFields[g.cfg.Headers]), fieldBypassed)
	g.exposed = strings.Join(append([]string{fieldRetryAfter}, styleFields[g.cfg.Headers]...), ", ")
	g.calls.New = func() any { return newCall(g) }
}

// begin decides on a request, and counts and reports the decision.
func (g *Guard) begin(r *http.Request) *call {
	c := g.calls.Get().(*call)
	c.reset()
	c.begun = false
	if g.boundsInFlight {
		c.inFlight = newInFlight(g, r)
	}
	if g.boundsInFlight || g.cfg.Decider != nil {
		defer c.releaseUnlessBegun(r)
	}
	c.decide(r)
	if c.kind == Denied && !c.shadow {
		c.penalize(r)
	}
	if g.cfg.Stats != nil {
		g.cfg.Stats.counts[c.kind].Add(1)
	}
	if g.cfg.OnDecision != nil {
		g.cfg.OnDecision(r, c.report())
	}
	c.begun = true
	return c
}

// clientOf appends the client that a request's keys count for: the client's address or prefix, or
// the peer's if the forwarding fields are invalid. ok is false if the peer has no IP address.
func (g *Guard) clientOf(dst []byte, r *http.Request) (client []byte, ok bool) {
	ip := g.cfg.ClientIP
	ip.bits = min(ip.bits, defaultIPv6Bits) // a client has all addresses of its /64
	if client, err := ip.appendKey(dst, r); err == nil {
		return client, true
	}
	peer, err := parsePeer(r.RemoteAddr)
	if err != nil {
		return dst, false
	}
	return ip.appendAddr(dst, peer), true
}

// checkKey returns an error for a key that cannot be counted.
func (g *Guard) checkKey(key []byte) error {
	switch {
	case len(key) == 0:
		return fmt.Errorf("%w: it is empty", ErrKey)
	case len(key) > g.maxExtracted:
		return tooLong("the key", len(key))
	case len(key) >= len(sharedKey) && string(key[:len(sharedKey)]) == sharedKey:
		return fmt.Errorf("%w: it begins as those that a client's further keys share", ErrKey)
	}
	return nil
}

// bypasses reports whether a request passes although a Strategy failed with err, if it did.
func (g *Guard) bypasses(err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, weir.ErrFull):
		return g.cfg.AdmitFull
	case errors.Is(err, weir.ErrID):
		return false // the key is the client's choice, and a bad one would be a way through
	case errors.Is(err, weir.ErrScale), errors.Is(err, weir.ErrLimit),
		errors.Is(err, errors.ErrUnsupported):
		return false // a mistake in the program does not end: it would mean no limit at all
	}
	return g.cfg.FailOpen
}

// log writes a record if t allows it.
func (g *Guard) log(
	ctx context.Context, t *throttle.Throttle, level slog.Level, msg, key string, attrs ...slog.Attr,
) {
	dropped, ok := t.Allow(g.cfg.Now(), logEvery)
	if !ok {
		return
	}
	attrs = append(attrs, slog.String("key", g.logKey(key)))
	if dropped > 0 {
		attrs = append(attrs, slog.Uint64("not_logged", dropped))
	}
	cmp.Or(g.cfg.Logger, slog.Default()).LogAttrs(ctx, level, msg, attrs...)
}

// logKey returns the key quoted or, unless LogKeys is set, its digest.
func (g *Guard) logKey(key string) string {
	if g.cfg.LogKeys {
		return strconv.QuoteToASCII(key)
	}
	mac := hmac.New(sha256.New, []byte(logSecret))
	mac.Write([]byte(key))
	return "hmac:" + hex.EncodeToString(mac.Sum(nil)[:8])
}

// until returns the time from the present to t. time.Until takes 60 % of the time of time.Now for a
// t with a monotonic reading, such as package weir's.
func (g *Guard) until(t time.Time) time.Duration {
	if g.realTime {
		return time.Until(t)
	}
	return t.Sub(g.cfg.Now())
}

// list puts e on the deny list: a key, or without one, of a client that uses more than
// MaxKeysPerClient keys, the addresses that it commonly has. counted is how its denials are
// counted.
func (g *Guard) list(e DenyEntry, r *http.Request, counted *weir.Request) error {
	if e.Key == "" {
		addr, err := g.cfg.ClientIP.Addr(r)
		if err != nil {
			return nil //nolint:nilerr // the chain is invalid: the address is a proxy's, not the client's
		}
		e.Prefix = IP{}.prefix(addr)
	}
	e.Until = g.cfg.Now().Add(g.cfg.Penalty.For)
	return g.cfg.DenyList.extend(e, func() {
		if err := g.cfg.Penalty.forget(counted); err != nil {
			g.log(context.Background(), &g.throttles.penalty, slog.LevelError,
				"httplimit: the penalty box failed to forget", e.Key, slog.String("error", escape(err.Error())))
		}
	})
}

// usesAddress reports whether an address matters: as a key, or for MaxKeysPerClient.
func (g *Guard) usesAddress() bool {
	byIP := func(e Extractor) bool { _, ok := findIP(e); return ok }
	return g.keys != nil || byIP(g.cfg.Extractor) ||
		slices.ContainsFunc(g.policies, func(p *policy) bool { return byIP(p.Extractor) })
}

// peersChecked is how many requests a Guard looks at before it assumes that clients connect
// directly.
const peersChecked = 1000

// warnOfProxy logs a warning, once, if r comes from a private address that ClientIP does not trust:
// it may be a load balancer's, and then all its clients are taken for one. A loopback address must
// have sent a field of a proxy too, since programs are tried out there.
func (g *Guard) warnOfProxy(r *http.Request) {
	g.unchecked.Add(-1)
	peer, _ := parsePeer(r.RemoteAddr) // a peer without an address has the zero Addr
	forwarded := len(r.Header["X-Forwarded-For"]) > 0 || len(r.Header["Forwarded"]) > 0
	private := clientaddr.IsPrivate(peer) && (forwarded || !peer.IsLoopback())
	if !private || g.cfg.ClientIP.trusts(peer) {
		return
	}
	if g.unchecked.Swap(0) <= 0 {
		return // another request logs it, or was the last to be looked at
	}
	field := "Extractor"
	if _, ok := findIP(g.cfg.Extractor); !ok {
		field = "ClientIP"
	}
	var once throttle.Throttle
	g.log(r.Context(), &once, slog.LevelWarn,
		"httplimit: requests come from a private address; if it is a proxy's, all its clients share "+
			"one address: trust it (Caddy: trusted_proxies, weir proxy: --trust)",
		peer.String(), slog.String("peer", peer.String()),
		slog.String("line_1", `proxies := []netip.Prefix{netip.MustParsePrefix("`+
			netip.PrefixFrom(peer, peer.BitLen()).String()+`")}`),
		slog.String("line_2", field+`: httplimit.ClientIP(proxies),`))
}

type handler struct {
	guard *Guard
	next  http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := h.guard.begin(r)
	switch {
	case c.lasts():
		h.serve(w, Ticket{c, r, c.uses.Load()})
	case c.passes():
		w, r = c.writer(w, r)
		c.guard.calls.Put(c) // first: the handler may take long
		h.next.ServeHTTP(w, r)
	default:
		c.write(w, r)
		c.guard.calls.Put(c)
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
