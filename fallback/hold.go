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
	local   weir.Place // nil: none

	// calls has room for one: the call of primary under way, which may outlast the wait for it. What
	// follows is that one's.
	calls    chan struct{}
	primary  weir.Place // nil: none
	released bool
}

// Acquire implements weir.Holder, for weir.Hold, if primary and local do: primary admits, or local
// when primary cannot, as Run has it. What primary admits is held in local too, which denies if all
// of the limit is in flight in this instance: primary does not know what local has admitted. That
// is taken there with its next renewal once primary answers again, and is lost if it has no room. A
// Release that primary does not receive takes effect when the lease ends.
func (f *Fallback) Acquire(ctx context.Context, r *weir.Request) (*weir.Result, weir.Place, error) {
	if err := f.validate(ctx, r); err != nil {
		return nil, nil, err
	}
	p := &place{f: f, request: *r, calls: make(chan struct{}, 1)}
	v := f.visit(r, time.Time{})
	defer v.end()
	res, err := v.call(ctx, p.renew)
	source := FromPrimary
	switch {
	case err == nil && res.Allowed():
		here, local, _ := f.local.Acquire(ctx, r)
		// an error, as without room, is not for the caller: local admits nobody else either
		p.local = local
		if here != nil && !here.Allowed() && !f.cfg.OwnLimits {
			_ = p.Release(ctx)
			res, source = here, FromLocal
		}
	case err != nil:
		if v.late != nil { // primary may admit it after all
			go func(p *place) { _ = p.Release(context.WithoutCancel(ctx)) }(p)
		}
		source = Nobody
		if err != errUndecided {
			break
		}
		p = &place{f: f, request: *r, calls: make(chan struct{}, 1)}
		res, source, err = v.locally(func(own *weir.Request, _ uint64) (res *weir.Result, err error) {
			res, p.local, err = f.local.Acquire(ctx, own)
			return res, err
		})
	}
	f.decided[source].Add(1)
	if err != nil || !res.Allowed() {
		return res, nil, err
	}
	return res, p, nil
}

// renew has primary hold the place: it renews the one that primary has admitted, or takes one. If
// the place was released the error is errors.ErrUnsupported, which is no call.
func (p *place) renew(v *visit, ctx context.Context) (res *weir.Result, err error) {
	p.calls <- struct{}{}
	defer func() { <-p.calls }()
	switch {
	case p.released:
		return nil, errors.ErrUnsupported
	case p.primary == nil:
		var held weir.Place
		res, held, err = v.primary.Acquire(ctx, v.r)
		if err == nil && res.Allowed() {
			p.primary = held
		}
	default:
		var held bool
		res = new(weir.Result)
		held, err = p.primary.Renew(ctx)
		if held {
			res.State = weir.Allow
		}
	}
	return res, err
}

// giveBack has primary take back what it holds, after a call that is under way. If that is nothing,
// the error is errors.ErrUnsupported.
func (p *place) giveBack(_ *visit, ctx context.Context) (*weir.Result, error) {
	p.calls <- struct{}{}
	defer func() { <-p.calls }()
	held := p.primary
	p.primary, p.released = nil, true
	if held == nil {
		return nil, errors.ErrUnsupported
	}
	return nil, held.Release(ctx)
}

// Renew implements weir.Place. While primary does not answer, the place is held by local.
func (p *place) Renew(ctx context.Context) (held bool, err error) {
	v := p.f.visit(&p.request, time.Time{})
	defer v.end()
	res, err := v.call(ctx, p.renew)
	switch {
	case err != nil:
		return false, err
	case !res.Allowed() && p.local != nil:
		err, p.local = p.local.Release(ctx), nil
	}
	return res.Allowed(), err
}

// Release implements weir.Place.
func (p *place) Release(ctx context.Context) (err error) {
	if p.local != nil {
		err = p.local.Release(ctx)
	}
	v := p.f.visit(&p.request, time.Time{})
	defer v.end()
	return cmp.Or(err, v.send(ctx, p.giveBack))
}
