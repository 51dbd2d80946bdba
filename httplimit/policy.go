package httplimit

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/bounds"
)

const maxNameLen = 64

// Policy is one limit on a request.
type Policy struct {
	// Name appears in the RateLimit fields and is part of the key. Two policies of one Strategy
	// share budgets if they have the same Name and Duration, and are separate otherwise. 1 to 64
	// bytes of printable ASCII.
	//
	// The default is made of Limit and Duration: "100/1m". Since two routes may well have the same
	// limit, only one [New] on a Strategy may leave names out. A policy with a LimitFunc must have
	// a Name.
	Name string

	// Limit is the cost admitted in Duration. It must not be 0; see DenyAll.
	Limit uint64

	// Duration is the period: a whole number of milliseconds, 1 ms to 365 days.
	Duration time.Duration

	// LimitFunc returns the limit and duration for a request, by plan or by route, in place of
	// Limit and Duration; [NoLimit] exempts the request. It must rely on authenticated data only: a
	// client that chooses its plan has no limit. An invalid duration fails the request with 503,
	// even with FailOpen.
	LimitFunc func(*http.Request) (limit uint64, duration time.Duration)

	// DenyAll makes a Limit of 0 valid: every request is denied.
	DenyAll bool

	// Strategy runs this policy. nil: the one given to New.
	Strategy weir.Strategy

	// Extractor returns the key that this policy counts under, such as the organisation of a user. A
	// request without one gets 400, unless LimitFunc exempts it. nil: Config.Extractor.
	Extractor Extractor
}

// Key returns the key that this policy counts the caller under, for a Reset, an Inspect or a test.
// The caller is the extracted key, such as "192.0.2.1".
func (p Policy) Key(caller string) string {
	if p.Name == "" {
		p.Name = defaultName(p.Limit, p.Duration)
	}
	return weir.JoinKey(p.Name, caller)
}

// policy is a compiled Policy; read-only after New.
type policy struct {
	Policy
	template   weir.Attempt    // of Strategy; each call has a copy
	key        appender        // of Extractor, if there is one
	peeker     weir.Peeker     // nil if Strategy is none
	forecaster weir.Forecaster // nil if Strategy is none
	strategy   string          // its name, for a Decision
	unnamed    bool            // Name is the default

	renewsAtOnce bool // the whole limit is available again at ExpiresAt, and nothing before
	holds        bool // it is Config's Concurrency

	prefix  []byte // of every key: the name as the first part of a joined key
	item    string // see Quota
	problem []byte // the body of a denial by this policy alone
}

// compile checks p and computes its fixed strings; s runs it if it has no Strategy of its own. It
// panics on a mistake.
func compile(p Policy, s weir.Strategy, deniedStatus int) *policy {
	if p.Strategy == nil {
		p.Strategy = s
	}
	unnamed := p.Name == ""
	if unnamed {
		if p.LimitFunc != nil {
			panic("httplimit: a policy with a LimitFunc needs a Name")
		}
		p.Name = defaultName(p.Limit, p.Duration)
	}
	p.check()
	c := &policy{
		Policy: p, unnamed: unnamed,
		template: weir.NewAttempt(p.Strategy), strategy: weir.NameOf(p.Strategy),
		prefix: appendPart(nil, p.Name), item: itemOf(p.Name),
		problem: deniedProblem(deniedStatus, detailUsedUp, p.Name),
	}
	if p.Extractor != nil {
		c.key = appenderOf(p.Extractor)
	}
	c.peeker, _ = p.Strategy.(weir.Peeker)
	c.forecaster, _ = p.Strategy.(weir.Forecaster)
	switch p.Strategy.(type) {
	case *weir.FixedWindow, *weir.Calendar:
		c.renewsAtOnce = true
	}
	return c
}

// IsZero reports whether p is the zero Policy.
func (p Policy) IsZero() bool {
	return p.Name == "" && p.Limit == 0 && p.Duration == 0 && p.LimitFunc == nil && !p.DenyAll &&
		p.Strategy == nil && p.Extractor == nil
}

// The defaults of Config's Concurrency.
const (
	defaultLease    = time.Minute
	concurrencyName = "in flight"
)

// compileConcurrency is compile for Config's Concurrency.
func compileConcurrency(p Policy, s weir.Strategy, deniedStatus int) *policy {
	unnamed := p.Name == ""
	p.Name, p.Duration = cmp.Or(p.Name, concurrencyName), cmp.Or(p.Duration, defaultLease)
	c := compile(p, s, deniedStatus)
	var err error
	if c.template, err = c.template.Holding(); err != nil {
		panic(fmt.Sprintf("httplimit: Concurrency needs a Strategy that holds, "+
			"such as limiter.InFlight(): %v", err))
	}
	c.unnamed, c.holds, c.renewsAtOnce = unnamed, true, true // nothing can be forecast
	return c
}

// defaultName formats a limit as people write it: "100/1m", "5/1h30m", "10/250ms".
func defaultName(limit uint64, d time.Duration) string {
	return strconv.FormatUint(limit, 10) + "/" + bounds.Text(d)
}

// check panics unless the Name can stand in a header field as it is, and there is a LimitFunc, or a
// Duration and either a Limit or DenyAll.
func (p Policy) check() {
	if printableName(p.Name) != p.Name {
		panic(fmt.Sprintf("httplimit: the policy name %q is not 1 to %d bytes of printable ASCII", p.Name,
			maxNameLen))
	}
	if p.LimitFunc != nil {
		return
	}
	checkDuration(p.Name, p.Duration)
	switch {
	case p.Limit == 0 && !p.DenyAll:
		panic(fmt.Sprintf("httplimit: policy %q has no Limit and would deny everything; "+
			"set Limit, or DenyAll if that is meant", p.Name))
	case p.Limit != 0 && p.DenyAll:
		panic(fmt.Sprintf("httplimit: policy %q has both a Limit and DenyAll", p.Name))
	}
}

func checkDuration(name string, d time.Duration) {
	if !bounds.Duration(d) {
		panic(fmt.Sprintf("httplimit: policy %q: the Duration %v is not a whole number of "+
			"milliseconds from 1 ms to 365 days", name, d))
	}
}
