package httplimit

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weirgo/weir"
)

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
