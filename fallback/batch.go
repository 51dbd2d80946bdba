package fallback

import (
	"context"
	"sync"

	"github.com/weirgo/weir"
)

// refunder is Refund of primary.
type refunder func(ctx context.Context, r *weir.Request, taken *weir.Result) error

// Store implements weir.Batcher: the calls of Fallbacks go together if those of their primaries do.
func (f *Fallback) Store() (store any, of weir.Strategy) {
	if f.store == nil {
		return f, f
	}
	return sameStore{f.store}, f
}

type sameStore struct{ primaries any }

// Batch implements weir.Batcher. Each limit is decided as by RunSource, which its Source names, or given
// back as by Refund; but the calls of the primaries are one.
func (f *Fallback) Batch(ctx context.Context, op weir.Op, limits []*weir.Limit) {
	if f.store == nil || len(limits) == 1 || op != weir.OpRun && op != weir.OpRefund {
		for _, l := range limits {
			one := l.Strategy().(*Fallback)
			one.one(ctx, op, l, one.primary.Run, one.primary.Refund)
		}
		return
	}
	m := &meeting{f: f, op: op, missing: len(limits), over: make(chan struct{})}
	var all sync.WaitGroup
	for _, l := range limits {
		all.Go(func() {
			one := l.Strategy().(*Fallback)
			p := &participant{meeting: m, limit: weir.NewLimit(one.primary.Strategy)}
			defer p.settle(ctx, false)
			one.one(ctx, op, l, p.run, p.refund)
		})
	}
	all.Wait()
}

// one makes the call of op for l, in which primary decides by run and takes back by refund.
func (f *Fallback) one(ctx context.Context, op weir.Op, l *weir.Limit, run operation, refund refunder) {
	var res *weir.Result
	switch op {
	case weir.OpRun:
		var by Source
		res, by, l.Err = f.runSource(ctx, &l.Request, runs{run, f.local.Run})
		l.Source = by.String()
	case weir.OpPeek:
		res, l.Err = f.Peek(ctx, &l.Request)
	case weir.OpRefund:
		l.Err = f.refundBy(ctx, &l.Request, &l.Result, refund)
	case weir.OpCharge:
		l.Err = f.Charge(ctx, &l.Request)
	}
	if res != nil {
		l.Result = *res
	}
}

// meeting makes one call of the primaries of its participants: once each of them has come to need it, or
// has left, since its Fallback does without.
type meeting struct {
	f    *Fallback
	op   weir.Op
	over chan struct{} // closed when the call has ended

	mu      sync.Mutex
	missing int             // guarded by mu; participants that have neither come nor left
	limits  []*weir.Limit   // guarded by mu; of those that have come
	ctx     context.Context // guarded by mu; of the first that has come
}

type participant struct {
	*meeting
	limit   weir.Limit
	settled bool // guarded by mu; it has come or left
}

// run is Run of primary, in the call of the meeting.
func (p *participant) run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if err := p.meet(ctx, r, new(weir.Result)); err != nil {
		return nil, err
	}
	res := p.limit.Result
	return &res, p.limit.Err
}

// refund is Refund of primary, in the call of the meeting.
func (p *participant) refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	if err := p.meet(ctx, r, taken); err != nil {
		return err
	}
	return p.limit.Err
}

// meet waits for the call of the meeting. After an error the call may still be made.
func (p *participant) meet(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	p.limit.Request, p.limit.Result = *r, *taken
	if !p.settle(ctx, true) {
		return context.Canceled // its caller has given up
	}
	select {
	case <-p.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle notes that p comes or leaves, and makes the call if it was the last one missing. It reports
// false if p has come or left before.
func (p *participant) settle(ctx context.Context, comes bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settled {
		return false
	}
	p.settled = true
	if comes {
		if p.limits = append(p.limits, &p.limit); len(p.limits) == 1 {
			p.ctx = ctx
		}
	}
	if p.missing--; p.missing == 0 && len(p.limits) > 0 {
		go p.call(p.ctx, p.limits)
	}
	return true
}

func (m *meeting) call(ctx context.Context, limits []*weir.Limit) {
	defer close(m.over)
	if err := m.f.safely(func() error {
		limits[0].Strategy().(weir.Batcher).Batch(ctx, m.op, limits)
		return nil
	}); err != nil {
		for _, l := range limits {
			l.Err = err
		}
	}
}
