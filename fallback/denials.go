package fallback

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// denials keeps primary's denials for as long as they are good: a set-associative cache without a lock. Whoever floods it
// loses his own denials with others', and what is lost costs a question to primary, nothing else.
type denials struct {
	seed maphash.Seed
	skew time.Duration
	sets []set
}

// ways is how many denials a set holds: with one, two attackers of one place would drive each other out for ever.
const ways = 4

// set holds the denials of the callers that hash to it.
type set struct {
	ways [ways]atomic.Pointer[denial]
	// drops counts the drops: a denial that was asked for before one and arrives after it is old.
	drops atomic.Uint64
}

// maxDenials is how many there may be: their places are made at once, at 10 bytes each.
const maxDenials = 1 << 28

// denial is read-only.
type denial struct {
	caller
	limit, cost uint64
	res         weir.Result
	until       time.Time
}

func newDenials(n int, skew time.Duration) *denials {
	return &denials{seed: maphash.MakeSeed(), skew: skew, sets: make([]set, (n+ways-1)/ways)}
}

// set is by key and Duration alone, so that a Reset finds it; nil if nothing is kept.
func (d *denials) set(r *weir.Request) *set {
	if len(d.sets) == 0 {
		return nil
	}
	return &d.sets[(maphash.String(d.seed, r.Key)^uint64(r.Duration))%uint64(len(d.sets))]
}

// find returns a copy of the denial that is good for r, or nil.
func (d *denials) find(r *weir.Request, now time.Time) *weir.Result {
	s := d.set(r)
	if s == nil {
		return nil
	}
	for i := range s.ways {
		kept := s.ways[i].Load()
		if kept.about(r) && kept.limit == r.Limit && kept.cost == cost(r) && now.Before(kept.until) {
			res := kept.res
			return &res
		}
	}
	return nil
}

// about reports whether k is of r's caller.
func (k *denial) about(r *weir.Request) bool {
	return k != nil && k.key == r.Key && k.duration == r.Duration
}

// drops is to be handed to keep with the answer to what is asked from now on.
func (d *denials) drops(r *weir.Request) uint64 {
	if s := d.set(r); s != nil {
		return s.drops.Load()
	}
	return 0
}

// keep keeps res, if it is a denial that is good for a while. An admission ends what is kept for the caller: its figures
// are old.
func (d *denials) keep(r *weir.Request, res *weir.Result, now time.Time, drops uint64) {
	until := res.ExpiresAt.Add(-d.skew)
	s := d.set(r)
	switch {
	case s == nil:
		return
	case res.Allowed():
		d.drop(r)
		return
	case !until.After(now):
		return
	}
	kept := &denial{caller{strings.Clone(r.Key), r.Duration}, r.Limit, cost(r), *res, until}
	way := s.victim(r)
	way.Store(kept)
	// First stored, then looked: a drop that is not seen here sees what was stored.
	if s.drops.Load() != drops {
		way.CompareAndSwap(kept, nil)
	}
}

// victim is where r's denial goes: over the caller's last one, into an empty place, or over the one that ends first.
func (s *set) victim(r *weir.Request) *atomic.Pointer[denial] {
	var first *denial
	way := &s.ways[0]
	for i := range s.ways {
		kept := s.ways[i].Load()
		if kept.about(r) {
			return &s.ways[i]
		}
		if i == 0 || first != nil && (kept == nil || kept.until.Before(first.until)) {
			first, way = kept, &s.ways[i]
		}
	}
	return way
}

// drop forgets what is kept for r's caller, and what is on its way. To be called when there is room again.
func (d *denials) drop(r *weir.Request) {
	s := d.set(r)
	if s == nil {
		return
	}
	s.drops.Add(1)
	for i := range s.ways {
		if kept := s.ways[i].Load(); kept.about(r) {
			s.ways[i].CompareAndSwap(kept, nil)
		}
	}
}
