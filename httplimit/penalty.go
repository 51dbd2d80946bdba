package httplimit

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// penaltyPrefix starts the keys that denials are counted under. No policy's key is among them: those have two parts.
var penaltyPrefix = string(appendPart(appendPart(nil, "penalty"), "denied"))

// Penalty is the penalty box: who is denied Denials times Within a period is put on the deny list For a while. While he
// is on it he is refused before any policy is asked, which counts as no further denial.
type Penalty struct {
	// Strategy counts the denials, in keys of its own; one that limits by the request's Limit and Duration, as the fixed
	// window of the limiter at hand does.
	Strategy weir.Strategy

	// Denials is how many are too many. 0: there is no penalty box.
	Denials uint64

	// Within is the period they are counted in: a whole number of milliseconds, 1 ms to 365 days.
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
		checkDuration("penalty", p.Within)
	}
}

// penalize counts a denial, and lists the caller if it was one too many.
func (m *middleware) penalize(ctx context.Context, key string, now time.Time) {
	if m.Penalty.Denials == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx) // who hangs up on a denial has been denied
	res, err := m.Penalty.Strategy.Run(ctx, &weir.Request{
		Key:      string(appendPart([]byte(penaltyPrefix), key)),
		Limit:    m.Penalty.Denials - 1, // the denial that this Strategy denies is the one too many
		Duration: m.Penalty.Within,
	})
	if err == nil && res != nil && !res.Allowed() {
		err = m.DenyList.extend(key, now.Add(m.Penalty.For))
	}
	if err != nil {
		m.logFailure(ctx, "penalty", key, err)
	}
}
