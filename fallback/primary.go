package fallback

import (
	"context"
	"errors"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/bounds"
)

// operation is one call of primary, for a visit. One that decides nothing returns no result.
type operation func(v *visit, ctx context.Context) (*result, error)

// result is a decision.
type result struct {
	weir.Result
	full time.Time // FullAt of an Op
}

// part is one visit's part of a call of primary, or of the primaries of several.
type part struct {
	v   *visit
	op  *weir.Op // see doTogether
	res *result
	err error // of the call; errUndecided: it goes on, or panicked
	end error // for the caller, or errUndecided; nil: it has ended with res
}

// outcome returns how the call has ended for the caller: with a result, or with an error.
func (p *part) outcome() (*result, error) {
	if p.end != nil {
		return nil, p.end
	}
	return p.res, nil
}

// ended records the end of the call, and returns its error for the caller.
func (p *part) ended(took time.Duration, err error) error {
	s := p.v.f.server
	err = s.counted(err)
	s.called(took, err)
	return s.judge(p.v.judge, err, s.cfg.Now())
}

// outlast begins a call that may outlast the visit.
func (p *part) outlast(hurried bool) {
	v, r := p.v, *p.v.r
	v.hurried, v.late, v.r = hurried, new(pending), &r // the caller may reuse its request
	v.a.users.Add(1)                                   // the account stays until the call has ended
	p.err = errUndecided
}

// outlasted ends such a call.
func (p *part) outlasted(ctx context.Context) {
	defer p.v.end()
	p.v.late.res = p.res
	counted := p.err == nil && (p.res == nil || p.res.Allowed())
	p.v.settle(ctx, known{ended: true, counted: counted})
}

// late is ended of such a call, which has ended for the caller, at Timeout at the latest, with err
// or with the result of the part.
func (p *part) late(took time.Duration, err error) error {
	if err == nil {
		err = p.err
	}
	err = p.ended(took, err)
	p.v.settle(context.Background(), known{ended: true}) // nothing once outlasted
	return err
}

// sent returns the error of a change that may be lost.
func sent(err error) error {
	if err == errUndecided {
		return nil
	}
	return supported(err)
}

// pending is a call of primary that may outlast the wait of its caller, for whom local then
// decides. An admission of local is a debt only if primary has not counted the request in time.
// That is known when the call ends.
type pending struct {
	res *result // read only if the call has ended without an error

	// Guarded by the account's mu.
	known
	cost  uint64    // that local has admitted meanwhile, or 0
	until time.Time // when that counts no more
}

// known are the facts of a pending call: that it has ended, that primary has counted the
// request, and that its caller was denied or has left.
type known struct{ ended, counted, unused bool }

// inTime reports whether primary has counted the request in the window of w in which local admitted
// it, or in one that counts there as in a SlidingWindow, and not in the one before. Three quarters
// are less than any window of a Calendar, and more than most of the time that is unknown before the
// first answer.
func (p *pending) inTime(w *windows, length time.Duration) bool {
	return p.counted && (w == nil || w.sliding || p.res == nil ||
		p.until.Sub(p.res.ExpiresAt) < length/4*3)
}

// by does an op by c.
func by(ctx context.Context, c weir.Counter, op *weir.Op) error {
	was := op.Counter
	op.Counter = c
	c.Do(ctx, []*weir.Op{op})
	op.Counter = was
	return op.Err
}

// supported returns err, or nil if that is of an op that a Counter cannot do.
func supported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, bounds.ErrNothing) {
		return nil
	}
	return err
}

// refused reports whether err depends on the request alone: it is for the caller, and says nothing
// of the server.
func refused(err error) bool {
	return err != nil && supported(err) == nil ||
		errors.Is(err, weir.ErrID) || errors.Is(err, weir.ErrScale) || errors.Is(err, weir.ErrLimit)
}

// probe has primary decide on a request of a probe, after it was warmed up. Its key is new, so that
// primary must write to admit it: a server that can only be read is not healthy.
func probe(
	ctx context.Context, primary weir.Counter, key string,
) (called time.Time, err error) {
	r := &weir.Request{Key: key, Limit: 1 << 40, Duration: time.Second}
	called = time.Now()
	err = supported(by(ctx, primary, &weir.Op{Verb: weir.OpWarm, Request: *r}))
	if err == nil {
		called = time.Now()
		_, err = primary.Run(ctx, r)
	}
	return called, err
}
