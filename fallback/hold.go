package fallback

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// place is work in flight: a place of primary, of local, or of both.
type place struct {
	f        *Fallback
	request  weir.Request
	local    weir.Place  // nil: none
	released atomic.Bool // set before mu is locked to release primary

	mu      sync.Mutex // held for each call of primary, which may outlast the wait for it
	primary weir.Place // nil: none
}

// Acquire implements weir.Holder, for weir.Hold, if primary and local do: primary admits, or local
// when primary cannot, as Run has it. What primary admits is held in local too, whatever its limit.
// A place that primary does not know is taken there as soon as it answers again, and is lost if it
// has no room. A Release that primary does not receive takes effect when the lease ends.
func (f *Fallback) Acquire(ctx context.Context, r *weir.Request) (*weir.Result, weir.Place, error) {
	if err := f.validate(ctx, r); err != nil {
		return nil, nil, err
	}
	p := &place{f: f, request: *r}
	v := f.visit(r, time.Time{})
	defer v.end()
	res, err := v.call(ctx, p.renew)
	source := FromPrimary
	switch {
	case err == nil && res.Allowed():
		own := *r
		own.Limit = math.MaxUint64
		_, p.local, _ = f.local.Acquire(ctx, &own) // without room there, local admits nobody else either
	case err != nil:
		p.released.Store(true) // an admission of primary comes too late
		source = Nobody
	}
	if err == errUndecided {
		p = &place{f: f, request: *r}
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

// renew renews the place of primary, or takes one if there is none.
func (p *place) renew(v *visit, ctx context.Context) (*weir.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.primary != nil {
		res := new(weir.Result)
		held, err := p.primary.Renew(ctx)
		if held {
			res.State = weir.Allow
		}
		return res, err
	}
	res, held, err := v.primary.Acquire(ctx, v.r)
	if err == nil && res.Allowed() {
		if p.primary = held; p.released.Load() {
			return res, p.give(ctx)
		}
	}
	return res, err
}

// give gives the place of primary back. Without one it is errors.ErrUnsupported, which is no call.
// mu is held.
func (p *place) give(ctx context.Context) error {
	if p.primary == nil {
		return errors.ErrUnsupported
	}
	held := p.primary
	p.primary = nil
	return held.Release(ctx)
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
		err = p.local.Release(ctx)
		p.local = nil
	}
	return res.Allowed(), err
}

// Release implements weir.Place.
func (p *place) Release(ctx context.Context) (err error) {
	if p.local != nil {
		err = p.local.Release(ctx)
	}
	p.released.Store(true)
	v := p.f.visit(&p.request, time.Time{})
	defer v.end()
	return cmp.Or(err, v.send(ctx, func(_ *visit, ctx context.Context) (*weir.Result, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return nil, p.give(ctx)
	}))
}
