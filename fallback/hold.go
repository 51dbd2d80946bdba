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
	released atomic.Bool // set before renew gives the place back

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

// renew has primary hold the place: it renews the one that primary has admitted, or takes one. If
// the place was released it gives that back; if there is none, the error is errors.ErrUnsupported,
// which is no call.
func (p *place) renew(v *visit, ctx context.Context) (res *weir.Result, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.released.Load():
		err = errors.ErrUnsupported
	case p.primary == nil:
		var held weir.Place
		if res, held, err = v.primary.Acquire(ctx, v.r); err == nil && res.Allowed() {
			p.primary = held
		}
	default:
		var held bool
		res = new(weir.Result)
		if held, err = p.primary.Renew(ctx); held {
			res.State = weir.Allow
		}
	}
	if held := p.primary; held != nil && p.released.Load() {
		p.primary = nil
		err = held.Release(ctx)
	}
	return res, err
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
	return cmp.Or(err, v.send(ctx, p.renew))
}
