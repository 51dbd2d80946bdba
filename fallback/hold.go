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
	local   *weir.Op // that took the place; nil: none

	// calls has room for one: the call of primary under way, which may outlast the wait for its
	// end. The fields below are of that call.
	calls    chan struct{}
	primary  *weir.Op // that took the place; nil: none
	released bool
}

func newPlace(f *Fallback, r *weir.Request) *place {
	return &place{f: f, request: *r, calls: make(chan struct{}, 1)}
}

// change has the Counter of op take, renew or release a place.
func change(ctx context.Context, op *weir.Op, verb weir.Verb) error {
	op.Verb = verb
	return by(ctx, op.Counter, op)
}

// hold does an OpHold, if primary and local do: primary admits, or local when primary cannot, as
// for an OpTake. The cost that primary admits is held in local too, which denies if all of the
// limit is in flight in this instance: primary does not know the admissions of local. That is taken
// there with its next renewal once primary answers again, and is lost without room there. A release
// that primary does not receive takes effect when the lease ends.
func hold(ctx context.Context, f *Fallback, op *weir.Op) error {
	op.Source, op.Left, op.FullAt, op.Receipt = weir.Nowhere, 0, time.Time{}, weir.Receipt{}
	if err := f.validate(ctx, &op.Request); err != nil {
		return err
	}
	r := op.Request
	p := newPlace(f, &r)
	v := new(visit).open(f, &r, time.Time{})
	defer v.close()
	res, err := p.takePrimary(ctx, v)
	if err != nil && v.late != nil { // primary may admit it after all
		go func(p *place) { _ = p.release(context.WithoutCancel(ctx)) }(p)
	}
	here := &weir.Op{Counter: f.local, Request: r}
	switch err {
	case nil:
		op.Result, op.Source = *res, weir.FromPrimary
		if !res.Allowed() || f.local == nil {
			break
		}
		// an error, as without room, is not for the caller: local admits nobody else either
		if p.takeLocal(ctx, here) == nil && p.local == nil && !f.cfg.OwnLimits {
			_ = p.release(ctx)
			op.Result, op.Source = here.Result, weir.FromLocal
		}
	case errUndecided:
		p = newPlace(f, &r)
		op.Source, err = v.locally(here, func(shared) error { return p.takeLocal(ctx, here) })
		op.Result = here.Result // none, if local failed
	}
	if err == nil && op.Result.Allowed() {
		op.Receipt = weir.Receipt{Cost: costOf(&r), Of: p}
	}
	return err
}

// takeLocal has local take the place by an op, if that is admitted.
func (p *place) takeLocal(ctx context.Context, op *weir.Op) error {
	err := change(ctx, op, weir.OpHold)
	if err == nil && op.Result.Allowed() {
		p.local = op
	}
	return err
}

// takePrimary has primary take the place, or renew the one that was admitted. If the place was
// released the error is errors.ErrUnsupported, which is no call. The Result is only of a call that
// has ended.
func (p *place) takePrimary(ctx context.Context, v *visit) (*weir.Result, error) {
	res := new(weir.Result)
	err := v.call(ctx, func(ctx context.Context) error {
		p.calls <- struct{}{}
		defer func() { <-p.calls }()
		if p.released {
			return errors.ErrUnsupported
		}
		op, verb := p.primary, weir.OpRenew
		if op == nil {
			op, verb = &weir.Op{Counter: p.f.primary, Request: *v.r}, weir.OpHold
		}
		failed := change(ctx, op, verb)
		if failed == nil && op.Result.Allowed() {
			p.primary = op
		}
		*res = op.Result
		return failed
	})
	return res, err
}

// renew does an OpRenew. While primary does not answer, the place is held by local.
func renew(ctx context.Context, f *Fallback, op *weir.Op) error {
	p, ok := op.Receipt.Of.(*place)
	if !ok {
		return op.Unsupported(f.about)
	}
	v := new(visit).open(f, &p.request, time.Time{})
	defer v.close()
	res, err := p.takePrimary(ctx, v)
	if err != nil {
		return err
	}
	op.Result = weir.Result{State: res.State}
	if !res.Allowed() && p.local != nil {
		err, p.local = change(ctx, p.local, weir.OpRelease), nil
	}
	return err
}

func (p *place) release(ctx context.Context) (err error) {
	if p.local != nil {
		err = change(ctx, p.local, weir.OpRelease)
	}
	v := new(visit).open(p.f, &p.request, time.Time{})
	defer v.close()
	return cmp.Or(err, sent(v.call(ctx, p.giveBack)))
}

// giveBack has primary take back the held cost, after a call that is under way. If that is nothing,
// the error is errors.ErrUnsupported.
func (p *place) giveBack(ctx context.Context) error {
	p.calls <- struct{}{}
	defer func() { <-p.calls }()
	held := p.primary
	p.primary, p.released = nil, true
	if held == nil {
		return errors.ErrUnsupported
	}
	return change(ctx, held, weir.OpRelease)
}
