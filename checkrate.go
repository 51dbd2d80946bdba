package weir

import (
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Limiter counts hits in memory. It is safe for concurrent use. CheckRate on a known id waits for no lock, nor for the
// janitor or another caller. Make one with [New], and close it when it is no longer used.
type Limiter struct {
	clock   clock
	room    room
	janitor janitor
	windows windows
	buckets *table[bucket, *bucket]
	closed  atomic.Bool
	done    chan struct{} // closed by Close

	// State that is reused in place has tables of its own, made by the first strategy that needs them.
	tokensOnce, logsOnce, queuesOnce, slicesOnce sync.Once
	tokens                                       *table[arrival, *arrival]
	logs                                         *table[log, *log]
	queues                                       *table[queued, *queued]
	slices                                       *table[slices, *slices]
	tiers                                        tierIDs

	// surplus is how much more the buckets count than there were hits: costs over 1, charges and refunds. Hits
	// themselves are counted nowhere but in the buckets, so that Stats costs a decision nothing.
	surplus                atomic.Int64
	invalid, full, refused atomic.Uint64 // errors
}

// Config says how a [Limiter] keeps its buckets. The zero value is a good one.
type Config struct {
	// MaxBuckets bounds the memory: the number of buckets, of all strategies together, that are kept at one time. It is
	// never exceeded. A bucket takes about 115 bytes, an id up to 20 bytes included, or 145 with one of up to 36;
	// one of a SlidingLog or Tiers grows with what it holds. 0 means 1<<20. When it is reached, buckets that are over are
	// reclaimed at once; if none is, a new id gets [ErrFull], and those known go on. Too small and new callers are
	// refused; too large and a flood of made-up ids takes the memory.
	MaxBuckets int

	// Timeout is how long a bucket is kept after its window is over and it was last modified. It is not needed for
	// counting: it lets Buckets look back, and steps of Now go back, that far. 0 means a minute. Too small
	// does no harm; too large keeps memory.
	Timeout time.Duration

	// SweepEvery is the time between two sweeps. 0 means 10 s. Too small costs a core; too large keeps memory.
	SweepEvery time.Duration

	// Now replaces the clock, for tests and simulations; nil means the monotonic clock. It must be safe for concurrent
	// use. Its wall time counts, from 1678 to 2262. It should not go back: within Timeout the counts of the windows it
	// goes back to are still known, before that they begin anew. Two readings in a row must be able to fall in one window:
	// a decision on a new id takes two. The janitor still wakes by real time; see Sweep.
	Now func() time.Time
}

// New returns a Limiter. It fails if a field of cfg is negative. It starts no goroutine: the janitor starts with the
// first bucket and ends with the last.
//
// Within a testing/synctest bubble, make the limiter in the bubble and close it before the bubble ends.
func New(cfg Config) (*Limiter, error) {
	if cfg.MaxBuckets < 0 || cfg.Timeout < 0 || cfg.SweepEvery < 0 {
		return nil, fmt.Errorf("weir: negative Config: MaxBuckets %d, Timeout %v, SweepEvery %v",
			cfg.MaxBuckets, cfg.Timeout, cfg.SweepEvery)
	}
	l := &Limiter{clock: newClock(cfg.Now), done: make(chan struct{})}
	l.room = room{max: int64(orElse(cfg.MaxBuckets, 1<<20)), janitor: &l.janitor}
	l.janitor = janitor{
		clock:   &l.clock,
		room:    &l.room,
		every:   orElse(cfg.SweepEvery, 10*time.Second),
		timeout: int64(orElse(cfg.Timeout, time.Minute)),
		stop:    make(chan struct{}),
	}
	l.buckets = newTable[bucket](&l.room, func(b *bucket) { b.count.Store(unborn) })
	l.janitor.add(l.buckets)
	return l, nil
}

func orElse[T comparable](v, zero T) T {
	var none T
	if v == none {
		return zero
	}
	return v
}

// CheckRate counts a hit of id, if at most limit are counted in its window, and reports the decision: id may make
// limit hits in each window of scaleMs milliseconds. Windows are aligned to the Unix epoch.
//
// It fails with [ErrID], [ErrScale] or [ErrLimit] for an empty id or one over 1024 bytes, a scale that is not from 1 ms
// to 365 days, or a negative limit; with [ErrFull] if id is new and all buckets are live; with [ErrClosed]. An error
// counts nothing. A limit of 0 denies everything and makes no bucket. A denied hit takes nothing; it is tallied as
// Denied. One id counts separately in each scale; the limit may change from call to call, and what was counted stays.
//
// Of any number of concurrent calls in one window exactly limit are admitted. A call costs a clock read, a hash and a
// compare-and-swap; it allocates for the first hit of an id in a window only: less than 200 bytes, or more for an id
// over 36 bytes.
//
// The algorithm is the fixed window counter of raterlimiter's check_rate/3 (Erlang, 2012). It differs in that the scale
// is part of the key, denied hits are not counted, and limit 0 denies.
func (l *Limiter) CheckRate(id string, scaleMs, limit int64) (r Result, err error) {
	var w *window
	r.State, r.TotalRequests, w, err = l.count(id, scaleMs, limit, 1)
	r.ExpiresAt = w.expires
	return
}

// never is the window of decisions that have none: errors, and demands that can never be met.
var never = new(window)

// count decides by the fixed window. It returns the parts of a Result, which CheckRate, being inlined, puts together
// where they are used: a struct of five words is returned through memory, at 8 ns of 61.
func (l *Limiter) count(id string, scale, limit, cost int64) (State, uint64, *window, error) {
	if !sane(id, scale, limit) {
		return Deny, 0, never, l.fail(badArgs(id, scale, limit))
	}
	for !l.closed.Load() {
		now := l.clock.read()
		w := l.windows.first(now, scale)
		if w == nil {
			w = l.window(now, scale)
		}
		p := l.buckets.place(id, w.salt)
		e := l.buckets.find(p, id, w.period)
		if cost > limit {
			return Deny, l.deny(p, e, w.stamp(now)), never, nil
		}
		if e == nil {
			var err error
			if e, err = l.buckets.insert(p, id, w.period); err != nil {
				return Deny, 0, never, l.fail(err)
			}
		}
		total, ok := e.state.tryTake(cost, limit)
		switch {
		case ok:
			e.state.touch(w.stamp(now))
		case total > limit-cost:
			e.state.deny(w.stamp(now))
		default:
			total, ok = e.state.take(cost, limit, w.stamp(now))
		}
		if total == unborn && l.bear(e, w, math.MinInt64) {
			total, ok = e.state.take(cost, limit, w.stamp(now))
		}
		switch {
		case ok:
			if cost > 1 {
				l.surplus.Add(cost - 1)
			}
			return Allow, uint64(total), w, nil
		case total >= 0:
			return Deny, uint64(total), w, nil
		}
		l.discard(p, e) // reset, or too late to be born: look again
	}
	return Deny, 0, never, l.fail(ErrClosed)
}

// bear makes an unborn bucket live, if the window of its key still runs. It is not before since.
func (l *Limiter) bear(e *entry[bucket], w *window, since int64) bool {
	now := max(l.clock.read(), since)
	if !w.holds(now) {
		return false
	}
	if kindOf(w.scale) == sliding {
		l.unlearn(e)
	}
	e.state.birth(kindOf(w.scale), w.stamp(now))
	return true
}

// unlearn has the window after that of e, which is about to be born, doubt what it has learned: where the clock went
// back, that may be that there is no e.
func (l *Limiter) unlearn(e *entry[bucket]) {
	id, next := e.id(), e.period().plus(1)
	if e := l.buckets.find(l.buckets.place(id, next.salt()), id, next); e != nil {
		e.state.doubt()
	}
}

// deny tallies a demand that can never be met, and returns what is counted.
func (l *Limiter) deny(p place, e *entry[bucket], stamp uint32) (total uint64) {
	if e == nil {
		l.buckets.shard(p).denied.Add(1)
		return 0
	}
	e.state.deny(stamp)
	return uint64(e.state.admitted())
}

// window returns the window of scale that holds now.
func (l *Limiter) window(now, scale int64) *window {
	w := l.windows.at(now, scale)
	if w == nil {
		w = windowAt(now, scale)
		w.expires = l.clock.time(w.lasts())
		l.windows.remember(w, now)
	}
	return w
}

// Inspect returns what id has used in the window of scaleMs that is now. It counts and creates nothing: the Bucket of
// an id without one has Count 0 and the zero Created. It fails as CheckRate does for a bad id or scale.
func (l *Limiter) Inspect(id string, scaleMs int64) (Bucket, error) {
	if err := badArgs(id, scaleMs, 0); err != nil {
		return Bucket{}, l.fail(err)
	}
	if l.closed.Load() {
		return Bucket{}, l.fail(ErrClosed)
	}
	w := l.window(l.clock.read(), scaleMs)
	if e := l.buckets.find(l.buckets.place(id, w.salt), id, w.period); e != nil {
		if b, ok := l.snapshot(e); ok {
			return b, nil
		}
	}
	return Bucket{ID: id, Scale: time.Duration(scaleMs * msec), Number: w.period.number(), Ends: w.expires}, nil
}

func (l *Limiter) snapshot(e *entry[bucket]) (b Bucket, ok bool) {
	count := e.state.count.Load()
	if count < 0 {
		return b, false
	}
	of := e.period()
	return Bucket{
		ID:       e.id(),
		Scale:    time.Duration(of.length() * msec),
		Number:   of.number(),
		Count:    uint64(count),
		Denied:   e.state.denied.Load(),
		Created:  l.clock.time(of.at(e.state.created.Load())),
		Modified: l.clock.time(of.at(e.state.modified.Load())),
		Ends:     l.clock.time(e.state.over(of)),
	}, true
}

// Buckets yields the buckets of CheckRate and FixedWindow that have not been swept, in no order. It sees each one that
// is there throughout; one that comes or goes meanwhile it may or may not see. It holds no lock while it yields, and
// costs about 50 ns a bucket.
func (l *Limiter) Buckets() iter.Seq[Bucket] {
	return func(yield func(Bucket) bool) {
		for e := range l.buckets.all() {
			if e.period().kind() != fixed {
				continue
			}
			if b, ok := l.snapshot(e); ok && !yield(b) {
				return
			}
		}
	}
}

// Reset forgets what id has used in the window of scaleMs that is now. It does nothing for an id without a bucket, and
// fails as Inspect does.
func (l *Limiter) Reset(id string, scaleMs int64) error {
	if err := badArgs(id, scaleMs, 0); err != nil {
		return l.fail(err)
	}
	if l.closed.Load() {
		return l.fail(ErrClosed)
	}
	w := l.window(l.clock.read(), scaleMs)
	p := l.buckets.place(id, w.salt)
	if e := l.buckets.find(p, id, w.period); e != nil {
		l.forget(p, e)
	}
	return nil
}

// forget marks e gone, then removes it: whoever still holds it looks again.
func (l *Limiter) forget(p place, e *entry[bucket]) {
	n := e.state.count.Swap(gone)
	if n <= sealed {
		n = sealed - n
	}
	l.buckets.shard(p).allowed.Add(uint64(max(0, n)))
	l.buckets.remove(p, e)
}

// discard removes an entry that was reset or came too late to be born. It marks it first: another caller, who found the
// window still running a moment ago, may be about to bear it, and would count where nobody looks.
func (l *Limiter) discard(p place, e *entry[bucket]) {
	e.state.count.CompareAndSwap(unborn, gone)
	if e.state.count.Load() == gone {
		l.buckets.remove(p, e)
	}
}

// sound reads r into d, and checks that l is open.
func (l *Limiter) sound(d *demand, r *Request) error {
	err := d.read(r)
	if err == nil && l.closed.Load() {
		err = ErrClosed
	}
	if err != nil {
		return l.fail(err)
	}
	return nil
}

// live returns the bucket of id in w, which it makes if there is none; nil if w has passed meanwhile or the bucket was
// just reset, and the caller is to look again. It is not before since.
func (l *Limiter) live(id string, w *window, since int64) (*entry[bucket], error) {
	p := l.buckets.place(id, w.salt)
	e := l.buckets.find(p, id, w.period)
	if e == nil {
		var err error
		if e, err = l.buckets.insert(p, id, w.period); err != nil {
			return nil, l.fail(err)
		}
	}
	if n := e.state.count.Load(); n == gone || n == unborn && !l.bear(e, w, since) {
		l.discard(p, e)
		return nil, nil
	}
	return e, nil
}

// adjust changes the count of id in the window that is now, and makes the bucket if there is none.
func (l *Limiter) adjust(id string, scale int64, change func(b *bucket, stamp uint32) (moved int64, ok bool)) error {
	for since := int64(math.MinInt64); ; {
		now := max(l.clock.read(), since)
		w := l.window(now, scale)
		e, err := l.live(id, w, since)
		if err != nil {
			return err
		}
		if e == nil {
			continue
		}
		if moved, ok := change(&e.state, w.stamp(now)); ok {
			l.surplus.Add(moved)
			return nil
		}
		if e.state.count.Load() <= sealed {
			since = w.end // the next window has begun, whatever the clock says
		}
	}
}

// Sweep forgets at once what is over and Timeout past, as the janitor does by itself every SweepEvery, and returns how
// many buckets that was. Simulations that set Config.Now call it as their time goes by.
func (l *Limiter) Sweep() int { return l.janitor.sweep() }

// Stats is what a limiter has done since New.
type Stats struct {
	Checks          uint64 // Allowed, Denied and the errors, those of other calls than decisions too
	Allowed, Denied uint64
	Invalid         uint64 // ErrID, ErrScale, ErrLimit
	Full            uint64 // ErrFull
	Closed          uint64 // ErrClosed

	Buckets   int           // kept now, of all strategies
	Swept     uint64        // buckets forgotten
	Sweeps    uint64        // by the janitor and Sweep
	LastSweep time.Duration // how long the last one took, in real time
}

// Stats adds up what the buckets and shards have counted. It is not a snapshot of one instant. It visits every bucket,
// about 20 ns each, so that decisions need not count themselves.
func (l *Limiter) Stats() Stats {
	surplus := l.surplus.Load() // before the counts: a count moves first, its surplus after
	s := Stats{
		Invalid:   l.invalid.Load(),
		Full:      l.full.Load(),
		Closed:    l.refused.Load(),
		Buckets:   int(l.room.inUse()),
		Swept:     l.janitor.removed.Load(),
		Sweeps:    l.janitor.sweeps.Load(),
		LastSweep: time.Duration(l.janitor.took.Load()),
	}
	for _, t := range l.janitor.all() {
		allowed, denied := t.tally()
		s.Allowed += allowed
		s.Denied += denied
	}
	s.Allowed = uint64(max(0, int64(s.Allowed-uint64(surplus)))) // a refund under way may be seen in half
	s.Checks = s.Allowed + s.Denied + s.Invalid + s.Full + s.Closed
	return s
}

// Close ends the janitor and waits for it; calls that wait in a LeakyBucket return. Later calls fail with [ErrClosed].
// It is safe at any time, beside any other call, and more than once. It always returns nil.
func (l *Limiter) Close() error {
	if !l.closed.Swap(true) {
		close(l.done)
	}
	l.janitor.close()
	return nil
}

// fail counts err for Stats.
func (l *Limiter) fail(err error) error {
	switch err {
	case ErrFull:
		l.full.Add(1)
	case ErrClosed:
		l.refused.Add(1)
	default:
		l.invalid.Add(1)
	}
	return err
}
