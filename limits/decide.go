package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weirgo/weir"
)

// Decide admits a request if every Ask is admitted; otherwise nothing is taken anywhere. Asks may
// be on different keys, strategies, limits and costs: a user and his organisation, requests and
// tokens.
//
//	out, err := limits.Decide(ctx, requests.For(user), tokens.For(org).Cost(n))
//
// Its Outcome comes from the Ask that binds: of a denial the one that lasts longest, of an
// admission the one with the least left of its limit or burst. Left and FullAt are of that alone,
// since asks may count different things. By is its Limit, or nil if it is none. Who needs the
// decision of each Ask makes [Attempts] of them.
//
// If a Strategy fails, so does Decide, and all is given back; the error says so if that
// fails too. Decide fails with [errors.ErrUnsupported] if two strategies cannot give back: only one
// can decide last, or if one bounds work in flight, which nobody would release: see [weir.Hold];
// and with [weir.ErrLimit] for two asks on one count: of equal limits and one key, or of another
// Strategy than a Limit with equal Requests. Without asks the request is admitted.
//
// Decide is not one atomic step, and [Attempts.Take] says what can happen between its steps: a
// request that is denied in the end may cost another one its admission; never are too many
// admitted. If a Strategy panics, the counts of those before it stand. Asks on one
// redislimit.Store, also through package fallback, take one round trip, and a denial one more. On
// strategies of weir it allocates nothing, for up to four asks.
func Decide(ctx context.Context, asks ...weir.Ask) (out weir.Outcome, err error) {
	if decideFew(ctx, asks, &out) {
		return out, nil
	}
	l := getAttempts(len(asks))
	defer putAttempts(l)
	for i := range asks {
		(*l)[i].ask(asks[i].Strategy, &asks[i].Request)
		(*l)[i].Op.Full = true
	}
	if err := check(*l); err != nil {
		return out, err
	}
	if err := l.decide(ctx); err != nil {
		return out, err
	}
	return l.outcome(ctx), nil
}

// decideFew is Decide of few Limits on slots of one Limiter. False means that Decide is to go on.
func decideFew(ctx context.Context, asks []weir.Ask, out *weir.Outcome) bool {
	if len(asks) > fewLimits {
		return false
	}
	f := fews.Get().(*few)
	defer f.put()
	var abouts [fewLimits]*weir.About
	for i := range asks {
		m, isLimit := asks[i].Strategy.(*weir.Limit)
		if !isLimit {
			return false
		}
		c, key := weir.CounterOf(m), asks[i].Request.Key
		a := c.About()
		abouts[i] = a
		if !follows(abouts[0], a) {
			return false
		}
		for j := range i {
			if f.ops[j].Key == key && (abouts[j] == a || abouts[j].Counts == a.Counts) {
				return false // which checkCounts refuses
			}
		}
		f.add(c, a, key, asks[i].Request.Cost, true)
	}
	if !f.take(ctx) {
		return false
	}
	by := f.binding()
	*out = asks[by].Strategy.(*weir.Limit).Outcome(ctx, &f.ops[by])
	return true
}

// check fails if two are on one count, if there is no Strategy, or if two of them cannot give back.
func check(l Attempts) error {
	if err := checkCounts(l); err != nil {
		return err
	}
	first := -1
	for i := range l {
		switch m := &l[i]; {
		case m.about == nil:
			return fmt.Errorf("limits: ask %d has no Strategy: %w", i, errors.ErrUnsupported)
		case m.turn == last && first >= 0:
			return fmt.Errorf("limits: two strategies decide last: %w", l[first].unsupported("refund"))
		case m.turn == last:
			first = i
		}
	}
	return nil
}

// pooled are Attempts for one decision.
var pooled = sync.Pool{New: func() any { l := make(Attempts, 0, 4); return &l }}

func getAttempts(n int) *Attempts {
	l := pooled.Get().(*Attempts)
	*l = slices.Grow(*l, n)[:n]
	return l
}

func putAttempts(l *Attempts) {
	clear(*l)
	*l = (*l)[:0]
	pooled.Put(l)
}
