package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weirgo/weir/internal/core/renewal"
	"github.com/weirgo/weir/internal/core/turns"
)

// Wait asks s for an admission of r until s grants one. Denied, it sleeps until the instant that
// the denial names, and asks again. Wait returns how long that took in all, whatever the outcome.
//
// Callers in this process that wait for one limit (equal s, Key, Limit and Duration) queue in order
// of arrival. The first asks s, and the others sleep until those before them are admitted or give
// up. A new caller joins the queue even if s would admit it, so a large cost delays those behind it
// but is not starved by smaller ones. While nobody waits, callers ask s concurrently; a queue asks
// one call at a time, so over a network at most one caller passes in each round trip. Run does not
// queue. Nor do callers whose s cannot be compared with ==: each of them asks for itself, and any
// may be the next. Only their contexts bound how many wait: under more load than s admits, most
// wait until their deadlines.
//
// A queue keeps the rate of s: timers are late, and so a caller who queues is counted as of the
// instant at which it was due, not before its arrival, and at most 100 ms ago. So in a span of one
// Duration as many may return from Wait as s admits in a span that is 100 ms longer. That holds
// where s is in this process and gets ctx, or one made of it; elsewhere, as on Redis, lateness is
// lost, and so is a fixed window that ends meanwhile.
//
// Its error is from s, or from ctx if that ends first. If the deadline of ctx is nearer than the
// instant, or than the one for which the first in the queue waits, Wait returns at once with an
// error that wraps [context.DeadlineExceeded]. A request that can never pass gets one that wraps
// [ErrLimit]: at once too, except behind others with a Cost up to Limit where s cannot [OpPeek]. An
// error counts nothing.
//
// Wait sleeps in real time, so s must not be on a clock that is moved by hand, but may be on that
// of a testing/synctest bubble if all who wait for one limit are in the same one. Where the clock
// of s is behind, or moves in steps, Wait asks again after a millisecond, and then twice as long
// each time, until s admits or names a later instant.
func Wait(ctx context.Context, s Strategy, r *Request) (waited time.Duration, err error) {
	start := time.Now()
	err = waitFor(ctx, s, r)
	return time.Since(start), err
}

func waitFor(ctx context.Context, s Strategy, r *Request) error {
	if m, ok := s.(*Limit); ok && (m.decider().slots != nil || m.decider().inFlight) {
		return waitForHit(ctx, m, r.Key, r.Cost) // which has no use for Meta
	}
	c := CounterOf(s)
	if a := c.About(); a.InFlight {
		return a.Unreleasable(a.Name)
	}
	if turns.Any() {
		return newWaitCaller(ctx, c, r, c.Run).wait(ctx)
	}
	if err := ctx.Err(); err != nil { // s may not look
		return err
	}
	res, err := c.Run(ctx, r)
	if err != nil || res.Allowed() {
		return err
	}
	return newWaitCaller(ctx, c, r, c.Run).waitOn(ctx, res)
}

// Wait waits until a hit of key is admitted, as the function [Wait] does. Where nobody waits, Wait
// costs as much as Take.
func (m *Limit) Wait(ctx context.Context, key string) error { return waitForHit(ctx, m, key, 0) }

func waitForHit(ctx context.Context, m *Limit, key string, cost uint64) error {
	d := m.decider()
	if d.inFlight {
		return m.unreleasable()
	}
	if turns.Any() {
		if queued, _ := turns.Find(newWaitID(d.counter, &Request{Key: key})); queued {
			return newLimitWaiter(ctx, m, key, cost).wait(ctx)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	out, err := m.Take(ctx, key, cost)
	if err != nil || out.Allowed() {
		return err
	}
	denied := out.Result // so that out stays on the stack
	return newLimitWaiter(ctx, m, key, cost).waitOn(ctx, &denied)
}

func newLimitWaiter(ctx context.Context, m *Limit, key string, cost uint64) *waitCaller {
	d := m.decider()
	return newWaitCaller(ctx, d.counter, &Request{Key: key, Cost: cost}, d.counter.Run)
}

// waitCaller is a call of Wait or HoldWait.
type waitCaller struct {
	turns.Caller
	counter Counter
	request *Request
	decide  decideFunc

	holds bool            // of HoldWait: a denial may end before the instant that it names
	freed <-chan struct{} // is closed, or receives, when that may be so
	// the longest pause until the next try, elsewhere than in this process; else 0
	tries time.Duration

	instant time.Time     // the latest that a denial named
	pause   time.Duration // until the next try after that; doubled by each use
	next    time.Time     // when to try again; the zero time means at once
	due     time.Time     // as of when to ask; the zero time means the present, as of HoldWait
}

type decideFunc func(context.Context, *Request) (*Result, error)

func newWaitCaller(ctx context.Context, of Counter, r *Request, decide decideFunc) *waitCaller {
	c := &waitCaller{counter: of, request: r, decide: decide}
	c.Cost, c.Deadline = max(1, r.Cost), turns.NoDeadline
	if deadline, ok := ctx.Deadline(); ok {
		c.Deadline = deadline
	}
	return c
}

func (c *waitCaller) wait(ctx context.Context) error {
	id := newWaitID(c.counter, c.request)
	if admitted, err := c.arrive(ctx, id); admitted || err != nil {
		return err
	}
	return c.queue(ctx, id)
}

// waitOn is wait for a caller who has been denied.
func (c *waitCaller) waitOn(ctx context.Context, denied *Result) error {
	if err := c.denied(denied); err != nil {
		return err
	}
	return c.queue(ctx, newWaitID(c.counter, c.request))
}

// queue waits until c is the first, and then for its admission.
func (c *waitCaller) queue(ctx context.Context, id turns.ID) (err error) {
	c.Join(id)
	defer func() { c.Leave(c.wasDue(err == nil)) }()
	if c.holds {
		renewal.Waited()
	}
	if c.tries > 0 {
		c.freed = c.Woken() // by a release
	}
	switch waited, err := c.Await(ctx); {
	case err != nil:
		return err
	case waited: // its first try is out of date
		c.next, c.instant = time.Time{}, time.Time{}
		if !c.holds {
			c.due = c.Due()
		}
	}
	for admitted := false; !admitted && err == nil; admitted, err = c.ask(ctx, c.decide) {
		if !c.next.IsZero() {
			if !c.holds {
				c.AsksAt(c.next, time.Until(c.next))
			}
			sleep(ctx, time.Until(c.next), c.freed) // if ctx ends it, ask fails
		}
	}
	return err
}

// wasDue returns when c, the first, was due: as of when c was admitted or, having given up, could
// have been, so that the next one loses nothing.
func (c *waitCaller) wasDue(admitted bool) time.Time {
	if admitted || c.holds {
		return c.due
	}
	if now := time.Now(); c.instant.After(now) {
		return now
	}
	return c.instant
}

// arrive asks for c if nobody waits. Behind others c must not be admitted: there arrive only finds
// out whether a cost larger than theirs can pass at all.
func (c *waitCaller) arrive(ctx context.Context, id turns.ID) (admitted bool, err error) {
	queued, largest := turns.Find(id)
	a := c.counter.About()
	limit, peeks := cmp.Or(a.Numbers.Limit, c.request.Limit), a.Verbs.Has(OpPeek)
	overLimit := 0 < limit && limit < c.Cost
	switch {
	case !queued, overLimit && (c.holds || !peeks):
		// The latter is denied, unless the limit is not the request's.
		return c.ask(ctx, c.decide)
	case c.Cost > largest && peeks:
		_, err = c.ask(ctx, c.peek)
		if errors.Is(err, errors.ErrUnsupported) {
			err = nil
		}
		if c.holds {
			c.next = time.Time{} // a peek has not set freed
		}
	}
	return false, err
}

// ask reports whether c is admitted. If c is not, but can be, c.next is when to ask again.
func (c *waitCaller) ask(ctx context.Context, decide decideFunc) (admitted bool, err error) {
	if err := ctx.Err(); err != nil { // the strategy may not look
		return false, err
	}
	asked := c.due
	as := turns.At(ctx, asked)
	res, err := decide(as, c.request)
	if err != nil || res.Allowed() {
		return err == nil, err
	}
	err = c.denied(res)
	if as.Used() && c.due.After(asked) && !c.due.After(time.Now()) {
		c.next = time.Time{} // it is due already
	}
	return false, err
}

// denied sets when to ask again after a denial, and as of when.
func (c *waitCaller) denied(res *Result) error {
	switch {
	case res.ExpiresAt.IsZero() && c.holds: // until something is released
		c.instant, c.pause = time.Now().Add(math.MaxInt64), time.Millisecond
	case res.ExpiresAt.IsZero():
		return fmt.Errorf("%w: a cost of %d can never pass", ErrLimit, c.Cost)
	case res.ExpiresAt.After(c.instant), c.holds && !res.ExpiresAt.Equal(c.instant):
		c.instant, c.pause = res.ExpiresAt, time.Millisecond
	}
	if !c.holds {
		c.due = c.instant
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
	c.next = now.Add(left)
	if c.holds && c.tries == 0 {
		return nil
	}
	return c.Check(c.next)
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
// the most. If possible, tryAgain leaves time for one more try before the deadline.
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

// peek is a decideFunc that counts nothing.
func (c *waitCaller) peek(ctx context.Context, r *Request) (*Result, error) {
	op := &Op{Counter: c.counter, Verb: OpPeek, Request: *r}
	c.counter.Do(ctx, []*Op{op})
	return &op.Result, op.Err
}

// newWaitID returns the limit that r waits for. The Limit is part of the ID: where others take more
// at a higher Limit, a request with a low one may never pass, and must not hold them up.
func newWaitID(c Counter, r *Request) turns.ID {
	a, numbers := c.About(), Tier{r.Limit, r.Duration}
	if a.Bound {
		numbers = a.Numbers
	}
	return turns.ID{Of: a.Counts, Key: r.Key, Limit: numbers.Limit, Duration: numbers.Duration}
}
