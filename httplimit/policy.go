package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir"
)

// Policy is one limit on a request.
type Policy struct {
	// Name is what the client reads in the RateLimit fields, and part of the key: two policies with different names never
	// share a budget, two with the same name, Duration and Strategy always do. 1 to 64 bytes of printable ASCII. The
	// default says Limit and Duration: "100/1m". A policy with a LimitFunc must have one.
	Name string

	// Limit is how much cost is admitted in Duration; 0 denies everything.
	Limit uint64

	// Duration is the period: a whole number of milliseconds, 1 ms to 365 days.
	Duration time.Duration

	// LimitFunc returns the Limit and Duration for a request, for plans and for routes, in place of the two above. It
	// must go by what has been authenticated: who can choose his plan has no limit. For no limit at all it returns
	// math.MaxUint64.
	LimitFunc func(*http.Request) (limit uint64, duration time.Duration)

	// Strategy runs this policy. nil: the one given to New.
	Strategy weir.Strategy
}

const maxNameLen = 64

// policy is a Policy made ready by New; read-only from then on.
type policy struct {
	Policy
	refunder weir.Refunder // nil if Strategy is none
	peeker   weir.Peeker   // nil if Strategy is none
	direct   decider       // nil if Strategy is none of package weir's own

	prefix    []byte // of every key: the name as the first part of a joined key
	rateItem  string // `"name";r=`
	policyTag string // `"name";q=100;w=60`; empty if LimitFunc is set
	problem   []byte // the body of a denial by this policy alone
}

// compile checks p and makes it ready; s runs it if it has no Strategy of its own. It panics on a mistake.
func compile(p Policy, s weir.Strategy, deniedStatus int) *policy {
	if p.Strategy == nil {
		p.Strategy = s
	}
	if p.Name == "" {
		if p.LimitFunc != nil {
			panic("httplimit: a policy with a LimitFunc needs a Name")
		}
		p.Name = defaultName(p.Limit, p.Duration)
	}
	checkName(p.Name)
	if p.LimitFunc == nil {
		checkDuration(p.Name, p.Duration)
	}
	c := &policy{Policy: p, prefix: appendPart(nil, p.Name)}
	c.refunder, _ = p.Strategy.(weir.Refunder)
	c.peeker, _ = p.Strategy.(weir.Peeker)
	switch s := p.Strategy.(type) {
	// The types themselves: one that embeds them for the sake of another Run has their Decide too, which would go round it.
	case *weir.FixedWindow, *weir.SlidingWindow, *weir.SlidingLog, *weir.TokenBucket:
		c.direct = s.(decider)
	}
	c.rateItem = quote(p.Name) + ";r="
	if p.LimitFunc == nil {
		c.policyTag = string(appendPolicy(nil, p.Name, p.Limit, p.Duration))
	}
	c.problem = deniedProblem(deniedStatus, p.Name)
	return c
}

// decider is what package weir's own strategies are: Run without the allocation of a Result.
type decider interface {
	Decide(ctx context.Context, r *weir.Request) (weir.Result, error)
}

var errNoResult = errors.New("httplimit: the strategy returned neither a result nor an error")

// run asks the Strategy and leaves the answer in res, unless it fails.
func (p *policy) run(ctx context.Context, req *weir.Request, res *weir.Result) (err error) {
	if p.direct != nil {
		*res, err = p.direct.Decide(ctx, req)
		return err
	}
	answer, err := p.Strategy.Run(ctx, req)
	switch {
	case err != nil:
		return err
	case answer == nil:
		return errNoResult
	}
	*res = *answer
	return nil
}

// fill writes what p asks of its Strategy for this caller into req, which p alone has filled before.
func (p *policy) fill(req *weir.Request, r *http.Request, key []byte, cost uint64) {
	var buf [96]byte
	joined := appendPart(append(buf[:0], p.prefix...), key)
	if string(joined) != req.Key { // often the caller of the last request is the caller of this one
		req.Key = string(joined)
	}
	req.Limit, req.Duration, req.Cost = p.Limit, p.Duration, cost
	if p.LimitFunc != nil {
		req.Limit, req.Duration = p.LimitFunc(r)
	}
}

// defaultName writes a limit as a person would: "100/1m", "5/1h30m", "10/250ms".
func defaultName(limit uint64, d time.Duration) string {
	period := d.String()
	if strings.HasSuffix(period, "m0s") {
		period = strings.TrimSuffix(period, "0s")
	}
	if strings.HasSuffix(period, "h0m") {
		period = strings.TrimSuffix(period, "0m")
	}
	return strconv.FormatUint(limit, 10) + "/" + period
}

// checkName panics unless name can stand in a header field as it is.
func checkName(name string) {
	if len(name) > maxNameLen {
		panic(fmt.Sprintf("httplimit: the policy name %q is longer than %d bytes", name, maxNameLen))
	}
	for i := range len(name) {
		if name[i] < ' ' || name[i] > '~' {
			panic(fmt.Sprintf("httplimit: the policy name %q is not printable ASCII", name))
		}
	}
}

func checkDuration(name string, d time.Duration) {
	if d < time.Millisecond || d > 365*24*time.Hour || d%time.Millisecond != 0 {
		panic(fmt.Sprintf("httplimit: policy %q: the Duration %v is not a whole number of milliseconds from 1 ms to 365 days", name, d))
	}
}
