package httplimit

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// Outcome is what became of a request.
type Outcome uint8

// The outcomes. The handler ran after Admitted and Bypassed, and in shadow mode after each of them.
const (
	Admitted Outcome = iota // every policy admitted it
	Denied                  // a policy denied it
	Listed                  // its caller is on the deny list
	NoKey                   // its key could not be extracted
	Failed                  // a Strategy could not decide, and the middleware fails closed
	Bypassed                // a Strategy could not decide, and the middleware fails open; no other policy denied it
	Canceled                // its client went away, or its time ran out, before a Strategy decided

	outcomes = iota
)

var outcomeNames = [outcomes]string{"Admitted", "Denied", "Listed", "NoKey", "Failed", "Bypassed", "Canceled"}

// String returns the outcome's name.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "Outcome(" + strconv.Itoa(int(o)) + ")"
}

// Decision is what the middleware decided on one request.
type Decision struct {
	Outcome Outcome

	// Key is what the extractor found: a client may have chosen its bytes, so quote it before it meets a log, and keep
	// it out of the labels of a metric. Empty after NoKey.
	Key string

	// Policy is the name of the policy that the figures below are of: the one that denied, for the longest; or that
	// failed; or, of those that admitted, the one with the least room left. Empty if none was asked.
	Policy   string
	Limit    uint64
	Duration time.Duration
	Cost     uint64 // at least 1

	// Result is the Strategy's. After Listed its ExpiresAt is the instant at which the listing ends, or zero if it does
	// not. It is zero if nothing was decided.
	Result weir.Result

	// Status is the status that the middleware answers, or in shadow mode would have. 0: the handler answers.
	Status int

	// Shadow is whether the middleware is in shadow mode, and the handler ran whatever the Outcome.
	Shadow bool

	// Err is why there is no key, or why a Strategy could not decide. It may quote what the client sent.
	Err error
}

// Stats counts decisions by [Outcome]. The zero value is ready to use; it is safe for concurrent use.
type Stats struct {
	counts [outcomes]atomic.Uint64
}

// Count returns how many requests have had this outcome; 0 for an outcome there is not.
func (s *Stats) Count(o Outcome) uint64 {
	if int(o) >= len(s.counts) {
		return 0
	}
	return s.counts[o].Load()
}

type bypassKey struct{}

// IsBypassed reports whether the request that ctx belongs to was let through undecided, by a middleware that fails open.
func IsBypassed(ctx context.Context) bool {
	bypassed, _ := ctx.Value(bypassKey{}).(bool)
	return bypassed
}
