package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/calendar"
	"github.com/weirgo/weir/internal/core/clock"
	"github.com/weirgo/weir/internal/core/engine"
	"github.com/weirgo/weir/internal/core/room"
	"github.com/weirgo/weir/internal/core/turns"
	"github.com/weirgo/weir/internal/core/windows"
)

// Limiter counts hits in memory, and is safe for concurrent use. CheckRate on an ID that has a
// bucket takes no lock. Make a Limiter with [New], and close it after its last use.
//
// Its clock is the wall time at the call of New, advanced by the operating system's monotonic
// clock. On Windows that clock moves in steps of up to 15.6 ms, so windows of less than 100 ms are
// uneven there. On Linux and macOS that clock stops while the machine is suspended: windows are
// longer by that time, and from then on instants lie behind the wall clock. So they do where the
// wall clock was wrong when the Limiter was made, as at a boot before the first NTP step: the
// windows of a [Calendar], and the instants that a Result names. With time.Now as Config.Now both
// follow the wall clock.
type Limiter struct {
	clock   clock.Clock
	closed  atomic.Bool
	windows windows.Windows
	tables

	room    *room.Room
	janitor janitor

	invalid, full, afterClose atomic.Uint64 // calls that failed
	allowed                   atomic.Int64  // the largest Allowed that Stats has returned

	guards atomic.Int64 // of package overload that were made

	saving sync.Mutex // held by SaveFile, so that a later snapshot is the one that stays
}

// An error means "could not decide": nothing was counted, and the caller fails open or fails
// closed. Errors of bad input wrap these with the operands; compare with [errors.Is].
var (
	// ErrFull: MaxBuckets are in use, and no expired one was found in the part of the table that a
	// call looks at. Callers who hold a bucket are unaffected, in CheckRate, FixedWindow and Calendar
	// until its window ends; others are refused until a bucket expires. Also: the logs, tiers and
	// queues together have reached their bound in bytes (see SlidingLog), which refuses callers of
	// these strategies who hold a bucket too.
	ErrFull = room.ErrFull

	// ErrClosed: the limiter was closed.
	ErrClosed = engine.ErrClosed

	// ErrLimit: the limit is negative, or a burst takes longer to refill than time can be counted.
	ErrLimit = errors.New("weir: bad limit")
)

// Config says how a [Limiter] keeps its buckets. The zero value holds the documented defaults.
type Config struct {
	// MaxBuckets bounds the memory: how many buckets, of all strategies together, are kept at one
	// time. 0 means 1<<20. A bucket takes about 73 bytes, and 64 more for each 40 bytes beyond the
	// first 16 of an ID over 22 bytes. Buckets of SlidingLog, List, Tiers and LeakyBucket, and of
	// InFlight where a caller has leases, take about 300 bytes, and their contents, bounded as
	// [Limiter.SlidingLog] says. At a full table expired buckets are removed at once; if there is
	// none, an ID without a bucket gets [ErrFull]. Too small refuses new callers; too large lets a
	// flood of made-up IDs take the memory.
	MaxBuckets int

	// Timeout is how long a bucket is kept after it expired or was last used, whichever is later,
	// unless the table is full. 0 means a minute. No count needs it: for that long Buckets yields the
	// bucket, and Now may step back to its window. Too small does no harm; too large keeps memory. A
	// caller who holds nothing any more, of work in flight, is removed by the next sweep.
	Timeout time.Duration

	// SweepEvery is the time between two sweeps. 0 means 10 s. Too small costs CPU, too large memory.
	SweepEvery time.Duration

	// Now replaces the clock, for tests and simulations; nil means the monotonic clock. Now must be
	// safe for concurrent use. Its wall time is used, from 1678 to 2262. The time should not go back:
	// within Timeout the windows that it returns to still have their counts, older ones start at 0.
	// The janitor still wakes by real time; see Sweep.
	Now func() time.Time
}

// New returns a Limiter, or fails if a field of cfg is negative. New starts no goroutine: the
// janitor starts with the first bucket and ends with the last. A limiter for a testing/synctest
// bubble is made in the bubble, and closed before the bubble ends.
func New(cfg Config) (*Limiter, error) {
	if cfg.MaxBuckets < 0 || cfg.Timeout < 0 || cfg.SweepEvery < 0 {
		return nil, fmt.Errorf("weir: negative Config: MaxBuckets %d, Timeout %v, SweepEvery %v",
			cfg.MaxBuckets, cfg.Timeout, cfg.SweepEvery)
	}
	l := &Limiter{clock: clock.New(cfg.Now)}
	l.room = room.New(int64(cmp.Or(cfg.MaxBuckets, 1<<20)), l.janitor.ensureRunning)
	l.janitor = janitor{
		clock:   &l.clock,
		room:    l.room,
		every:   cmp.Or(cfg.SweepEvery, 10*time.Second),
		timeout: int64(cmp.Or(cfg.Timeout, time.Minute)),
		stop:    make(chan struct{}),
	}
	l.windows.Init(&l.clock)
	l.tables.open(&l.clock, &l.windows, l.room, &l.janitor)
	l.janitor.tables = l.tables.all()
	return l, nil
}

// Stats counts the decisions, errors and sweeps of a limiter since New, and its buckets now.
type Stats struct {
	Checks          uint64 // Allowed, Denied and all errors
	Allowed, Denied uint64
	Held            uint64 // cost that Hold has admitted in this process, and is not released
	Invalid         uint64 // ErrID, ErrScale, ErrLimit; hits of work in flight that Hold must take
	Full            uint64 // ErrFull
	Closed          uint64 // ErrClosed

	Buckets    int           // kept now, of all strategies
	MaxBuckets int           // how many can be kept: Config.MaxBuckets, or its default
	Swept      uint64        // expired buckets removed
	Sweeps     uint64        // by the janitor and Sweep
	LastSweep  time.Duration // how long the last one took, in real time
}

// Stats adds up the counts of all buckets, about 10 ns each, so that most decisions count nothing
// else. Stats holds one shard's mutex at a time, so the counts are not all of one instant. No count
// of calls falls.
func (l *Limiter) Stats() Stats {
	sums := l.tables.sums()
	s := Stats{
		// Of a hit under way only the cost may be known, which is taken off. Metrics take a count that
		// falls for a restart.
		Allowed:    uint64(storeMax(&l.allowed, int64(sums.Allowed))),
		Denied:     sums.Denied,
		Held:       sums.Held,
		Invalid:    l.invalid.Load(),
		Full:       l.full.Load(),
		Closed:     l.afterClose.Load(),
		Buckets:    int(l.room.Used()),
		MaxBuckets: int(l.room.Max),
		Swept:      l.janitor.removed.Load(),
		Sweeps:     l.janitor.sweeps.Load(),
		LastSweep:  time.Duration(l.janitor.took.Load()),
	}
	s.Checks = s.Allowed + s.Denied + s.Invalid + s.Full + s.Closed
	return s
}

// Sweep removes the buckets that expired, and were last used, at least Timeout ago, as the janitor
// does every SweepEvery, and returns their number. Simulations with a Config.Now call it.
func (l *Limiter) Sweep() int { return l.janitor.sweep(l.clock.Read()) }

// Close ends the janitor and waits for it; calls that wait in a LeakyBucket return. Later calls
// that decide, read or change a count fail with [ErrClosed], [Wait] and [HoldWait] when they ask
// again. Close may be called more than once, and from Config.Now. It always returns nil.
func (l *Limiter) Close() error {
	l.closed.Store(true)
	l.janitor.close()
	return nil
}

// named returns the series of a name, or fails with ErrLimit if there are too many.
func (l *Limiter) named(name windows.SeriesName, c *calendar.Calendar) (*windows.Series, error) {
	in, err := l.windows.Named(name, c)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrLimit, err)
	}
	return in, err
}

// asOf returns the instant as of which a decision with ctx is made: of one who waits that at which
// it was due, and else present.
func (l *Limiter) asOf(ctx context.Context) int64 {
	if turns.IsDue(ctx) {
		return l.clock.AsOf(turns.UseDue(ctx), turns.MaxLate)
	}
	return present
}

// fail counts err for Stats, unless nil.
func (l *Limiter) fail(err error) error {
	switch err {
	case nil:
	case ErrFull:
		l.full.Add(1)
	case ErrClosed:
		l.afterClose.Add(1)
	default:
		l.invalid.Add(1)
	}
	return err
}

// storeMax raises a to at least to, and returns its value then.
func storeMax(a *atomic.Int64, to int64) int64 {
	for {
		if at := a.Load(); at >= to || a.CompareAndSwap(at, to) {
			return max(at, to)
		}
	}
}

// time returns an instant as a time: the zero one for noInstant.
func (l *Limiter) time(at int64) (t time.Time) {
	if at != noInstant {
		t = l.clock.Time(at)
	}
	return t
}

func (l *Limiter) result(v verdict) *Result {
	r := new(Result)
	l.setResult(r, v, 0)
	return r
}

// setResult sets r, whatever it was, to a verdict at now, and returns how long the verdict holds.
// To return a Result by value would cost copies.
func (l *Limiter) setResult(r *Result, v verdict, now int64) (left time.Duration) {
	r.State, r.TotalRequests, r.Limit = Deny, uint64(v.Total), 0
	if v.Allowed {
		r.State = Allow
	}
	r.ExpiresAt = time.Time{}
	if v.At != noInstant {
		r.ExpiresAt = l.clock.Time(v.At)
		left = time.Duration(v.At - now)
	}
	return left
}
