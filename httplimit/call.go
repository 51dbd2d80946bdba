package httplimit

import "time"

// call is the state of one request while it is decided. Calls are pooled: a Strategy does not keep
// its Request.
type call struct {
	outcome Outcome
	status  int // see Decision.Status
	err     error
	until   time.Time     // when the caller's listing ends
	states  []policyState // one for each policy
	decider int           // index in states of the policy that the Decision describes, or none
	jitter  int64         // seconds
	taken   bool          // a policy admitted the request and has not been refunded
	slot    *slot         // nil: requests in flight are not bounded
	key     []byte        // buffer: the extracted key
	client  []byte        // buffer: the client's address or prefix
	shared  []byte        // buffer: the key that the client's keys beyond MaxKeysPerClient share, or empty
	line    []byte        // buffer: a field
	last    string        // the RateLimit field of the last request
}

const none = -1

func newCall(policies []*policy) *call {
	c := &call{states: make([]policyState, len(policies))}
	for i, p := range policies {
		c.states[i].policy = p
	}
	return c
}

// reset writes no pointer that is zero already: while the garbage collector marks, it notes every
// write of one.
func (c *call) reset() {
	for i := range c.states {
		s := &c.states[i]
		s.answered, s.refunded, s.exempt, s.source = false, false, false, SourceNone
		if !s.more.IsZero() {
			s.more = time.Time{}
		}
	}
	c.outcome, c.status = Admitted, 0
	if c.err != nil {
		c.err = nil
	}
	c.decider, c.jitter, c.taken = none, 0, false
	c.shared = c.shared[:0]
}

func (c *call) end(o Outcome, status int, err error) {
	c.outcome, c.status, c.err = o, status, err
}

// caller returns the extracted key. Once a policy ran, it is the last part of that policy's joined
// key, which saves an allocation.
func (c *call) caller() string {
	switch {
	case c.outcome == NoKey:
		return ""
	case c.decider == none || len(c.shared) > 0:
		return string(c.key)
	}
	joined := c.states[c.decider].req.Key
	return joined[len(joined)-len(c.key):]
}

// tightest returns the policy with the least remaining, the first of several. At least one policy
// applies.
func (c *call) tightest() int {
	if len(c.states) == 1 {
		return 0
	}
	best := none
	for i := range c.states {
		s := &c.states[i]
		if s.exempt {
			continue
		}
		if best == none || s.remaining() < c.states[best].remaining() {
			best = i
		}
	}
	return best
}

// strictest returns the policy that denies for the longest. At least one denies.
func (c *call) strictest() int {
	best := none
	for i := range c.states {
		if !c.states[i].denied() {
			continue
		}
		end := c.states[i].res.ExpiresAt
		if end.IsZero() {
			return i
		}
		if best == none || end.After(c.states[best].res.ExpiresAt) {
			best = i
		}
	}
	return best
}

// violated returns the names of the policies that deny.
func (c *call) violated() []string {
	var names []string
	for i := range c.states {
		if c.states[i].denied() {
			names = append(names, c.states[i].Name)
		}
	}
	return names
}

// lineString returns c.line as a string. It reuses the string of the call's last request if that
// was equal, as it is for repeated denials.
func (c *call) lineString() string {
	if string(c.line) != c.last {
		c.last = string(c.line)
	}
	return c.last
}
