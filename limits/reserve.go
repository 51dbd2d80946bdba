package limits

import (
	"context"
	"fmt"

	"github.com/weirgo/weir"
)

// Reserve is [weir.Limit.Reserve] of several limits: it decides on asks as [Decide] does, whose
// costs are estimates, and takes all or none. Commit and Cancel correct each; CommitEach corrects
// them to different costs, as of one request and its tokens. With one Ask it serves a Strategy that
// is no [weir.Limit]:
//
//	res, err := limits.Reserve(ctx, requests.For(user), tokens.For(org).Cost(4000))
//	if err != nil { … }
//	if !res.Allowed() { … } // by res.By
//	defer res.Cancel(ctx)
//	return res.CommitEach(ctx, 1, generate())
//
// Reserve fails as Decide does, and with [errors.ErrUnsupported] if a Strategy cannot give back and
// charge. Without asks the Reservation is admitted. By is nil of an Ask of no Limit and no All.
func Reserve(ctx context.Context, asks ...weir.Ask) (*weir.Reservation, error) {
	attempts := make(Attempts, len(asks)) // the Reservation keeps them
	ops := make([]*weir.Op, len(asks))
	for i := range asks {
		m := &attempts[i]
		m.ask(asks[i].Strategy, &asks[i].Request)
		if m.about == nil || !m.has(weir.OpReturn) || !m.has(weir.OpCharge) {
			return nil, fmt.Errorf("limits: Reserve: %w", m.unsupported("refund and charge"))
		}
		m.Op.Keep, m.Op.Full, ops[i] = true, true, &m.Op
	}
	if err := check(attempts); err != nil {
		return nil, err
	}
	if err := attempts.decide(ctx); err != nil {
		return nil, err
	}
	return weir.ReservationOf(attempts.outcome(ctx), ops...), nil
}
