package weir

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weirgo/weir/internal/core/renewal"
	"github.com/weirgo/weir/internal/core/turns"
)

// Wait asks s for an admission of r until it has one. Denied, it sleeps until the instant that the
// denial names, and asks again. It returns how long that took in all, whatever the outcome.
//
// Callers in this process that wait for one limit (equal s, Key, Limit and Duration) queue in order
// of arrival. The first asks s, and the others sleep until those before them are admitted or give
// up. A new caller joins the queue even if s would admit it, so a large cost delays those behind it
// but is not starved by smaller ones. While nobody waits, callers ask s concurrently; a queue asks
// one call at a time, so over a network it passes at most one caller in each round trip. Run does
// not queue. Nor do callers whose s cannot be compared with ==: each of them asks for itself, and
// any may be the next. Only their contexts bound how many wait: under more load than s admits, most
// wait until their deadlines.
//
// Its error is that of s, or of ctx if that ends first. If the deadline of ctx is nearer than the
// instant, or than the one for which the first in the queue waits, Wait returns at once with an
// error that wraps [context.DeadlineExceeded]. A request that can never pass gets one that wraps
// [ErrLimit]: at once too, except behind others with a Cost up to Limit where s is no [Peeker]. An
// error counts nothing.
//
// Wait sleeps in real time, so s must not be on a clock that is moved by hand, but may be on that
// of a testing/synctest bubble if all who wait for one limit are in the same one. Where the clock
// of s is behind, or coarse, Wait asks again after a millisecond, and then twice as long each time,
// until s admits or names a later instant.
func Wait(ctx context.Context, s Strategy, r *Request) (waited time.Duration, err error) {
	start := time.Now()
	if err = unreleasable(s); err != nil {
		return 0, err
	}
	s, r = counting(s, r)
	err = newWaitCaller(ctx, s, r, s.Run).wait(ctx)
	return time.Since(start), err
}

// Wait waits until a hit of key is admitted, as the function [Wait] does.
func (m *Limit) Wait(ctx context.Context, key string) error {
	_, err := Wait(ctx, m, &Request{Key: key})
	return err
}

// waitCaller is a call of Wait or HoldWait.
type waitCaller struct {
	turns.Caller
	strategy Strategy
	request  *Request
	decide   decideFunc

	holds bool            // it is HoldWait: a denial may end before the instant that it names
	freed <-chan struct{} // is closed, or receives, when that may be so
	// the longest pause until the next try, elsewhere than in this process; else 0
	tries time.Duration

	instant time.Time     // the latest that a denial named
	pause   time.Duration // until the next try after that; doubled each time that it is used
	next    time.Time     // when to try again; the zero time means at once
}

type decideFunc func(context.Context, *Request) (*Result, error)

func newWaitCaller(ctx context.Context, s Strategy, r *Request, decide decideFunc) *waitCaller {
	c := &waitCaller{strategy: s, request: r, decide: decide}
	c.Cost, c.Deadline = max(1, r.Cost), turns.NoDeadline
	if deadline, ok := ctx.Deadline(); ok {
		c.Deadline = deadline
	}
	return c
}

func (c *waitCaller) wait(ctx context.Context) error {
	id := newWaitID(c.strategy, c.request).queue()
	if admitted, err := c.arrive(ctx, id); admitted || err != nil {
		return err
	}
	c.Join(id)
	defer c.Leave()
	if c.holds {
		renewal.Waited()
	}
	if c.tries > 0 {
		c.freed = c.Woken() // by what is released
	}
	switch waited, err := c.Await(ctx); {
	case err != nil:
		return err
	case waited:
		c.next, c.instant = time.Time{}, time.Time{} // what its first try found is out of date
	}
	for {
		if !c.next.IsZero() {
			if !c.holds {
				c.AsksAt(c.next, time.Until(c.next))
			}
			sleep(ctx, time.Until(c.next), c.freed) // if ctx ends it, ask fails
		}
		if admitted, err := c.ask(ctx, c.decide); admitted || err != nil {
			return err
		}
	}
}

// arrive asks for c if nobody waits. Behind others c must not be admitted: there it only finds out
// whether a cost larger than theirs can pass at all.
func (c *waitCaller) arrive(ctx context.Context, id any) (admitted bool, err error) {
	queued, largest := turns.Find(id)
	p, peeks := c.strategy.(Peeker)
	overLimit := 0 < c.request.Limit && c.request.Limit < c.Cost
	switch {
	case !queued, overLimit && (c.holds || !peeks): // the latter is denied, unless the limit is not the request's
		return c.ask(ctx, c.decide)
	case c.Cost > largest && peeks:
		if _, err = c.ask(ctx, p.Peek); errors.Is(err, errors.ErrUnsupported) {
			err = nil
		}
		if c.holds {
			c.next = time.Time{} // a peek has not set freed
		}
	}
	return false, err
}

// ask reports whether c is admitted. If it is not, but can be, c.next is when to ask again.
func (c *waitCaller) ask(ctx context.Context, decide decideFunc) (admitted bool, err error) {
	if err := ctx.Err(); err != nil { // the strategy may not look
		return false, err
	}
	res, err := decide(ctx, c.request)
	switch {
	case err != nil || res.Allowed():
		return err == nil, err
	case res.ExpiresAt.IsZero() && c.holds: // until something is released
		c.instant, c.pause = time.Now().Add(math.MaxInt64), time.Millisecond
	case res.ExpiresAt.IsZero():
		return false, fmt.Errorf("%w: a cost of %d can never pass", ErrLimit, c.Cost)
	case res.ExpiresAt.After(c.instant), c.holds && !res.ExpiresAt.Equal(c.instant):
		c.instant, c.pause = res.ExpiresAt, time.Millisecond
	}
	now := time.Now()
	left := c.instant.Sub(now)
	if left <= 0 {
		left = c.pause
		c.pause *= 2
	}
	if c.tries > 0 {
		left = c.tryAgain(now, left)
	}
	if c.next = now.Add(left); c.holds && c.tries == 0 {
		return false, nil
	}
	return false, c.Check(c.next)
}

// sleep returns after d, or as soon as ctx ends or freed receives.
func sleep(ctx context.Context, d time.Duration, freed <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-freed:
	case <-ctx.Done():
	}
}

// tryAgain returns the time until the next try: a random part of a pause that doubles, and left at
// the most. If it can, it leaves time for one more try before the deadline.
func (c *waitCaller) tryAgain(now time.Time, left time.Duration) time.Duration {
	left = min(left, c.tries/2+rand.N(c.tries/2))
	c.tries = min(2*c.tries, maxTry)
	if last := c.Deadline.Sub(now) - minTry; last >= minTry {
		left = min(left, last)
	}
	return left
}

// The pauses between two tries.
const minTry, maxTry = 5 * time.Millisecond, 250 * time.Millisecond

// waitID identifies a limit.
type waitID struct {
	strategy any // its counts; nil: it cannot be compared
	key      string
	limit    uint64
	duration time.Duration
}

// queue identifies the queue of those who wait for it.
func (id waitID) queue() any {
	if id.strategy == nil {
		return nil
	}
	return id
}

// newWaitID returns the limit that r waits for. The Limit is part of it: where others take more at
// a higher Limit, a request with a low one may never pass, and must not hold them up.
func newWaitID(s Strategy, r *Request) waitID {
	s, r = counting(s, r)
	id := waitID{key: r.Key, limit: r.Limit, duration: r.Duration}
	if c := countsOf(s); c.Of != nil {
		id.strategy = c
	}
	return id
}

// counting returns the Strategy that counts for s, and the request that it gets for r.
func counting(s Strategy, r *Request) (Strategy, *Request) {
	for {
		switch of := s.(type) {
		case *Limit:
			q := *r
			q.Limit, q.Duration = of.n, of.d
			s, r = of.Unwrap(), &q
		case keyed:
			s, r = of.strategy, of.request(r)
		default:
			return s, r
		}
	}
}
