package redislimit

import (
	"context"
	"math/rand/v2"
	"strconv"

	"github.com/weirgo/weir"
)

// InFlight bounds the work in flight, for weir.Hold. Make one with [Store.InFlight].
type InFlight struct{ Strategy }

// InFlight bounds how much of a caller's work is in flight at one time, in all processes together:
// it is a weir.Holder. Each place is a lease of r.Duration by the server's clock, which weir.Hold
// renews until it is released, so a process that dies gives its places back one Duration after it
// last renewed them. Run takes a lease that nobody renews. It is a sorted set with a member of
// about 40 bytes for each lease. The counterpart of weir's InFlight.
//
// Reset takes all leases back, also of work that is in flight: it is counted again with its next
// renewal, if there is room.
func (s *Store) InFlight() *InFlight {
	return &InFlight{Strategy{store: s, kind: "flight", script: inFlight, protocol: leased{}}}
}

// Store returns the Store, for limits.Batcher.
func (f *InFlight) Store() (store any, of weir.Strategy) { return f.store, f }

// leased is the protocol of an InFlight.
type leased struct{ anchored }

func (leased) ask(args []any, r *weir.Request, n int64) ([]any, bool, error) {
	args, possible, err := anchored{}.ask(args, r, n)
	return append(args, newID("r")), possible, err
}

// newID returns an ID that no other lease has. One with the prefix h is held.
func newID(prefix string) string {
	return prefix + strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36)
}

// place is a lease that is renewed.
type place struct {
	of      *InFlight
	request weir.Request
	id      string
	ends    instant // as far as is known
}

// Acquire implements weir.Holder. If its answer was lost, what it has taken counts for one
// Duration.
func (f *InFlight) Acquire(ctx context.Context, r *weir.Request) (*weir.Result, weir.Place, error) {
	p := &place{of: f, request: *r, id: newID("h")}
	key, args, possible, err := f.prepare(opRun, r, cost(r))
	if err != nil {
		return nil, nil, err
	}
	args[len(args)-1] = p.id
	now := f.store.read()
	v, err := f.store.eval(ctx, f.script, key, at(args, now))
	if err != nil {
		return nil, nil, err
	}
	res, d, err := f.result(r, v, possible, now)
	if err != nil || !res.Allowed() {
		return res, nil, err
	}
	p.ends = d.at
	return res, p, nil
}

// args returns the key and the arguments of a call for the place.
func (p *place) args(op any) (key string, args []any, err error) {
	key, args, _, err = p.of.prepare(op, &p.request, cost(&p.request))
	if err == nil {
		args[len(args)-1] = p.id
		args = append(args, p.ends.s, p.ends.ns)
	}
	return key, args, err
}

// Renew implements weir.Place.
func (p *place) Renew(ctx context.Context) (held bool, err error) {
	key, args, err := p.args("renew")
	if err != nil {
		return false, err
	}
	v, err := p.of.store.eval(ctx, p.of.script, key, at(args, p.of.store.read()))
	if err != nil || v[0] == 0 {
		return false, err
	}
	p.ends = instant{v[2], v[3]}
	return true, nil
}

// Release implements weir.Place. It costs as much as a Refund.
func (p *place) Release(ctx context.Context) error {
	key, args, err := p.args("release")
	if err != nil {
		return err
	}
	return p.of.takeBack(ctx, key, append(args, ""), p.of.store.read())
}
