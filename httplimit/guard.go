package httplimit

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/doors/clientaddr"
)

// Guard decides on requests, in three steps: [Guard.Begin] decides, [Ticket.Answer] answers what is
// refused, and [Ticket.End] ends what is not. [Guard.Wrap] is the middleware made of them; adapters
// to frameworks take the steps themselves. It is safe for concurrent use, as its Strategies are.
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
// client on the deny list 403, or 429 if the entry has an end. Panics of next pass through. It
// costs one Run per policy, a Peek more for each in this process if there are several, and a
// handful of allocations, most of which net/http needs to hold the header. It panics if next is
// nil.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	if next == nil {
		panic("httplimit: no handler to guard")
	}
	return &handler{g, next}
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
		c.calls.Put(c) // first: the handler may take long
		h.next.ServeHTTP(w, r)
	default:
		c.refuse(w, r)
		c.calls.Put(c)
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

// middleware is a checked Config and the values computed from it. All of it is read-only after New
// except calls, all, keys, throttles and unchecked.
type middleware struct {
	Config
	key          appender // of Extractor
	policies     []*policy
	maxExtracted int // the longest extracted key that makes no joined key too long
	// of a writer with fields: those of the style, and RateLimit-Bypassed
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

// newMiddleware checks cfg and compiles its policies; it panics on a mistake.
func newMiddleware(s weir.Strategy, cfg Config) *middleware {
	m := &middleware{Config: cfg}
	m.tolerates = m.bypasses
	m.setDefaults()
	m.check()
	m.key = appenderOf(m.Extractor)
	if !cfg.Concurrency.IsZero() {
		m.policies = append(m.policies, compileConcurrency(cfg.Concurrency, s, m.DeniedStatus))
	}
	for _, p := range cfg.allPolicies(s) {
		m.policies = append(m.policies, compile(p, s, m.DeniedStatus, false))
	}
	m.checkPolicies()
	m.precompute()
	if m.MaxInFlight > 0 {
		m.all = semaphore.NewWeighted(int64(m.MaxInFlight))
	}
	m.boundsInFlight = m.all != nil || m.Overload != nil || !m.Concurrency.IsZero()
	m.boundKeys()
	if m.usesAddress() {
		m.unchecked.Store(peersChecked)
	}
	claimDefaultNames(m)
	return m
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

func (m *middleware) setDefaults() {
	m.DeniedStatus = cmp.Or(m.DeniedStatus, http.StatusTooManyRequests)
	if m.Now == nil {
		m.Now, m.realTime = time.Now, true
	}
	m.keyless = m.Extractor == nil && m.Decider != nil
	if m.keyless {
		m.Extractor = m.ClientIP
	}
	if ip, ok := findIP(m.Extractor); ok && m.ClientIP.isZero() {
		m.ClientIP = ip
	}
}

func (m *middleware) check() {
	switch {
	case m.Extractor == nil:
		panic("httplimit: no Extractor: choose what is limited; RemoteAddr() limits TCP peers")
	case m.DeniedStatus < 400 || m.DeniedStatus > 599:
		panic(fmt.Sprintf("httplimit: the DeniedStatus %d is no error status", m.DeniedStatus))
	case m.Headers >= headerStyles:
		panic(fmt.Sprintf("httplimit: there is no HeaderStyle %d", m.Headers))
	case m.Jitter < 0:
		panic(fmt.Sprintf("httplimit: the Jitter %v is negative", m.Jitter))
	case m.MaxInFlight < 0:
		panic(fmt.Sprintf("httplimit: the MaxInFlight %d is negative", m.MaxInFlight))
	case m.Class != nil && m.Overload == nil:
		panic("httplimit: a Class without an Overload: set that too, such as to overload.New(limiter, " +
			"overload.Config{})")
	case m.CORS.Credentials && slices.Contains(m.CORS.Origins, "*"):
		panic("httplimit: CORS: browsers send no credentials to the origin *")
	}
	m.Penalty.check(m.DenyList)
}

func (m *middleware) checkPolicies() {
	if len(m.policies) == 0 && m.MaxInFlight == 0 && m.Overload == nil && m.Decider == nil {
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
		case m.CountIf != nil:
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
	static := m.Decider == nil
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
		m.policyLine = string(appendPolicies(nil, newCall(m).states))
	}
	m.forecasts = !m.Shadow && (m.Headers == HeadersDraft || m.Headers == HeadersLegacy)
	m.describes = m.OnDecision != nil || m.Headers == HeadersLegacy || m.Headers == HeadersOriginal
	m.sending.style = append(slices.Clone(styleFields[m.Headers]), fieldBypassed)
	m.exposed = strings.Join(append([]string{fieldRetryAfter}, styleFields[m.Headers]...), ", ")
	m.calls.New = func() any { return newCall(m) }
}

// boundKeys sets keys, unless each client has one key only or MaxKeysPerClient is negative.
func (m *middleware) boundKeys() {
	several := func(p *policy) bool {
		return p.Keys != nil || !oneKeyEach(cmp.Or(p.Extractor, m.Extractor))
	}
	if m.MaxKeysPerClient < 0 || m.Decider == nil && !slices.ContainsFunc(m.policies, several) {
		return
	}
	m.keys = clientaddr.NewKeys(cmp.Or(m.MaxKeysPerClient, clientaddr.DefaultKeys))
	m.keys.Lives(time.Minute)
	m.keys.Lives(2 * m.Penalty.Within)
	for _, p := range m.policies {
		m.keys.Lives(2 * p.Duration)
	}
}
