package httplimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

// penaltyPrefix begins the keys that denials are counted under. They have three or four parts, the
// second of which is "denied", and so differ from the keys of policies, which have two parts, or
// three with "shared" as the second.
var penaltyPrefix = string(appendPart(appendPart(nil, "penalty"), "denied"))

// penaltyPolicy begins the keys of policies with an Extractor of their own, whose key in the policy
// follows.
var penaltyPolicy = penaltyPrefix + string(appendPart(nil, "policy"))

// Penalty is the penalty box: a caller that is denied Denials times Within a period is put on the
// deny list For a while. A listed caller is refused before any policy runs, and these refusals do
// not count as denials. [DenyList.Remove] sets its denials to zero; the end of its entry does not.
// DenyListConfig.MaxPenalties bounds how many are listed.
type Penalty struct {
	// Strategy counts the denials, under keys of its own. It must use the request's Limit and
	// Duration, as a fixed window does, and be able to [weir.OpReset] for denials to be taken back.
	Strategy weir.Strategy

	// Denials is the number of denials that lists a caller. 0: no penalty box.
	Denials uint64

	// Within is the period that denials are counted in: a whole number of milliseconds, 1 ms to 365
	// days.
	Within time.Duration

	// For is how long a caller is listed.
	For time.Duration
}

func (p Penalty) check(list *DenyList) {
	switch {
	case p == Penalty{}:
	case list == nil:
		panic("httplimit: Penalty without a DenyList")
	case p.Strategy == nil || p.Denials == 0 || p.For <= 0:
		panic(fmt.Sprintf("httplimit: Penalty needs a Strategy, Denials and For: %+v", p))
	default:
		if of := limits.NewAttempt(p.Strategy); of.InFlight() {
			panic("httplimit: Penalty counts denials, and its Strategy bounds work in flight: " +
				"take a window, and Config.Concurrency for requests")
		}
		checkDuration("penalty", p.Within)
	}
}

// count counts a denial under a key, and reports whether that denial lists the caller.
func (p Penalty) count(
	ctx context.Context, key []byte,
) (counted *weir.Request, last bool, err error) {
	counted = &weir.Request{
		Key:      string(key),
		Limit:    p.Denials - 1, // the Strategy denies the Denials-th denial
		Duration: p.Within,
	}
	res, err := p.Strategy.Run(ctx, counted)
	return counted, err == nil && res != nil && !res.Allowed(), err
}

// forget takes back the denials of a caller that is taken off the list: otherwise its next one
// would list it again. A Strategy that cannot [weir.OpReset] keeps them.
func (p Penalty) forget(counted *weir.Request) error {
	err := weir.Do(context.Background(), p.Strategy, &weir.Op{Verb: weir.OpReset, Request: *counted})
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
