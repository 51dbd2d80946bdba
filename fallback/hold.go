package fallback

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/weirgo/weir"
)

// place is work in flight: a place of primary, of local, or of both.
type place struct {
	f       *Fallback
	request weir.Request
	local   *weir.Op // that took it; nil: none

	// calls has room for one: the call of primary under way, which may outlast the wait for it. What
	// follows is that one's.
	calls    chan struct{}
	primary  *weir.Op // nil: none
	released bool
}

func newPlace(f *Fallback, r *weir.Request) *place {
	return &place{f: f, request: *r, calls: make(chan struct{}, 1)}
}

// acquire takes a place of c, and returns the op that has taken it, unless it was denied.
func acquire(
	ctx context.Context, c weir.Counter, r *weir.Request,
) (res *result, held *weir.Op, err error) {
	op := &weir.Op{Counter: c, Verb: weir.OpHold, Request: *r}
	c.Do(ctx, []*weir.Op{op})
	if op.Err != nil {
		return nil, nil, op.Err
	}
	res = &result{Result: op.Result}
	if res.Allowed() {
		held = op
	}
	return res, held, nil
}

// change renews or releases the place that op has taken.
func change(ctx context.Context, op *weir.Op, verb weir.Verb) error {
	op.Verb = verb
	op.Counter.Do(ctx, []*weir.Op{op})
	return op.Err
}

// hold does an OpHold, if primary and local do: primary admits, or local when primary cannot, as
// for an OpTake. The cost that primary admits is held in local too, which denies if all of the
// limit is in flight in this instance: primary does not know the admissions of local. That is taken
// there with its next renewal once primary answers again, and is lost if it has no room. A release
// that primary does not receive takes effect when the lease ends.
func hold(ctx context.Context, f *Fallback, op *weir.Op) error {
	op.Source, op.Left, op.FullAt, op.Receipt = weir.Nowhere, 0, time.Time{}, weir.Receipt{}
	if err := f.validate(ctx, &op.Request); err != nil {
		return err
	}
	r := op.Request
	p := newPlace(f, &r)
	v := f.visit(&r, time.Time{})
	defer v.end()
	res, err := v.call(ctx, p.renew)
	source := weir.FromPrimary
	switch {
	case err == nil && res.Allowed() && f.local != nil:
		here, local, _ := acquire(ctx, f.local, &r)
		// an error, as without room, is not for the caller: local admits nobody else either
		p.local = local
		if here != nil && !here.Allowed() && !f.cfg.OwnLimits {
			_ = p.release(ctx)
			res, source = here, weir.FromLocal
		}
	case err == nil:
	default:
		if v.late != nil { // primary may admit it after all
			go func(p *place) { _ = p.release(context.WithoutCancel(ctx)) }(p)
		}
		source = weir.Nowhere
		if err != errUndecided {
			break
		}
		p = newPlace(f, &r)
		res, source, err = v.locally(func(own shared) (res *result, err error) {
			res, p.local, err = acquire(ctx, f.local, own.r)
			return res, err
		})
	}
	if err != nil {
		return err
	}
	op.Result, op.Source = res.Result, source
	if res.Allowed() {
		op.Receipt = weir.Receipt{Cost: costOf(&r), Of: p}
	}
	return nil
}

// renew has primary hold the place: it renews the one that primary has admitted, or takes one. If
// the place was released the error is errors.ErrUnsupported, which is no call.
func (p *place) renew(v *visit, ctx context.Context) (res *result, err error) {
	p.calls <- struct{}{}
	defer func() { <-p.calls }()
	switch {
	case p.released:
		return nil, errors.ErrUnsupported
	case p.primary == nil:
		var held *weir.Op
		res, held, err = acquire(ctx, v.f.primary, v.r)
		if held != nil {
			p.primary = held
		}
		return res, err
	}
	res = new(result)
	err = change(ctx, p.primary, weir.OpRenew)
	if err == nil {
		res.State = p.primary.Result.State
	}
	return res, err
}

// giveBack has primary take back the held cost, after a call that is under way. If that is nothing,
// the error is errors.ErrUnsupported.
func (p *place) giveBack(_ *visit, ctx context.Context) (*result, error) {
	p.calls <- struct{}{}
	defer func() { <-p.calls }()
	held := p.primary
	p.primary, p.released = nil, true
	if held == nil {
		return nil, errors.ErrUnsupported
	}
	return nil, change(ctx, held, weir.OpRelease)
}

// renew does an OpRenew. While primary does not answer, the place is held by local.
func renew(ctx context.Context, f *Fallback, op *weir.Op) error {
	p, ok := op.Receipt.Of.(*place)
	if !ok {
		return op.Unsupported(f.about)
	}
	v := f.visit(&p.request, time.Time{})
	defer v.end()
	res, err := v.call(ctx, p.renew)
	switch {
	case err != nil:
		return err
	case !res.Allowed() && p.local != nil:
		err, p.local = change(ctx, p.local, weir.OpRelease), nil
	}
	op.Result = weir.Result{State: res.State}
	return err
}

// release does an OpRelease.
func release(ctx context.Context, op *weir.Op) error {
	p, ok := op.Receipt.Of.(*place)
	if !ok {
		return nil
	}
	return p.release(ctx)
}

func (p *place) release(ctx context.Context) (err error) {
	if p.local != nil {
		err = change(ctx, p.local, weir.OpRelease)
	}
	v := p.f.visit(&p.request, time.Time{})
	defer v.end()
	return cmp.Or(err, v.send(ctx, p.giveBack))
}
