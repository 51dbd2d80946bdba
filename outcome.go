package weir

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/core/bounds"
)

// Outcome is the decision of a [Limit]. Limit is what TotalRequests is held against: that of By or,
// if it has one, its burst.
type Outcome struct {
	Result

	// Left is how much cost would be admitted now, after the decision: of the limit or, if that is
	// larger or smaller, of a token bucket's burst; of Tiers and limits.All the least of all limits. A
	// LeakyBucket admits all of its limit, to wait its turn, or nothing.
	Left uint64

	// FullAt is the instant from which all of it is left again, since nothing that was admitted counts
	// any more, if nothing else is admitted until then: that of the decision, if so it is already. Of
	// Tiers and limits.All that holds of all limits. It is the zero time of work in flight that is
	// held, since nobody knows; and where another package counts of what its Result does not say: a
	// denial or Peek by a limit that slides, a log, a counter or tiers, and an admission by tiers.
	FullAt time.Time

	// Wait is how long after the decision the same request would pass, if nothing else is admitted
	// until then: 0 if it was admitted, and the largest Duration if it can never pass or, of work in
	// flight, nobody knows when.
	Wait time.Duration

	// By is the limit that binds: of limits.All one of its limits, of Tiers one with the numbers of a
	// tier, else the Limit itself.
	By *Limit
}

// Never reports whether the request was denied for good: the same one can never pass, since its
// cost is over the limit.
func (o Outcome) Never() bool {
	return !o.Allowed() && o.Wait == math.MaxInt64 && !o.unknown()
}

// unknown reports whether nobody knows when the request would pass: when work in flight is
// released.
func (o Outcome) unknown() bool {
	return o.TotalRequests > 0 && o.By != nil && o.By.isInFlight()
}

// wait returns for how long the request is denied, in words.
func (o Outcome) wait() string {
	switch {
	case o.Never():
		return "never"
	case o.Wait == math.MaxInt64:
		return "until one is released"
	}
	return bounds.Text(o.Wait)
}

// String describes the decision, such as "allowed, 9 of 10 left: sliding window, 10 in 1m" and
// "denied for 3s, 0 of 10 left: sliding window, 10 in 1m".
func (o Outcome) String() string {
	var b strings.Builder
	switch wait := o.wait(); {
	case o.Allowed():
		b.WriteString("allowed")
	case o.Never():
		b.WriteString("denied for good")
	case o.unknown():
		b.WriteString("denied " + wait)
	default:
		b.WriteString("denied for " + wait)
	}
	fmt.Fprintf(&b, ", %d of %d left", o.Left, o.Limit)
	if o.By != nil {
		b.WriteString(": " + o.By.String())
	}
	return b.String()
}

// MarshalJSON returns the decision for people and their scripts:
//
//	{"allowed":false,"left":0,"limit":10,"wait":"3s","by":"sliding window, 10 in 1m"}
//
// wait is "never" where the request can never pass, and "until one is released" where nobody knows
// when it would. full_at, if it is known, is FullAt.
func (o Outcome) MarshalJSON() ([]byte, error) {
	v := struct {
		Allowed bool       `json:"allowed"`
		Left    uint64     `json:"left"`
		Limit   uint64     `json:"limit"`
		Wait    string     `json:"wait"`
		FullAt  *time.Time `json:"full_at,omitempty"`
		By      string     `json:"by,omitempty"`
	}{Allowed: o.Allowed(), Left: o.Left, Limit: o.Limit, Wait: o.wait()}
	if full := o.FullAt.Round(0); !full.IsZero() {
		v.FullAt = &full
	}
	if o.By != nil {
		v.By = o.By.String()
	}
	return json.Marshal(v)
}
