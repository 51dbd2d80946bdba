package weir

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Ask is one limit that a request is held against.
type Ask struct {
	Strategy Strategy
	Request  Request
}

// Decision is the decision on all asks of a [Decide].
type Decision struct {
	// Result is that of the Ask that binds: of a denial, the one that lasts longest; of an admission,
	// the one with the least left of its limit or burst ([Tiers], which have several, are not compared).
	Result

	// By is the place of that Ask, from 0; -1 without asks.
	By int

	// Each is the Result of each Ask. If the request is denied, the TotalRequests of those that would
	// have admitted it are without its Cost; the Result is zero of a Strategy that cannot peek, and was
	// not run.
	Each []Result
}

// Decide admits a request if every Ask is admitted; otherwise nothing is taken anywhere. Asks may be
// on different keys, strategies, limits and costs: a user and his organisation, requests and tokens.
//
//	d, err := weir.Decide(ctx,
//		weir.Ask{s, weir.Request{Key: weir.JoinKey("user", user), Limit: 10, Duration: time.Second}},
//		weir.Ask{s, weir.Request{Key: weir.JoinKey("org", org), Limit: 1000, Duration: time.Minute}},
//	)
//
// If a Strategy fails, so does Decide, and what was taken is given back; the error says so if that
// fails too. It fails with [errors.ErrUnsupported] if two strategies cannot give back: only one can
// decide last. Without asks the request is admitted.
//
// It is not one atomic step, and [Limits.Take] says what can happen between its steps: a request that
// is denied in the end may cost another one its admission; never are too many admitted. Asks on one
// redislimit.Store, also through package fallback, take one round trip, and a denial one more. On
// strategies of this package it allocates Each only, for up to four asks.
func Decide(ctx context.Context, asks ...Ask) (Decision, error) {
	w := getWork(len(asks))
	defer w.put()
	for i := range asks {
		if asks[i].Strategy == nil {
			return Decision{}, fmt.Errorf("weir: ask %d has no Strategy: %w", i, errors.ErrUnsupported)
		}
		w.bounds[i] = bindLeaf(asks[i].Strategy)
		w.set(i, &w.bounds[i], &asks[i].Request)
	}
	if err := w.limits.decide(ctx); err != nil {
		return Decision{}, err
	}
	d := Decision{Result: Result{State: Allow}, By: w.limits.Binding(), Each: make([]Result, len(asks))}
	for i := range w.limits {
		d.Each[i] = w.limits[i].Result
	}
	if d.By >= 0 {
		d.Result = d.Each[d.By]
	}
	return d, nil
}

// decide is Take, which fails if what was denied could not be given back.
func (l Limits) decide(ctx context.Context) error {
	var irrevocable *Limit
	for i := range l {
		m := &l[i]
		switch {
		case m.turn != last:
		case irrevocable != nil:
			return fmt.Errorf("weir: %s and %s cannot both decide last: %w", irrevocable.name(), m.name(), errors.ErrUnsupported)
		default:
			irrevocable = m
		}
	}
	if _, err := l.Take(ctx, nil); err != nil {
		return err
	}
	return l.Lost()
}

// work is the memory of one decision.
type work struct {
	limits Limits
	bounds []bound // of Decide
}

var works = sync.Pool{New: func() any { return &work{make(Limits, 0, 4), make([]bound, 0, 4)} }}

func getWork(n int) *work {
	w := works.Get().(*work)
	if cap(w.limits) < n {
		w.limits, w.bounds = make(Limits, n), make([]bound, n)
	}
	w.limits, w.bounds = w.limits[:n], w.bounds[:n]
	return w
}

func (w *work) put() {
	clear(w.limits)
	clear(w.bounds)
	works.Put(w)
}

func (w *work) set(i int, b *bound, r *Request) {
	w.limits[i].bound, w.limits[i].Request = b, b.request(r)
}
