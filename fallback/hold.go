package fallback

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirgo/weir"
)

// place is work in flight: a place of primary, of local, or of both.
type place struct {
	f       *Fallback
	request weir.Request
	local   weir.Place // nil: none

	calls sync.Mutex // held for each call of primary, which may outlast the wait for it

	mu       sync.Mutex
	primary  weir.Place // guarded by mu; nil: none. Changes with calls held
	released bool       // guarded by mu; primary gives the place back
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
	p := &place{f: f, request: *r}
	v := f.visit(r, time.Time{})
	defer v.end()
	res, err := v.call(ctx, p.renew)
	source := FromPrimary
	switch {
	case err == nil && res.Allowed():
		var here *weir.Result
		here, p.local, _ = f.local.Acquire(ctx, r)
		// an error, as without room, is not for the caller: local admits nobody else either
		if here != nil && !here.Allowed() && !f.cfg.OwnLimits {
			_ = p.Release(ctx)
			res, source = here, FromLocal
		}
	case err != nil:
		if p.release() { // primary has admitted it after all, at the same time
			_ = p.Release(ctx)
		}
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
	p.calls.Lock()
	defer p.calls.Unlock()
	held := p.primary
	switch {
	case p.keep(held):
		err = errors.ErrUnsupported
	case held == nil:
		var taken weir.Place
		if res, taken, err = v.primary.Acquire(ctx, v.r); err == nil && res.Allowed() {
			held = taken
		}
	default:
		var still bool
		res = new(weir.Result)
		if still, err = held.Renew(ctx); still {
			res.State = weir.Allow
		}
	}
	if p.keep(held) && held != nil {
		p.keep(nil)
		err = held.Release(ctx)
	}
	return res, err
}

// keep notes what primary holds, and reports whether it is to be given back.
func (p *place) keep(held weir.Place) (released bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.primary = held
	return p.released
}

// release has a call of primary that is under way, and later ones, give the place back. It reports
// whether primary holds it by now.
func (p *place) release() (held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
	return p.primary != nil
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
	p.release()
	v := p.f.visit(&p.request, time.Time{})
	defer v.end()
	return cmp.Or(err, v.send(ctx, p.renew))
}
