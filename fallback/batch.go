package fallback

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir"
)

// Store implements weir.Batcher: the calls of Fallbacks go together if those of their primaries do.
func (f *Fallback) Store() (store any, of weir.Strategy) {
	if f.store == nil {
		return f, f
	}
	return sameStore{f.store}, f
}

type sameStore struct{ primaries any }

// Batch implements weir.Batcher. Each limit is decided as by RunSource, which its Source names, or given
// back as by Refund; but the calls of the primaries are one: it is made once each of them is needed, or
// its Fallback does without.
func (f *Fallback) Batch(ctx context.Context, op weir.Op, limits []*weir.Limit) {
	if f.store == nil || len(limits) == 1 || op != weir.OpRun && op != weir.OpRefund {
		for _, l := range limits {
			one := l.Strategy().(*Fallback)
			one.one(ctx, op, l, &one.ways)
		}
		return
	}
	m := meeting{make(chan *weir.Limit, len(limits)), make(chan struct{})}
	var all sync.WaitGroup
	for _, l := range limits {
		all.Go(func() { m.attend(ctx, op, l) })
	}
	var met []*weir.Limit
	for range limits {
		if l := <-m.coming; l != nil {
			met = append(met, l)
		}
	}
	if len(met) > 0 {
		go f.callTogether(context.WithoutCancel(ctx), op, met, m.over)
	}
	all.Wait()
}

// callTogether makes one call of primaries, and closes over when it has ended.
func (f *Fallback) callTogether(ctx context.Context, op weir.Op, limits []*weir.Limit, over chan struct{}) {
	defer close(over)
	ctx, cancel := f.deadlines.Within(ctx)
	defer cancel()
	if err := f.safely(func() error {
		limits[0].Strategy().(weir.Batcher).Batch(ctx, op, limits)
		return nil
	}); err != nil {
		for _, l := range limits {
			l.Err = err
		}
	}
}

// meeting is where the calls of several primaries become one.
type meeting struct {
	coming chan *weir.Limit // of primary, once from each that attends; nil: it does without
	over   chan struct{}    // closed when the call has ended
}

// attend makes the call of op for l, and that of its primary in the meeting.
func (m meeting) attend(ctx context.Context, op weir.Op, l *weir.Limit) {
	var settled atomic.Bool
	settle := func(as *weir.Limit) bool {
		first := !settled.Swap(true)
		if first {
			m.coming <- as
		}
		return first
	}
	defer settle(nil)
	one := l.Strategy().(*Fallback)
	by := one.ways
	by.refund = func(ctx context.Context, r *weir.Request, res *weir.Result) error {
		of := weir.NewLimit(one.primary.Strategy)
		of.Request, of.Result = *r, *res
		if !settle(&of) {
			return context.Canceled // its caller has given up
		}
		select {
		case <-m.over:
			*res = of.Result
			return of.Err
		case <-ctx.Done(): // the call goes on
			return ctx.Err()
		}
	}
	by.run = func(ctx context.Context, r *weir.Request) (*weir.Result, error) {
		res := new(weir.Result)
		return res, by.refund(ctx, r, res)
	}
	one.one(ctx, op, l, &by)
}

// one makes the call of op for l.
func (f *Fallback) one(ctx context.Context, op weir.Op, l *weir.Limit, by *ways) {
	var res *weir.Result
	switch op {
	case weir.OpRun:
		var source Source
		res, source, l.Err = f.runSource(ctx, &l.Request, by)
		l.Source = source.String()
	case weir.OpPeek:
		res, l.Err = f.Peek(ctx, &l.Request)
	case weir.OpRefund:
		l.Err = f.refundBy(ctx, &l.Request, &l.Result, by)
	case weir.OpCharge:
		l.Err = f.Charge(ctx, &l.Request)
	}
	if res != nil {
		l.Result = *res
	}
}
