package weir

import (
	"cmp"
	"fmt"
	"iter"
	"sync/atomic"
	"time"
)

// Limiter counts hits in memory. It is safe for concurrent use. CheckRate on an ID that has a
// bucket takes no lock. Make a Limiter with [New], and close it when it is no longer used.
//
// Its clock is the wall time at which it was made, advanced by the operating system's monotonic
// clock. On Windows that clock moves in steps of up to 15.6 ms, so windows of less than 100 ms are
// uneven there. On Linux and macOS it stops while the machine is suspended: windows are longer by
// that time, and from then on instants lie behind the wall clock.
type Limiter struct {
	clock   clock
	closed  atomic.Bool
	windows windows
	buckets *table // of fixed windows
	callers *table // of sliding windows, token buckets and counters, one a caller

	// The states of no fixed size are in tables of their own, made by the first call.
	logs   func() *states
	queues func() *states
	slices func() *states

	capacity capacity
	janitor  janitor

	// extraCost is the admitted cost of fixed windows less their admitted hits: costs over 1, charges
	// and refunds. A hit of cost 1 does not write it: Stats adds up the buckets' counts instead.
	extraCost atomic.Int64

	invalid, full, afterClose atomic.Uint64 // calls that failed
	allowed                   atomic.Int64  // minus the largest Allowed that Stats has returned
}

// Config says how a [Limiter] keeps its buckets. The zero value holds the documented defaults.
type Config struct {
	// MaxBuckets bounds the memory: how many buckets, of all strategies together, are kept at one
	// time. 0 means 1<<20. A bucket takes about 75 bytes, and 64 more for each 40 bytes beyond the
	// first 16 of an ID over 22 bytes. Those of SlidingLog, List, Tiers and LeakyBucket take about 300
	// bytes, and their contents, bounded as [Limiter.SlidingLog] says. At a full table expired buckets
	// are removed at once; if there is none, an ID without a bucket gets [ErrFull]. Too small refuses
	// new callers; too large lets a flood of made-up IDs take the memory.
	MaxBuckets int

	// Timeout is how long a bucket is kept after it expired or was last used, whichever is later,
	// unless the table is full. 0 means a minute. No count needs it: for that long Buckets yields the
	// bucket, and Now may step back to its window. Too small does no harm; too large keeps memory.
	Timeout time.Duration

	// SweepEvery is the time between two sweeps. 0 means 10 s. Too small costs CPU, too large memory.
	SweepEvery time.Duration

	// Resolution, if not 0, makes the clock coarse: decisions load an instant that the janitor's
	// goroutine advances every Resolution, and take a third to a half less time. A window may then end
	// up to Resolution late, and later if the process gets no CPU; a retry at ExpiresAt may come up to
	// Resolution too early, and is denied again. Readings never go back, so in each window of this
	// clock at most the limit is admitted. Without a janitor, before the first bucket and after the
	// sweep that removed the last one, the clock is exact. A millisecond costs up to 5 % of a core,
	// which is what it gains at a million decisions a second; less costs more. Ignored with Now, and if
	// the limiter is made before 1970.
	Resolution time.Duration

	// Now replaces the clock, for tests and simulations; nil means the monotonic clock. It must be
	// safe for concurrent use. Its wall time is used, from 1678 to 2262. It should not go back: within
	// Timeout the windows that it returns to still have their counts, before that they start at 0. The
	// janitor still wakes by real time; see Sweep.
	Now func() time.Time
}

// New returns a Limiter. It fails if a field of cfg is negative. It starts no goroutine: the
// janitor starts with the first bucket and ends with the last. A limiter for a testing/synctest
// bubble is made in the bubble, and closed before the bubble ends.
func New(cfg Config) (*Limiter, error) {
	if cfg.MaxBuckets < 0 || cfg.Timeout < 0 || cfg.SweepEvery < 0 || cfg.Resolution < 0 {
		return nil, fmt.Errorf("weir: negative Config: MaxBuckets %d, Timeout %v, SweepEvery %v, Resolution %v",
			cfg.MaxBuckets, cfg.Timeout, cfg.SweepEvery, cfg.Resolution)
	}
	l := &Limiter{clock: newClock(cfg.Now, cfg.Resolution)}
	l.capacity = newCapacity(int64(cmp.Or(cfg.MaxBuckets, 1<<20)), &l.janitor)
	l.janitor = janitor{
		clock:    &l.clock,
		capacity: &l.capacity,
		every:    cmp.Or(cfg.SweepEvery, 10*time.Second),
		timeout:  int64(cmp.Or(cfg.Timeout, time.Minute)),
		stop:     make(chan struct{}),
	}
	l.windows.table.Store(newWindowTable(minWindows))
	l.buckets, l.callers = newTable(&l.capacity), newTable(&l.capacity)
	l.janitor.add(l.buckets, l.callers)
	l.logs = lazyStates(l, func() state { return new(hitLog) })
	l.queues = lazyStates(l, func() state { return &queue{next: noInstant} })
	l.slices = lazyStates(l, func() state { return new(sliceCounts) })
	return l, nil
}

// CheckRate counts a hit of id, if fewer than limit are counted in its window, and reports the
// decision: id may make limit hits in each window of scaleMs milliseconds. Windows are aligned to
// the Unix epoch. With a [time.Duration] d, pass d.Milliseconds(): CheckRate(id,
// time.Minute.Milliseconds(), 100).
//
// It fails with [ErrID], [ErrScale] or [ErrLimit] for an empty id or one over 1024 bytes, a scale
// that is not from 1 ms to 365 days, or a negative limit; with [ErrFull] if id has no bucket in
// this window and no expired one was found to replace; with [ErrClosed]. An error counts nothing. A
// limit of 0 denies everything and makes no bucket; one over 281,474,976,710,654 (2^48-2) counts as
// that. A denied hit takes nothing: TotalRequests stays as it was, and Bucket.Denied counts it. One
// id counts separately in each scale; the limit may change from call to call, and the count stays.
//
// However many calls are concurrent, at most limit hits are admitted in a window, and none is
// denied before. A call on an id that has a bucket costs a clock read, a hash and a
// compare-and-swap, and allocates nothing, as long as no more than some thousand scales are in use;
// the first hit of an id in a window, and every one under a limit of 0, takes the mutex of one
// shard.
//
// The algorithm is the fixed window counter of raterlimiter's check_rate/3 (Erlang, 2012). It
// differs in that the scale is part of the key, denied hits are not counted, and limit 0 denies.
func (l *Limiter) CheckRate(id string, scaleMs, limit int64) (r Result, err error) {
	err = l.count(id, scaleMs, limit, 1, &r)
	return
}

// Inspect returns the Bucket of id in the current window of scaleMs. It creates none: that of an id
// without one has Count 0 and the zero Created. It fails with [ErrID], [ErrScale] and [ErrClosed].
func (l *Limiter) Inspect(id string, scaleMs int64) (Bucket, error) {
	h, err := l.lockWindow(id, scaleMs)
	if err != nil {
		return Bucket{}, err
	}
	defer h.shard.mu.Unlock()
	if h.kept {
		return l.snapshot(h.shard.index.Load(), h.state), nil
	}
	w := l.window(h.now, scaleMs)
	return Bucket{ID: id, Scale: time.Duration(scaleMs * msec), Number: w.number, Ends: w.expires}, nil
}

// Buckets yields the buckets of CheckRate and FixedWindow that are kept, expired ones too, in no
// order. Those present for the whole iteration are yielded once; those added or removed meanwhile
// may be missed. No lock is held while it yields. It costs about 150 ns a bucket.
func (l *Limiter) Buckets() iter.Seq[Bucket] {
	return func(yield func(Bucket) bool) {
		for i := range l.buckets.shards {
			var found []Bucket
			sh := &l.buckets.shards[i]
			add := func(s *slot) { found = append(found, l.snapshot(sh.index.Load(), s)) }
			for c := 0; sh.visit(c, add); c, found = c+1, found[:0] {
				for _, b := range found {
					if !yield(b) {
						return
					}
				}
			}
		}
	}
}

// Reset removes the bucket of id in the current window of scaleMs, if there is one. Stats keeps its
// counts. It fails as Inspect does.
func (l *Limiter) Reset(id string, scaleMs int64) error {
	h, err := l.lockWindow(id, scaleMs)
	if err != nil {
		return err
	}
	defer h.shard.mu.Unlock()
	if h.kept {
		h.shard.release(h.state, int(h.n))
	}
	return nil
}

// Sweep removes the buckets that expired, and were last used, at least Timeout ago, as the janitor
// does every SweepEvery, and returns their number. Simulations with a Config.Now call it.
func (l *Limiter) Sweep() int { return l.janitor.sweep(l.clock.read()) }

// Stats counts the decisions, errors and sweeps of a limiter since New.
type Stats struct {
	Checks          uint64 // Allowed, Denied and all errors
	Allowed, Denied uint64
	Invalid         uint64 // ErrID, ErrScale, ErrLimit
	Full            uint64 // ErrFull
	Closed          uint64 // ErrClosed

	Buckets    int           // kept now, of all strategies
	MaxBuckets int           // how many can be kept: Config.MaxBuckets, or its default
	Swept      uint64        // expired buckets removed
	Sweeps     uint64        // by the janitor and Sweep
	LastSweep  time.Duration // how long the last one took, in real time
}

// Stats adds up the counts of all buckets, about 10 ns each, so that it costs a decision nothing. It
// holds one shard's mutex at a time, so it is no snapshot of one instant. No count of calls falls:
// costs, charges and refunds under way may make Allowed too high, until as much more is admitted.
func (l *Limiter) Stats() Stats {
	extra := l.extraCost.Load()
	s := Stats{
		Invalid:    l.invalid.Load(),
		Full:       l.full.Load(),
		Closed:     l.afterClose.Load(),
		Buckets:    int(l.capacity.used()),
		MaxBuckets: int(l.capacity.max),
		Swept:      l.janitor.removed.Load(),
		Sweeps:     l.janitor.sweeps.Load(),
		LastSweep:  time.Duration(l.janitor.took.Load()),
	}
	for _, t := range l.janitor.all() {
		allowed, denied := t.stats()
		s.Allowed += allowed
		s.Denied += denied
	}
	extra = max(extra, l.extraCost.Load())       // the larger leaves out costs and refunds under way
	storeMin(&l.allowed, extra-int64(s.Allowed)) // metrics take a count that falls for a restart
	s.Allowed = uint64(-l.allowed.Load())
	s.Checks = s.Allowed + s.Denied + s.Invalid + s.Full + s.Closed
	return s
}

// Close ends the janitor and waits for it; calls that wait in a LeakyBucket return. Later calls
// that decide, read or change a count fail with [ErrClosed]. It may be called more than once, and
// from Config.Now. It always returns nil.
func (l *Limiter) Close() error {
	l.closed.Store(true)
	l.janitor.close()
	return nil
}

// fail counts err for Stats.
func (l *Limiter) fail(err error) error {
	switch err {
	case ErrFull:
		l.full.Add(1)
	case ErrClosed:
		l.afterClose.Add(1)
	default:
		l.invalid.Add(1)
	}
	return err
}
