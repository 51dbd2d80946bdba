package fallback

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// errCannot: primary was not asked, or could not say. Somebody else must decide. It stays inside the package.
var errCannot = errors.New("fallback: primary cannot decide")

// errTimeout is what the breaker and OnError are told when primary did not answer in time.
var errTimeout = errors.New("fallback: primary did not answer in time")

// errNothing is what they are told of a primary that returns neither a Result nor an error.
var errNothing = errors.New("fallback: primary returned nothing")

// question is what is asked of primary: Run for r, once what it must know of r's caller has been told.
type question func(ctx context.Context, t ticket) (*weir.Result, error)

// ask has primary decide on r. The error is errCannot, or for the caller.
func (f *Fallback) ask(ctx context.Context, r *weir.Request, w patience) (*weir.Result, error) {
	q := *r // a probe may outlive the call
	return f.put(ctx, w, func(ctx context.Context, t ticket) (*weir.Result, error) {
		resets, err := f.settle(ctx, &q, t.doubts)
		if err != nil {
			return nil, err
		}
		drops := f.denials.drops(&q)
		res, err := f.primary.Run(ctx, &q)
		if err == nil && res != nil {
			f.denials.keep(&q, res, f.cfg.Now(), drops)
			f.heard(ctx, &q, res, t.doubts, resets)
		}
		return res, err
	})
}

// heard notes an answer of primary's, here and in local, unless the caller was reset since it was asked.
func (f *Fallback) heard(ctx context.Context, r *weir.Request, res *weir.Result, doubts, resets uint64) {
	if !f.note(r, res, doubts, resets) {
		f.warm(ctx, r, res)
	}
}

// note notes an answer of primary's here, if primary can be told of it when it has lost its counts, and reports whether it
// is stale.
func (f *Fallback) note(r *weir.Request, res *weir.Result, doubts, resets uint64) (stale bool) {
	now, c := f.cfg.Now(), caller{r.Key, r.Duration}
	page, a := f.ledger.open(c)
	defer page.mu.Unlock()
	if a == nil && f.seeder != nil {
		a = f.ledger.admit(page, c, now)
	}
	stale = page.stale(a, resets)
	if f.seeder != nil && a != nil && !stale {
		a.learn(r, res, now, f.cfg.Skew)
		a.doubts = max(a.doubts, doubts)
	}
	return stale
}

// put asks primary, if the breaker lets it.
func (f *Fallback) put(ctx context.Context, w patience, q question) (*weir.Result, error) {
	t, ok, change := f.breaker.enter(f.cfg.Now())
	if !ok {
		return nil, errCannot
	}
	f.tell(change)
	if t.probe {
		return f.probe(ctx, t, q, w)
	}
	return f.call(ctx, t, q, w)
}

// patience is how long primary may take.
type patience struct {
	until time.Time
	full  bool // it is all of Timeout: not to answer by then speaks against primary
}

// over goes by the clock and not by a context's error: a socket that has the same deadline may notice it first.
func (w patience) over() bool { return !time.Now().Before(w.until) }

// patience is that of ctx from now on.
func (f *Fallback) patience(ctx context.Context) patience {
	now := time.Now()
	if deadline, ok := ctx.Deadline(); ok {
		if half := deadline.Sub(now) / 2; half < f.cfg.Timeout {
			return patience{now.Add(half), false}
		}
	}
	return patience{now.Add(f.cfg.Timeout), true}
}

// call asks primary and gives the breaker its verdict, exactly once: when the time is up, or before that.
func (f *Fallback) call(ctx context.Context, t ticket, q question, w patience) (*weir.Result, error) {
	bounded, cancel := context.WithDeadline(ctx, w.until)
	defer cancel()
	var judged atomic.Bool
	// Not when q returns: it may not heed its context, and then nobody else must go in.
	stop := context.AfterFunc(bounded, func() {
		if w.full && ctx.Err() == nil && !judged.Swap(true) {
			f.fail(t, errTimeout)
		}
	})
	defer stop()

	res, err := f.shielded(bounded, t, q)
	verdict, err := f.judge(ctx, w, res, err)
	if !judged.Swap(true) {
		verdict(t)
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// judge tells what primary's answer means to the breaker, and the error that ask returns.
func (f *Fallback) judge(ctx context.Context, w patience, res *weir.Result, err error) (func(ticket), error) {
	if err == nil && res == nil {
		err = errNothing
	}
	switch {
	case err == nil:
		return f.succeed, nil
	case errors.Is(err, weir.ErrID), errors.Is(err, weir.ErrScale), errors.Is(err, weir.ErrLimit):
		return f.forgo, err
	case ctx.Err() != nil:
		return f.forgo, fmt.Errorf("fallback: %w", ctx.Err())
	case w.over():
		if !w.full { // the caller had no more time to give
			return f.forgo, errCannot
		}
		return func(t ticket) { f.fail(t, errTimeout) }, errCannot
	case f.cfg.IsDown == nil || f.cfg.IsDown(err):
		return func(t ticket) { f.fail(t, err) }, errCannot
	}
	return func(t ticket) { f.report(err); f.succeed(t) }, errCannot
}

// shielded is q with a panic as an error: a limiter is no reason to lose a request.
func (f *Fallback) shielded(ctx context.Context, t ticket, q question) (res *weir.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			f.stats.panics.Add(1)
			res, err = nil, fmt.Errorf("fallback: primary panicked: %v", p)
		}
	}()
	return q(ctx, t)
}

// answer is what a probe brings back.
type answer struct {
	res *weir.Result
	err error
}

// proof is what a probe asks when primary denies its caller: to deny takes no writing, and a server that can only read must
// not pass for one that is well. It is always admitted, and costs primary one short-lived key.
var proof = weir.Request{Key: "weir/fallback: can you write?", Limit: 1 << 40, Duration: time.Second}

// proving is q, and proof if q is denied.
func (f *Fallback) proving(q question) question {
	return func(ctx context.Context, t ticket) (*weir.Result, error) {
		res, err := q(ctx, t)
		if err != nil || res == nil || res.Allowed() {
			return res, err
		}
		r := proof
		if _, err := f.primary.Run(ctx, &r); err != nil {
			return nil, err
		}
		return res, nil
	}
}

// probe is call in a goroutine of its own, for the breaker stays shut to all others until there is a verdict: neither a
// caller who gives up nor a primary that never returns may be what it waits for.
func (f *Fallback) probe(ctx context.Context, t ticket, q question, w patience) (*weir.Result, error) {
	f.stats.probes.Add(1)
	back := make(chan answer, 1)
	go f.probing(context.WithoutCancel(ctx), t, f.proving(q), back)
	timer := time.NewTimer(time.Until(w.until))
	defer timer.Stop()
	select {
	case a := <-back:
		return a.res, a.err
	case <-timer.C:
		return nil, errCannot
	case <-ctx.Done():
		return nil, fmt.Errorf("fallback: %w", ctx.Err())
	}
}

func (f *Fallback) probing(ctx context.Context, t ticket, q question, back chan<- answer) {
	overdue := time.AfterFunc(2*f.cfg.Timeout, func() { f.breaker.strand(1) })
	res, err := f.call(ctx, t, q, f.patience(ctx))
	if !overdue.Stop() {
		f.breaker.strand(-1)
	}
	back <- answer{res, err}
}

func (f *Fallback) succeed(t ticket) { f.tell(f.breaker.succeed(t, f.cfg.Now())) }
func (f *Fallback) forgo(t ticket)   { f.tell(f.breaker.forgo(t, f.cfg.Now())) }

func (f *Fallback) fail(t ticket, err error) {
	f.stats.failures.Add(1)
	change := f.breaker.fail(t, f.cfg.Now(), err, f.cfg.Rand())
	f.report(err)
	f.tell(change)
}

// report hands an error to OnError, tell a change to OnChange. No lock is held here, and a panic goes no further: the
// goroutine may be nobody's.
func (f *Fallback) report(err error) {
	if f.cfg.OnError != nil {
		f.guarded(func() { f.cfg.OnError(err) })
	}
}

func (f *Fallback) tell(c *Change) {
	if c != nil && f.cfg.OnChange != nil {
		f.guarded(func() { f.cfg.OnChange(*c) })
	}
}

func (f *Fallback) guarded(callback func()) {
	defer func() {
		if recover() != nil {
			f.stats.panics.Add(1)
		}
	}()
	callback()
}
