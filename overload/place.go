package overload

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/foroverload"
)

// Place is a request that was admitted, and is in flight until Leave, Abandon or Drop, whichever is
// first; later calls do nothing. It is safe for concurrent use.
type Place struct {
	g       *Guard
	held    foroverload.Held // of the caller; without a Slot there is none
	entered int64
	left    atomic.Bool
}

// enter is Enter, which returns p.
func (p *Place) enter(ctx context.Context, g *Guard, caller string, c Class) (*Place, error) {
	if !c.valid() {
		return nil, badClass(c)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if g.places.Closed() {
		return nil, weir.ErrClosed
	}
	before, err := g.take(c)
	if err != nil {
		return nil, err
	}
	p.g = g
	if caller != "" {
		err = p.hold(caller, c, before)
		if err != nil {
			g.inFlight.Add(-1)
			return nil, err
		}
	}
	p.entered = g.read()
	return p, nil
}

// hold counts p for a caller, where so many others are in flight.
func (p *Place) hold(caller string, c Class, inFlight int64) error {
	g, share := p.g, p.g.shareOf(c, inFlight)
	held, holds, err := g.places.Hold(caller, uint64(share))
	switch {
	case errors.Is(err, weir.ErrFull):
		g.unshared.Add(1)
		return nil
	case err != nil:
		return err
	case held.Slot == nil:
		return g.refuse(c, ShareUsed, holds, share)
	}
	p.held = held
	return nil
}

// Leave ends the request, and measures how long it took. After Close of the Limiter nothing is
// measured.
func (p *Place) Leave() {
	if p.left.Swap(true) {
		return
	}
	now, inFlight := p.g.read(), p.end()
	if !p.g.places.Closed() {
		p.g.measure(now, p.entered, inFlight, false)
	}
}

// Abandon ends the request without a proper answer: its client left, or it failed. A proper answer
// would have taken at least as long, so a time above the goal is measured. A shorter time says
// nothing of the service.
func (p *Place) Abandon() {
	if p.left.Swap(true) {
		return
	}
	now, inFlight := p.g.read(), p.end()
	switch {
	case p.g.places.Closed():
	case p.g.learner.exceeds(now - p.entered):
		p.g.measure(now, p.entered, inFlight, true)
	default:
		p.g.drop(p.entered)
	}
}

// Drop ends the request without measuring, where the time says nothing of the service: a stream, or
// a connection that is upgraded.
func (p *Place) Drop() {
	if !p.left.Swap(true) {
		p.end()
		p.g.drop(p.entered)
	}
}

// end gives p back, and returns how many were in flight before.
func (p *Place) end() (inFlight int64) {
	if p.held.Slot != nil {
		p.g.places.Release(p.held)
	}
	return p.g.inFlight.Add(-1) + 1
}
