package renewal

import (
	"context"
	"sync"
	"time"
)

// Place is weir.Place.
type Place interface {
	Renew(ctx context.Context) (held bool, err error)
	Release(ctx context.Context) error
}

// Kept is a Place that is renewed until it is released. Start begins that.
type Kept struct {
	item  Item
	group any
	of    *renewer
	lease time.Duration
	lost  chan struct{}

	mu    sync.Mutex // held for each call of place
	place Place      // nil once it is released or lost
}

// renewer renews the places of one group.
type renewer struct {
	Renewer
	places int // not released; guarded by the Mutex of renewers
}

// renewers are those that have places.
var renewers = struct {
	sync.Mutex
	of map[any]*renewer // by group; guarded by the Mutex
}{of: make(map[any]*renewer)}

// Renewers returns how many there are, for tests: one for each group that has places.
func Renewers() int {
	renewers.Lock()
	defer renewers.Unlock()
	return len(renewers.of)
}

// Start renews p three times in each lease, by the Renewer of its group; of nil: by one of its own.
func (k *Kept) Start(group any, lease time.Duration, p Place) {
	k.group, k.lease, k.place, k.lost = group, lease, p, make(chan struct{})
	renewers.Lock()
	defer renewers.Unlock()
	k.of = renewers.of[group]
	if k.of == nil {
		k.of = new(renewer)
		if group != nil {
			renewers.of[group] = k.of
		}
	}
	k.of.places++
	counts.held.Add(1)
	k.of.Add(&k.item, k, k.renewAfter(3))
}

// renewAfter returns one part of so many of the lease.
func (k *Kept) renewAfter(parts time.Duration) time.Duration {
	return max(time.Millisecond, k.lease/parts)
}

// Lost returns a channel that is closed when the place is lost.
func (k *Kept) Lost() <-chan struct{} { return k.lost }

// Call renews the place, and returns when to do so again: sooner after an error.
func (k *Kept) Call() (again time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.place == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), k.renewAfter(3))
	defer cancel()
	switch held, err := k.place.Renew(ctx); {
	case err != nil:
		return k.renewAfter(12)
	case !held:
		k.ended()
		counts.lapsed.Add(1)
		close(k.lost)
		return 0
	}
	return k.renewAfter(3)
}

// ended notes that there is no place any more. mu is held.
func (k *Kept) ended() {
	k.place = nil
	counts.held.Add(-1)
}

// Release releases the place, unless it is lost, once a call has ended that renews it. It is called
// once.
func (k *Kept) Release(ctx context.Context) (err error) {
	k.mu.Lock()
	if k.place != nil {
		err = k.place.Release(ctx)
		k.ended()
	}
	k.mu.Unlock()
	k.of.Remove(&k.item)
	renewers.Lock()
	defer renewers.Unlock()
	k.of.places--
	if k.of.places == 0 && k.group != nil {
		delete(renewers.of, k.group)
	}
	return err
}
