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

// middleware is a checked Config and the values computed from it. All of it is read-only after New
// except calls, all, keys, throttles and unchecked.
type middleware struct {
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
	calls          sync.Pool
	keyless        bool                // a request without a key is no mistake: there is a Decider
	all            *semaphore.Weighted // see MaxInFlight; nil: no bound
	boundsInFlight bool                // by MaxInFlight, Overload or Concurrency
	keys           *clientaddr.Keys    // nil: no bound
	throttles      throttles
	unchecked      atomic.Int32 // how many more requests warnOfProxy looks at
}

func (m *middleware) setDefaults() {
	m.cfg.DeniedStatus = cmp.Or(m.cfg.DeniedStatus, http.StatusTooManyRequests)
	if m.cfg.Now == nil {
		m.cfg.Now, m.realTime = time.Now, true
	}
	m.keyless = m.cfg.Extractor == nil && m.cfg.Decider != nil
	if m.keyless {
		m.cfg.Extractor = m.cfg.ClientIP
	}
	if ip, ok := findIP(m.cfg.Extractor); ok && m.cfg.ClientIP.isZero() {
		m.cfg.ClientIP = ip
	}
}

func (m *middleware) check() {
	switch {
	case m.cfg.Extractor == nil:
		panic("httplimit: no Extractor: choose what is limited; RemoteAddr() limits TCP peers")
	case m.cfg.DeniedStatus < 400 || m.cfg.DeniedStatus > 599:
		panic(fmt.Sprintf("httplimit: the DeniedStatus %d is no error status", m.cfg.DeniedStatus))
	case m.cfg.Headers >= headerStyles:
		panic(fmt.Sprintf("httplimit: there is no HeaderStyle %d", m.cfg.Headers))
	case m.cfg.Jitter < 0:
		panic(fmt.Sprintf("httplimit: the Jitter %v is negative", m.cfg.Jitter))
	case m.cfg.MaxInFlight < 0:
		panic(fmt.Sprintf("httplimit: the MaxInFlight %d is negative", m.cfg.MaxInFlight))
	case m.cfg.Class != nil && m.cfg.Overload == nil:
		panic("httplimit: a Class without an Overload: set that too, such as to overload.New(limiter, " +
			"overload.Config{})")
	case m.cfg.CORS.Credentials && slices.Contains(m.cfg.CORS.Origins, "*"):
		panic("httplimit: CORS: browsers send no credentials to the origin *")
	}
	m.cfg.Penalty.check(m.cfg.DenyList)
}

func (m *middleware) checkPolicies() {
	if len(m.policies) == 0 && m.cfg.MaxInFlight == 0 && m.cfg.Overload == nil &&
		m.cfg.Decider == nil {
		panic("httplimit: no limit: give New a weir.Limit, or set Limit and Duration, LimitFunc, " +
			"Policies, Concurrency, Overload, MaxInFlight, or Decider")
	}
	names := make(map[string]bool, len(m.policies))
	irrevocable := ""
	for _, p := range m.policies {
		switch {
		case p.Keys != nil && p.Extractor != nil:
			panic(fmt.Sprintf("httplimit: policy %q has both Keys and an Extractor", p.Name))
		case p.Keys == nil && p.Name != "" && names[p.Name]:
			panic(fmt.Sprintf("httplimit: two policies are named %q", p.Name))
		case p.template.CanRefund():
		case p.Keys != nil:
			panic(fmt.Sprintf("httplimit: the Strategy of policy %q, %s, cannot refund, "+
				"and has several keys", p.Name, p.shown.strategy))
		case m.cfg.CountIf != nil:
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

func (m *middleware) precompute() {
	longest := len(penaltyPrefix)
	static := m.cfg.Decider == nil
	for _, p := range m.policies {
		prefix := max(len(p.part), len(p.prefix))
		if p.plans != nil && p.plans.of.Name == "" {
			prefix = max(prefix, len("256:")+maxLimitName)
		}
		longest = max(longest, prefix)
		if p.Extractor != nil {
			longest = max(longest, len(penaltyPolicy)+len("1024:")+prefix)
		}
		static = static && !p.varies
		m.mayRepeat = m.mayRepeat || p.plans != nil && len(m.policies) > 1
	}
	m.maxExtracted = maxKeyLen - longest - len("1024:")
	if static {
		m.policyLine = string(appendPolicies(nil, newAsks(m).states))
	}
	m.forecasts = !m.cfg.Shadow && (m.cfg.Headers == HeadersDraft || m.cfg.Headers == HeadersLegacy)
	m.describes = m.cfg.OnDecision != nil || m.cfg.Headers == HeadersLegacy ||
		m.cfg.Headers == HeadersOriginal
	m.sending.style = append(slices.Clone(styleFields[m.cfg.Headers]), fieldBypassed)
	m.exposed = strings.Join(append([]string{fieldRetryAfter}, styleFields[m.cfg.Headers]...), ", ")
	m.calls.New = func() any { return newCall(m) }
}

// boundKeys sets keys, unless each client has one key only or MaxKeysPerClient is negative.
func (m *middleware) boundKeys() {
	several := func(p *policy) bool {
		return p.Keys != nil || !oneKeyEach(cmp.Or(p.Extractor, m.cfg.Extractor))
	}
	if m.cfg.MaxKeysPerClient < 0 ||
		m.cfg.Decider == nil && !slices.ContainsFunc(m.policies, several) {
		return
	}
	m.keys = clientaddr.NewKeys(cmp.Or(m.cfg.MaxKeysPerClient, clientaddr.DefaultKeys))
	m.keys.Lives(time.Minute)
	m.keys.Lives(2 * m.cfg.Penalty.Within)
	for _, p := range m.policies {
		m.keys.Lives(2 * p.Duration)
	}
}

// begin decides on a request, and counts and reports the decision.
func (m *middleware) begin(r *http.Request) *call {
	c := m.calls.Get().(*call)
	c.reset()
	c.begun = false
	if m.boundsInFlight {
		c.inFlight = newInFlight(m, r)
	}
	if m.boundsInFlight || m.cfg.Decider != nil {
		defer c.releaseUnlessBegun(r)
	}
	c.decide(r)
	if c.kind == Denied && !c.shadow {
		c.penalize(r)
	}
	if m.cfg.Stats != nil {
		m.cfg.Stats.counts[c.kind].Add(1)
	}
	if m.cfg.OnDecision != nil {
		m.cfg.OnDecision(r, c.report())
	}
	c.begun = true
	return c
}

// clientOf appends the client that a request's keys count for: the client's address or prefix, or
// the peer's if the forwarding fields are invalid. ok is false if the peer has no IP address.
func (m *middleware) clientOf(dst []byte, r *http.Request) (client []byte, ok bool) {
	ip := m.cfg.ClientIP
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
func (m *middleware) checkKey(key []byte) error {
	switch {
	case len(key) == 0:
		return fmt.Errorf("%w: it is empty", ErrKey)
	case len(key) > m.maxExtracted:
		return tooLong("the key", len(key))
	case len(key) >= len(sharedKey) && string(key[:len(sharedKey)]) == sharedKey:
		return fmt.Errorf("%w: it begins as those that a client's further keys share", ErrKey)
	}
	return nil
}

// bypasses reports whether a request passes although a Strategy failed with err, if it did.
func (m *middleware) bypasses(err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, weir.ErrFull):
		return m.cfg.AdmitFull
	case errors.Is(err, weir.ErrID):
		return false // the key is the client's choice, and a bad one would be a way through
	case errors.Is(err, weir.ErrScale), errors.Is(err, weir.ErrLimit),
		errors.Is(err, errors.ErrUnsupported):
		return false // a mistake in the program does not end: it would mean no limit at all
	}
	return m.cfg.FailOpen
}

// listed returns the entry that refuses the caller, if any. It fails if the list holds prefixes and
// the client's address cannot be extracted. A peer without an IP address, as on a Unix socket, is
// in no prefix.
func (m *middleware) listed(key []byte, r *http.Request) (e DenyEntry, ok bool, err error) {
	var addr netip.Addr
	if m.cfg.DenyList.prefixes.Load() > 0 {
		addr, err = m.cfg.ClientIP.Addr(r)
		if err != nil && !errors.As(err, new(peerError)) {
			return DenyEntry{}, false, err
		}
	}
	e, ok = m.cfg.DenyList.lookup("", key, addr)
	return e, ok, nil
}

// log writes a record if t allows it.
func (m *middleware) log(
	ctx context.Context, t *throttle.Throttle, level slog.Level, msg, key string, attrs ...slog.Attr,
) {
	dropped, ok := t.Allow(m.cfg.Now(), logEvery)
	if !ok {
		return
	}
	attrs = append(attrs, slog.String("key", m.logKey(key)))
	if dropped > 0 {
		attrs = append(attrs, slog.Uint64("not_logged", dropped))
	}
	cmp.Or(m.cfg.Logger, slog.Default()).LogAttrs(ctx, level, msg, attrs...)
}

// logKey returns the key quoted or, unless LogKeys is set, its digest.
func (m *middleware) logKey(key string) string {
	if m.cfg.LogKeys {
		return strconv.QuoteToASCII(key)
	}
	mac := hmac.New(sha256.New, []byte(logSecret))
	mac.Write([]byte(key))
	return "hmac:" + hex.EncodeToString(mac.Sum(nil)[:8])
}

// until returns the time from the present to t. time.Until takes 60 % of the time of time.Now for a
// t with a monotonic reading, such as package weir's.
func (m *middleware) until(t time.Time) time.Duration {
	if m.realTime {
		return time.Until(t)
	}
	return t.Sub(m.cfg.Now())
}

// list puts e on the deny list: a key, or without one, of a client that uses more than
// MaxKeysPerClient keys, the addresses that it commonly has. counted is how its denials are
// counted.
func (m *middleware) list(e DenyEntry, r *http.Request, counted *weir.Request) error {
	if e.Key == "" {
		addr, err := m.cfg.ClientIP.Addr(r)
		if err != nil {
			return nil //nolint:nilerr // the chain is invalid: the address is a proxy's, not the client's
		}
		e.Prefix = IP{}.prefix(addr)
	}
	e.Until = m.cfg.Now().Add(m.cfg.Penalty.For)
	return m.cfg.DenyList.extend(e, func() {
		if err := m.cfg.Penalty.forget(counted); err != nil {
			m.log(context.Background(), &m.throttles.penalty, slog.LevelError,
				"httplimit: the penalty box failed to forget", e.Key, slog.String("error", escape(err.Error())))
		}
	})
}

// usesAddress reports whether an address matters: as a key, or for MaxKeysPerClient.
func (m *middleware) usesAddress() bool {
	byIP := func(e Extractor) bool { _, ok := findIP(e); return ok }
	return m.keys != nil || byIP(m.cfg.Extractor) ||
		slices.ContainsFunc(m.policies, func(p *policy) bool { return byIP(p.Extractor) })
}

// warnOfProxy logs a warning, once, if r comes from a private address that ClientIP does not trust:
// it may be a load balancer's, and then all its clients are taken for one. A loopback address must
// have sent a field of a proxy too, since programs are tried out there.
func (m *middleware) warnOfProxy(r *http.Request) {
	m.unchecked.Add(-1)
	peer, err := parsePeer(r.RemoteAddr)
	if err != nil || m.cfg.ClientIP.trusts(peer) {
		return
	}
	forwarded := len(r.Header["X-Forwarded-For"]) > 0 || len(r.Header["Forwarded"]) > 0
	private := clientaddr.IsPrivate(peer) || peer.IsLoopback() && forwarded
	if !private || m.unchecked.Swap(0) <= 0 {
		return // or another request logs it, or was the last to be looked at
	}
	field := "Extractor"
	if _, ok := findIP(m.cfg.Extractor); !ok {
		field = "ClientIP"
	}
	var once throttle.Throttle
	m.log(r.Context(), &once, slog.LevelWarn,
		"httplimit: requests come from a private address; if it is a proxy's, all its clients share "+
			"one address: trust it (Caddy: trusted_proxies, weir proxy: --trust)",
		peer.String(), slog.String("peer", peer.String()),
		slog.String("line_1", `proxies := []netip.Prefix{netip.MustParsePrefix("`+
			netip.PrefixFrom(peer, peer.BitLen()).String()+`")}`),
		slog.String("line_2", field+`: httplimit.ClientIP(proxies),`))
}

// newMiddleware checks cfg and compiles its policies, and panics on a mistake.
func newMiddleware(s weir.Strategy, cfg Config) *middleware {
	m := &middleware{cfg: cfg}
	m.tolerates = m.bypasses
	m.setDefaults()
	m.check()
	m.key = appenderOf(m.cfg.Extractor)
	if !cfg.Concurrency.IsZero() {
		m.policies = append(m.policies, compileConcurrency(cfg.Concurrency, s, m.cfg.DeniedStatus))
	}
	for _, p := range cfg.allPolicies(s) {
		m.policies = append(m.policies, compile(p, s, m.cfg.DeniedStatus, false))
	}
	m.checkPolicies()
	m.precompute()
	if m.cfg.MaxInFlight > 0 {
		m.all = semaphore.NewWeighted(int64(m.cfg.MaxInFlight))
	}
	m.boundsInFlight = m.all != nil || m.cfg.Overload != nil || !m.cfg.Concurrency.IsZero()
	m.boundKeys()
	if m.usesAddress() {
		m.unchecked.Store(peersChecked)
	}
	claimDefaultNames(m)
	return m
}

// peersChecked is how many requests a middleware looks at before it assumes that clients connect
// directly.
const peersChecked = 1000
