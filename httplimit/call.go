package httplimit

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/overload"
)

// call is the state of one request from its begin to its end. Calls are pooled: a Strategy does not
// keep its Request.
//
// The methods of its steps stand in the files of what they are about, decide.go, headers.go,
// in_flight.go, observe.go, respond.go and others: all in one would be 800 lines.
type call struct {
	*middleware
	uses     atomic.Uint64 // how often it was ended: see Ticket
	kind     Kind
	shadow   bool // the request passes, whatever the outcome
	begun    bool // begin has returned
	status   int  // see Decision.Status
	err      error
	full     *overload.FullError // why Overload refuses the request; nil: it does not
	until    time.Time           // when the caller's listing ends
	limits   limits.Attempts     // one for each policy
	states   []state             // one for each of limits, and those of the Decider
	verdict  *Consultation       // nil without a Decider
	decider  int                 // index in states of the limit that the Decision describes, or none
	jitter   time.Duration       // whole seconds
	inFlight *inFlight           // nil: nothing is held
	response *responseWriter     // nil: Writer has not returned one
	key      []byte              // buffer: the extracted key
	client   []byte              // buffer: the client's address or prefix
	line     []byte              // buffer: a field
	last     string              // the RateLimit field of the last denial
}

const none = -1

func newCall(m *middleware) *call {
	n := len(m.policies)
	c := &call{middleware: m, limits: make(limits.Attempts, n), states: make([]state, n)}
	for i, p := range m.policies {
		c.limits[i] = p.template
		c.states[i] = state{policy: p, of: p, ask: &c.limits[i], shown: p.shown}
	}
	if m.Decider != nil {
		c.verdict = &Consultation{c: c}
	}
	return c
}

// releaseUnlessBegun releases what a request holds of which a Strategy or a hook panics.
func (c *call) releaseUnlessBegun(r *http.Request) {
	if c.begun {
		return
	}
	c.keep(r)
	if c.inFlight != nil {
		c.inFlight.end(false, 0)
	}
}

// reset writes no pointer that is zero already: while the garbage collector marks, it notes every
// write of one.
func (c *call) reset() {
	c.key = c.key[:0]
	c.kind, c.status, c.begun = Admitted, 0, false
	c.shadow = c.Shadow
	if c.err != nil {
		c.err = nil
	}
	if c.full != nil {
		c.full = nil
	}
	c.decider, c.jitter = none, 0
	if n := len(c.policies); len(c.states) > n {
		c.limits, c.states = c.limits[:n], c.states[:n]
	}
	if c.verdict != nil {
		c.verdict.Attempts = nil
	}
}

// stop ends the decision, for a refusal with a status.
func (c *call) stop(k Kind, status int, err error) {
	c.kind, c.status, c.err = k, status, err
	if status != 0 {
		c.jitter = randomSeconds(c.Jitter)
	}
}

func (c *call) passes() bool { return c.status == 0 || c.shadow }

// counting reports whether CountIf decides at the end whether what was taken counts.
func (c *call) counting() bool { return c.CountIf != nil && c.passes() && c.taken() }

// lasts reports whether something is left to do when the request ends.
func (c *call) lasts() bool { return c.inFlight != nil || c.counting() }

// caller returns the extracted key, that of the policy that decides if there is one.
func (c *call) caller() string {
	switch {
	case c.kind == NoKey:
		return ""
	case c.decider == none:
		return string(c.key)
	}
	return c.states[c.decider].caller(c.key)
}

// taken reports whether a limit counts the request. Without a decider no policy has decided, and
// limits are those of another request.
func (c *call) taken() bool {
	return c.decider != none && taken(c.limits) || c.verdict != nil && taken(c.verdict.Attempts)
}

func taken(limits limits.Attempts) bool {
	for i := range limits {
		if limits[i].Taken() {
			return true
		}
	}
	return false
}

// end ends a request that was not aborted.
func (c *call) end(r *http.Request, status int) {
	if c.counting() && !c.counts(r, status) && c.refund(r.Context()) != nil {
		c.logFailures(r.Context())
	}
	if c.inFlight != nil {
		if !c.passes() {
			c.inFlight.place.drop() // a refusal takes no time
		}
		c.inFlight.end(true, status)
	}
	c.inFlight, c.response = nil, nil
	c.calls.Put(c)
}

// lastLine returns c.line as a string. It is that of the call's last denial if they are equal, as
// those of repeated denials are.
func (c *call) lastLine() string {
	if line := c.line[len(comma):]; string(line) != c.last {
		c.last = string(line)
	}
	return c.last
}
