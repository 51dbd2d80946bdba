package httplimit

import (
	"time"

	"github.com/weirgo/weir"
)

// call is the state of one request while it is decided. Calls are pooled: a Strategy does not keep
// its Request.
type call struct {
	outcome  Outcome
	status   int // see Decision.Status
	err      error
	until    time.Time     // when the caller's listing ends
	limits   weir.Attempts // one for each policy
	states   []policyState // one for each of limits
	quotas   Quotas        // states of the policies for the fields, of HeadersDraft and of a denial
	decider  int           // index in states of the policy that the Decision describes, or none
	jitter   int64         // seconds
	inFlight *inFlight     // nil if no requests in flight are bounded; else set for each
	key      []byte        // buffer: the extracted key
	client   []byte        // buffer: the client's address or prefix
	line     []byte        // buffer: a field
	last     string        // the RateLimit field of the last request
}

const none = -1

func newCall(policies []*policy) *call {
	n := len(policies)
	c := &call{limits: make(weir.Attempts, n), states: make([]policyState, n), quotas: make(Quotas, n)}
	for i, p := range policies {
		c.limits[i] = p.template
		c.states[i] = policyState{policy: p, of: p, ask: &c.limits[i]}
		c.quotas[i] = Quota{
			Name: p.Name, Limit: p.Limit, Duration: p.Duration, InFlight: p.holds, item: p.item,
		}
	}
	return c
}

// reset writes no pointer that is zero already: while the garbage collector marks, it notes every
// write of one.
func (c *call) reset() {
	c.key = c.key[:0]
	c.outcome, c.status = Admitted, 0
	if c.err != nil {
		c.err = nil
	}
	c.decider, c.jitter = none, 0
}

func (c *call) end(o Outcome, status int, err error) {
	c.outcome, c.status, c.err = o, status, err
}

// caller returns the extracted key, that of the policy that decides if there is one.
func (c *call) caller() string {
	switch {
	case c.outcome == NoKey:
		return ""
	case c.decider == none:
		return string(c.key)
	}
	return c.states[c.decider].caller(c.key)
}

// failed returns the last policy whose Strategy failed, or none.
func (c *call) failed() int {
	for i := len(c.limits) - 1; i >= 0; i-- {
		if c.limits[i].Err != nil {
			return i
		}
	}
	return none
}

// taken reports whether a policy counts the request. Without a decider none has decided, and limits
// are those of another request.
func (c *call) taken() bool {
	for i := 0; c.decider != none && i < len(c.limits); i++ {
		if c.limits[i].Taken() {
			return true
		}
	}
	return false
}

// lineString returns c.line as a string. It reuses the string of the call's last request if that
// was equal, as it is for repeated denials.
func (c *call) lineString() string {
	if string(c.line) != c.last {
		c.last = string(c.line)
	}
	return c.last
}
