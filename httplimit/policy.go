package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/limits"
)

const (
	maxNameLen   = 64
	maxLimitName = 256 // of a weir.Limit, in bytes
)

// Policy is one limit on a request.
type Policy struct {
	// Name appears in the RateLimit fields and separates budgets: of a [weir.Limit] it is the name, as
	// by its method Named; of another Strategy it is part of the key, so that two policies share
	// budgets if they have the same Name and Duration. 1 to 64 bytes of printable ASCII.
	//
	// The default is the name of the limit or else made of its numbers: "100/1m". Since two routes
	// may well have the same limit, only one [New] on a Strategy may leave names out.
	Name string

	// Limit is the cost admitted in Duration. It must not be 0; see DenyAll.
	Limit uint64

	// Duration is the period: a whole number of milliseconds, 1 ms to 365 days.
	Duration time.Duration

	// LimitFunc returns the limit of a request, by plan or by route, in place of the policy's own. nil
	// stands for that one or, in a policy that has none, for no limit, as if the policy did not apply.
	// LimitFunc must rely on authenticated data only: a client that chooses its plan has no limit. The
	// limits are values, made where the program starts; to choose from up to 1024 costs nothing:
	//
	//	free, paid := s.Limit(100, time.Hour), s.Limit(5000, time.Hour)
	//
	// With a Name, here or of the limits, a caller whose plan changes keeps its count; else each limit
	// counts for itself. Of two policies whose limits are on one count, one decides. A request is not
	// decided if LimitFunc returns a limit on work in flight outside Concurrency, or another limit in
	// Concurrency.
	LimitFunc func(*http.Request) *weir.Limit

	// Applies reports whether the policy applies to a request. If not, no bucket is taken, and no
	// field mentions the policy. nil: it applies to all.
	Applies func(*http.Request) bool

	// DenyAll makes a Limit of 0 valid: every request is denied.
	DenyAll bool

	// Strategy decides. A [weir.Limit] counts the callers under their extracted keys, as its own
	// methods do; leave Limit and Duration zero, unless it has no numbers, as [limits.All] and Tiers
	// have none. Any other Strategy, with a Limit and a Duration, counts them under [Policy.Key]. nil:
	// the one given to New.
	Strategy weir.Strategy

	// Extractor returns the key that this policy counts under, such as the organisation of a user. A
	// request without one gets 400, unless the policy does not apply. nil: Config.Extractor.
	Extractor Extractor

	// Keys returns the keys that the policy counts a request under, in place of the one of an
	// Extractor: one for each reading of a path, for instance. They are of the same kind as the
	// keys of Config's Extractor: a key has one budget, and one entry in a DenyList, whichever of
	// the two has found it. The request is held to the limit under each key; the fields show the one
	// that denies for the longest or, if none denies, the one with the least remaining. Without a key
	// the policy does not apply, and an error is one of an Extractor. Policies with Keys may have the
	// Name of an earlier policy, as if they were one. A key that is given twice counts once. nil:
	// Extractor.
	Keys func(*http.Request) ([]string, error)
}

// Key returns the key that this policy counts the caller under, for a Reset, an Inspect or a test.
// The caller is the extracted key, such as "192.0.2.1", which is the key itself if the Strategy is
// a [weir.Limit].
func (p Policy) Key(caller string) string {
	if _, ok := p.Strategy.(*weir.Limit); ok {
		return caller
	}
	if p.Name == "" {
		p.Name = defaultName(p.Limit, p.Duration)
	}
	return weir.JoinKey(p.Name, caller)
}

// policy is a compiled Policy, whose Strategy is no [weir.Limit]; read-only after New.
type policy struct {
	Policy
	limited  bool           // it has a limit besides LimitFunc
	varies   bool           // from request to request: see state.choose
	plans    *plans         // of LimitFunc
	limit    *weir.Limit    // if the policy was given one
	lasting  bool           // of its requests, elsewhere
	template limits.Attempt // of Strategy, with the numbers; each call has a copy
	key      appender       // of Extractor, if there is one
	about    *weir.About    // of Strategy
	unnamed  bool           // Name is the default
	shown    shown

	listedAs     string // the Policy of its callers' entries in a DenyList
	renewsAtOnce bool   // the whole limit is available again at ExpiresAt, and nothing before

	part    []byte // the name as the first part of a joined key
	prefix  []byte // of every key, before its last part; nil: a key is the extracted one
	problem []byte // the body of a denial by this policy alone
}

// compile checks p and computes its fixed strings; s runs it if p has no Strategy of its own. It
// panics on a mistake, as is a limit on work in flight, unless p holds.
func compile(p Policy, s weir.Strategy, deniedStatus int, holds bool) *policy {
	p.Strategy = cmp.Or(p.Strategy, s)
	if p.Strategy == nil && (p.Duration != 0 || p.LimitFunc == nil) {
		panic(fmt.Sprintf("httplimit: policy %q has no Strategy",
			cmp.Or(p.Name, defaultName(p.Limit, p.Duration))))
	}
	c := &policy{Policy: p, varies: p.LimitFunc != nil || p.Applies != nil || p.Keys != nil}
	if p.LimitFunc != nil {
		c.plans = &plans{of: p, status: deniedStatus}
	}
	if m, ok := p.Strategy.(*weir.Limit); ok {
		c.setLimit(m)
	}
	c.limited = c.limit != nil || p.Limit != 0 || p.Duration != 0 || p.LimitFunc == nil
	if of := limits.NewAttempt(p.Strategy); c.limited && !holds && of.InFlight() {
		panic(errInFlight(p.Strategy).Error())
	}
	c.unnamed = c.Name == "" && c.limited
	if c.unnamed {
		c.Name = c.numbers()
	}
	if c.Name != "" {
		c.check()
	}
	c.complete(deniedStatus)
	return c
}

// setLimit has m decide, which has the Name, if there is one.
func (c *policy) setLimit(m *weir.Limit) {
	if c.Name == "" {
		c.Name = m.Name()
	} else if m.Name() != c.Name {
		m = m.Named(c.Name)
	}
	c.limit = m
	if n, d := m.Numbers(); d != 0 {
		if c.Limit != 0 || c.Duration != 0 {
			panic(fmt.Sprintf("httplimit: the limit %q has numbers of its own: "+
				"leave Limit and Duration zero", m))
		}
		c.Limit, c.Duration = n, d
	}
	of := weir.CounterOf(m)
	c.Strategy = of
	if a := of.About(); a.Base != nil { // the name is in the keys of another package's Strategy
		c.prefix = []byte(strings.TrimSuffix(a.Key(""), weir.JoinKey("")))
		c.Strategy, c.lasting = a.Base, a.Lasting
	}
}

// complete computes the fields that follow from the Strategy, the Name and the numbers.
func (c *policy) complete(deniedStatus int) {
	c.part = appendPart(nil, c.Name)
	if c.Extractor != nil {
		c.key = appenderOf(c.Extractor)
		c.listedAs = c.Name
	}
	if !c.limited {
		return
	}
	c.template = limits.NewAttempt(c.Strategy)
	c.template.Op.Request.Limit, c.template.Op.Request.Duration = c.Limit, c.Duration
	c.template.Op.Request.Lasting = c.lasting
	c.about = c.template.About()
	c.shown = shown{name: c.Name, strategy: c.about.String(), limit: c.Limit,
		duration: c.Duration, item: itemOf(c.Name)}
	c.problem = deniedProblem(deniedStatus, detailUsedUp, c.Name)
	if c.limit == nil {
		c.prefix = c.part
	}
	switch c.about.Lapses {
	case weir.LapsesAtOnce, weir.LapsesWithWindow:
		c.renewsAtOnce = c.about.Limiter != nil
	}
}

// maxPlans bounds the limits that a LimitFunc is expected to return: further ones are compiled for
// each request.
const maxPlans = 1024

// plans are the policies for the limits that a LimitFunc has returned.
type plans struct {
	of     Policy
	status int      // of denials
	hold   bool     // it is Config's Concurrency
	known  sync.Map // from *weir.Limit to *policy
	n      atomic.Int64
}

// policy returns the policy for a limit.
func (l *plans) policy(m *weir.Limit) *policy {
	if p, ok := l.known.Load(m); ok {
		return p.(*policy)
	}
	c := &policy{Policy: l.of, limited: true, varies: true, plans: l}
	c.Limit, c.Duration = 0, 0
	c.setLimit(m)
	c.Name = printableName(cmp.Or(c.Name, c.numbers()))
	c.complete(l.status)
	if err := c.fits(l.hold); err != nil {
		c.template = limits.NewAttempt(misplaced{err})
	}
	if l.n.Add(1) <= maxPlans {
		l.known.Store(m, c)
	}
	return c
}

// IsZero reports whether p is the zero Policy.
func (p Policy) IsZero() bool {
	return p.Name == "" && p.Limit == 0 && p.Duration == 0 && p.LimitFunc == nil && p.Applies == nil &&
		!p.DenyAll && p.Strategy == nil && p.Extractor == nil && p.Keys == nil
}

// The defaults of Config's Concurrency.
const (
	defaultLease    = time.Minute
	concurrencyName = "in flight"
)

// compileConcurrency is compile for Config's Concurrency.
func compileConcurrency(p Policy, s weir.Strategy, deniedStatus int) *policy {
	unnamed := p.Name == ""
	p.Strategy = cmp.Or(p.Strategy, s)
	if m, ok := p.Strategy.(*weir.Limit); ok {
		p.Name = cmp.Or(p.Name, m.Name())
		unnamed = p.Name == ""
	} else if p.Duration == 0 && (p.Limit != 0 || p.LimitFunc == nil) {
		p.Duration = defaultLease
	}
	p.Name = cmp.Or(p.Name, concurrencyName)
	c := compile(p, s, deniedStatus, true)
	if c.plans != nil {
		c.plans.hold = true
	}
	if c.limited {
		if err := c.fits(true); err != nil {
			panic(err.Error())
		}
	}
	c.unnamed, c.shown.inFlight = unnamed, true
	return c
}

// fits has the Strategy hold its admissions if the policy is Concurrency. It fails if the Strategy
// cannot, or if another policy has one that does.
func (c *policy) fits(concurrency bool) (err error) {
	switch {
	case concurrency:
		c.shown.inFlight, c.renewsAtOnce = true, true // nothing can be forecast
		c.template, err = c.template.Holding()
		if err != nil {
			return fmt.Errorf("httplimit: Concurrency needs a Strategy that holds, "+
				"such as limiter.InFlight(): %w", err)
		}
	case c.template.InFlight():
		return errInFlight(c.Strategy)
	}
	return nil
}

func errInFlight(s weir.Strategy) error {
	return fmt.Errorf("httplimit: %s bounds work in flight, which a policy would not release: "+
		"set Config.Concurrency: %w", weir.CounterOf(s).About(), errors.ErrUnsupported)
}

// misplaced is the Strategy of a limit that a LimitFunc must not return: each call fails.
type misplaced struct{ err error }

// Run implements [weir.Strategy].
func (m misplaced) Run(context.Context, *weir.Request) (*weir.Result, error) { return nil, m.err }

// numbers returns the name of a policy that has none.
func (c *policy) numbers() string {
	if c.limit != nil {
		if n, d := c.limit.Numbers(); d != 0 {
			return strconv.FormatUint(n, 10) + "/" + c.limit.Period()
		}
	}
	return defaultName(c.Limit, c.Duration)
}

// defaultName formats a limit as people write it: "100/1m", "5/1h30m", "10/250ms".
func defaultName(limit uint64, d time.Duration) string {
	return strconv.FormatUint(limit, 10) + "/" + bounds.Text(d)
}

// check panics unless the Name can stand in a header field as it is and, if the policy has a limit
// of its own, there is a Duration and either a Limit or DenyAll.
func (c *policy) check() {
	if printableName(c.Name) != c.Name {
		panic(fmt.Sprintf("httplimit: the policy name %q is not 1 to %d bytes of printable ASCII", c.Name,
			maxNameLen))
	}
	if !c.limited {
		return
	}
	if c.limit != nil && c.Duration == 0 {
		panic(fmt.Sprintf("httplimit: the limit %q has no numbers to show: set Limit and Duration",
			c.limit))
	}
	checkDuration(c.Name, c.Duration)
	switch {
	case c.Limit == 0 && !c.DenyAll:
		panic(fmt.Sprintf("httplimit: policy %q has no Limit and would deny everything; "+
			"set Limit, or DenyAll if that is meant", c.Name))
	case c.Limit != 0 && c.DenyAll:
		panic(fmt.Sprintf("httplimit: policy %q has both a Limit and DenyAll", c.Name))
	}
}

func checkDuration(name string, d time.Duration) {
	if !bounds.Duration(d) {
		panic(fmt.Sprintf("httplimit: policy %q: the Duration %v is not a whole number of "+
			"milliseconds from 1 ms to 365 days", name, d))
	}
}
