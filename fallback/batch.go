package fallback

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/wrap"
	"github.com/weirgo/weir/internal/stores/guarded"
	"github.com/weirgo/weir/limits"
)

// Store implements limits.Batcher: the calls of Fallbacks go together if those of their primaries
// do.
func (f *Fallback) Store() (store any, of weir.Strategy) { return f.store, f }

// batched is the Store of Fallbacks on primaries of one Store.
type batched struct{ primaries any }

// Batch implements limits.Batcher. Each limit is decided as by RunSource, which its Source names,
// or peeked at, given back or charged as by the method of op; but the calls of the primaries are
// one: it is made once each of them is needed, or its Fallback does without.
func (f *Fallback) Batch(ctx context.Context, op limits.Op, attempts []*limits.Attempt) {
	if f.store == any(f) || len(attempts) == 1 {
		for _, l := range attempts {
			l.Strategy().(*Fallback).one(ctx, op, l)
		}
		return
	}
	m := meeting{make(chan *limits.Attempt, len(attempts)), make(chan struct{})}
	var all sync.WaitGroup
	var panicked atomic.Pointer[any]
	for _, l := range attempts {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panicked.Store(&p)
				}
			}()
			m.attend(ctx, op, l)
		})
	}
	var met []*limits.Attempt
	for range attempts {
		if l := <-m.coming; l != nil {
			met = append(met, l)
		}
	}
	if len(met) > 0 {
		go m.call(f.server.deadlines.Detached(ctx), op, met)
	}
	all.Wait()
	if p := panicked.Load(); p != nil {
		panic(*p) // of a user's function: the caller may recover, as from a call without others
	}
}

// meeting is where the calls of several primaries become one.
type meeting struct {
	coming chan *limits.Attempt // of primary, once from each that attends; nil: it does without
	over   chan struct{}        // closed when the call has ended
}

// call makes one call of the primaries of limits.
func (m meeting) call(ctx context.Context, op limits.Op, attempts []*limits.Attempt) {
	guarded.Do(func() error {
		attempts[0].Strategy().(limits.Batcher).Batch(ctx, op, attempts)
		return nil
	}, func(err error) {
		for _, l := range attempts {
			l.Err = cmp.Or(err, l.Err)
		}
		close(m.over)
	})
}

// attend makes the call of op for l, and that of its primary in the meeting.
func (m meeting) attend(ctx context.Context, op limits.Op, l *limits.Attempt) {
	var once sync.Once
	settle := func(as *limits.Attempt) (first bool) {
		once.Do(func() { m.coming <- as; first = true })
		return first
	}
	defer settle(nil)
	one := *l.Strategy().(*Fallback)
	one.leave = func() { settle(nil) }
	one.doPrimary = func(
		ctx context.Context, op limits.Op, r *weir.Request, taken *weir.Result,
	) (*weir.Result, error) {
		of := limits.NewAttempt(one.primary.Strategy)
		of.Request = *r
		if taken != nil {
			of.Result = *taken
		}
		if !settle(&of) { // it has left, as its caller has given up, or as primary had missed something
			return one.primary.Do(ctx, op, r, taken)
		}
		select {
		case <-m.over:
		case <-ctx.Done(): // the call goes on
			return nil, ctx.Err()
		}
		if of.Err != nil || op == limits.OpRefund || op == limits.OpCharge {
			return nil, of.Err
		}
		return &of.Result, nil
	}
	one.one(ctx, op, l)
}

// one makes the call of op for l.
func (f *Fallback) one(ctx context.Context, op limits.Op, l *limits.Attempt) {
	var res *weir.Result
	if op == limits.OpRun {
		var source Source
		res, source, l.Err = f.RunSource(ctx, &l.Request)
		l.Source, l.Undecided = source.String(), source == FromOnFail
	} else {
		res, l.Err = wrap.Do(ctx, op, f, &l.Request, &l.Result)
	}
	if res != nil {
		l.Result = *res
	}
}
