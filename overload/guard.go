package overload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/foroverload"
)

// Guard admits requests to a service as long as it is not full. Make one with [New]. It is safe for
// concurrent use.
type Guard struct {
	places foroverload.Places
	now    func() time.Time // nil: the clock of places
	parts  [classes]float64
	share  float64

	inFlight atomic.Int64 // at most most[2]
	unshared atomic.Uint64
	refused  [classes][reasons]atomic.Uint64

	// of the limit, stored by setLimit
	most       [classes]atomic.Int64 // how many places each class may fill; the last is the limit
	sharesFrom atomic.Int64          // how many are in flight where shares begin to count

	learner learner
}

// New returns a Guard that counts the places of each caller in l, apart from all others. It fails
// if l is nil, a field of cfg is out of its bounds, or l keeps apart too many limits (see
// [weir.Limit]).
func New(l *weir.Limiter, cfg Config) (*Guard, error) {
	if l == nil {
		return nil, errors.New("overload: the Limiter is nil, want one of weir.New")
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	places, err := foroverload.Of(l)
	if err != nil {
		return nil, fmt.Errorf("overload: cannot count callers: %w", err)
	}
	cfg = cfg.withDefaults()
	g := &Guard{places: places, now: cfg.Now, parts: cfg.Parts, share: cfg.Share}
	g.learner.start(cfg, g.read())
	g.setLimit(g.learner.limit, 0)
	return g, nil
}

// read returns the present.
func (g *Guard) read() int64 {
	if g.now != nil {
		return g.now().UnixNano()
	}
	return g.places.Read()
}

// setLimit has limit count from now on, where this share of the requests is refused. Of a limit
// that is learnt some places are kept for more important requests, however small it is, but no more
// than half. While hardly any request is refused they are for all: a small service would go on to
// refuse for the sake of nobody.
func (g *Guard) setLimit(limit, refused float64) {
	const (
		inexact = 1e-9 // .7 * 10 is less than 7
		kept    = 8.
		many    = .35 // of the requests are refused: all are kept
	)
	whole := math.Ceil(limit)
	for i, part := range g.parts {
		most := part * whole
		if part < 1 && whole < g.learner.most {
			most = min(most, max(whole/2, whole-kept*min(1, refused/many)))
		}
		g.most[i].Store(max(1, int64(most+inexact)))
	}
	g.sharesFrom.Store(int64(whole / 2))
}

// Enter admits a request of caller, who is not shared with others if it is empty. It fails with a
// [*FullError] if that is full, with the error of ctx if that has ended, with [weir.ErrID] for a
// caller of more than 1 KiB, for an unknown Class, and with [weir.ErrClosed] after the Limiter was
// closed. Only a FullError counts as a refusal.
//
// If MaxBuckets of the Limiter are in use, a caller who holds nothing is admitted by the class
// alone; Stats counts that.
//
// Enter is small enough to be inlined: the Place takes no allocation where it does not escape.
// Enter and Leave take three to four times as long as [weir.Hold] and Release.
func (g *Guard) Enter(ctx context.Context, caller string, c Class) (*Place, error) {
	return new(Place).enter(ctx, g, caller, c)
}

// take counts one more in flight, if the class has room, and returns how many were.
func (g *Guard) take(c Class) (before int64, err error) {
	most := g.most[c.index()].Load()
	for {
		before = g.inFlight.Load()
		if before >= most {
			return before, g.refuse(c, ClassFull, before, most)
		}
		if g.inFlight.CompareAndSwap(before, before+1) {
			return before, nil
		}
	}
}

// shareOf returns how much a caller may hold where so many are in flight.
func (g *Guard) shareOf(c Class, inFlight int64) int64 {
	const critical = 3 // requests of a caller that are admitted of any limit of 9 or more
	if inFlight < g.sharesFrom.Load() {
		return math.MaxInt64
	}
	most := g.most[c.index()].Load()
	free := float64(most - inFlight)
	least := int64(1)
	if c == Critical {
		// Callers of equal demand hold as much as a share of the places left, so that every other
		// critical request would be refused where the parts have kept places for it. Of a small
		// limit half the share is one or two places, which a caller at rest needs at once at times.
		free, least = max(free, float64(most)/2), max(1, min(critical, most/critical))
	}
	return max(least, int64(math.Ceil(g.share*free)))
}

// refuse counts a refusal, and returns its error.
func (g *Guard) refuse(c Class, why Reason, inFlight, most int64) error {
	g.refused[c.index()][why].Add(1)
	return &FullError{Class: c, Reason: why, InFlight: int(inFlight), Most: int(most),
		RetryAfter: g.learner.retryAfter()}
}

// allRefused returns how many requests were refused.
func (g *Guard) allRefused() (n uint64) {
	for c := range g.refused {
		for why := range g.refused[c] {
			n += g.refused[c][why].Load()
		}
	}
	return n
}

// measure counts a request that has ended or was abandoned, beside others in flight, and learns
// when a window ends.
func (g *Guard) measure(now, entered, inFlight int64, abandoned bool) {
	f := &g.learner
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &f.window
	w.leave(entered)
	if now < w.begin {
		return
	}
	w.add(now, entered, float64(inFlight))
	if abandoned && entered >= w.changed {
		w.left++
	}
	if !w.over(now, f.goal == 0) && !f.probeFails(now) {
		return
	}
	before, all := f.limit, g.allRefused()
	seen := w.sums(now, all)
	refused := seen.refused / seen.offered()
	f.refusedShare.Store(math.Float64bits(refused))
	f.learn(seen)
	*w = window{begin: now, end: now, last: now, changed: w.changed, old: w.old, refused: all}
	if f.limit != before {
		// The requests in flight were admitted at the limit before.
		w.begin, w.changed, w.old = now+int64(min(2, seen.latency)*1e9), now, float64(inFlight-1)
		w.last = w.begin
	}
	g.setLimit(f.limit, refused)
}

// drop counts a request that has ended, and says nothing of how long one takes.
func (g *Guard) drop(entered int64) {
	f := &g.learner
	f.mu.Lock()
	defer f.mu.Unlock()
	f.window.leave(entered)
}

// Look returns the places that a request of caller would find, and counts nothing. It fails as
// Enter does for a caller or a Class that is bad. An empty caller holds nothing.
func (g *Guard) Look(caller string, c Class) (l Look, err error) {
	if !c.valid() {
		return l, badClass(c)
	}
	inFlight := g.inFlight.Load()
	l = Look{Class: c, InFlight: int(inFlight), Most: int(g.most[c.index()].Load())}
	if caller == "" {
		return l, nil
	}
	if share := g.shareOf(c, inFlight); share < math.MaxInt64 {
		l.Share = int(share)
	}
	holds, err := g.places.Holds(caller)
	l.Holds = int(holds)
	return l, err
}

// Stats returns the present state. Counts are exact; they are not read at one instant.
func (g *Guard) Stats() Stats {
	s := Stats{InFlight: int(g.inFlight.Load()), Limit: int(g.most[Critical.index()].Load()),
		Unshared: g.unshared.Load(), Refused: make(map[Class]map[Reason]uint64, classes)}
	for c := Sheddable; c <= Critical; c++ {
		s.Refused[c] = make(map[Reason]uint64, reasons)
		for why := range Reason(reasons) {
			s.Refused[c][why] = g.refused[c.index()][why].Load()
		}
	}
	f := &g.learner
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Latency, s.Goal = seconds(f.latency), seconds(f.goal)
	s.Throughput, s.State = f.throughput, f.state.String()
	return s
}
