package weir

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/clock"
	"github.com/weirgo/weir/internal/core/room"
	"github.com/weirgo/weir/internal/core/tally"
)

// janitor sweeps the tables of a limiter. Its goroutine starts with the first bucket and ends with
// the last, so that an idle limiter holds none.
type janitor struct {
	clock   *clock.Clock
	room    *room.Room
	every   time.Duration
	timeout int64 // ns
	tables  []sweeper

	running atomic.Bool // written under mu
	mu      sync.Mutex
	closed  bool           // guarded by mu
	stop    chan struct{}  // closed by close
	done    sync.WaitGroup // counts the goroutine

	sweeps, removed atomic.Uint64
	took            atomic.Int64  // ns, the last sweep
	turn            atomic.Uint32 // the table that the next reclaim begins with
}

// sweeper is a table of buckets or of states.
type sweeper interface {
	// Sweep removes all that at now expired, and was last used, at least timeout ago.
	Sweep(now, timeout int64) (removed int)

	// Reclaim removes some buckets that have expired at now. It returns 0 if none was found, or if
	// budget is used up: a number of buckets to look at, which Reclaim lowers.
	Reclaim(now int64, budget *int) (removed int)

	// Soonest returns an instant at or before the one at which the first bucket expires.
	Soonest() int64

	// HasBytes reports whether buckets hold bytes of the room.
	HasBytes() bool

	// SumUp adds the decisions that were made on buckets, and looks at each bucket.
	SumUp(sum *tally.Sums)
}

// ensureRunning starts the goroutine if a bucket was taken that it does not see.
func (j *janitor) ensureRunning() {
	if !j.running.Load() {
		j.start()
	}
}

// start starts the goroutine unless it runs. It is called after room was taken, if running was not
// set then: either that shows that the goroutine has ended, or the goroutine sees the bucket and
// does not end.
func (j *janitor) start() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || j.running.Load() {
		return
	}
	j.running.Store(true)
	j.done.Add(1)
	go j.run()
}

func (j *janitor) run() {
	defer j.done.Done()
	tick := time.NewTicker(j.every)
	defer tick.Stop()
	for {
		select {
		case <-j.stop:
			return
		case <-tick.C:
			now, ok := j.read()
			if !ok {
				return
			}
			j.sweep(now)
			if j.idle() {
				return
			}
		}
	}
}

// read reads the clock. Config.Now is called in a goroutine of its own, so that it may call Close,
// which waits for the janitor; read then reports false.
func (j *janitor) read() (now int64, ok bool) {
	if !j.clock.ByHand() {
		return j.clock.Read(), true
	}
	read := make(chan int64, 1)
	go func() { read <- j.clock.Read() }()
	select {
	case now = <-read:
		return now, true
	case <-j.stop:
		return 0, false
	}
}

// idle ends the goroutine if no bucket is left.
func (j *janitor) idle() bool {
	if j.room.Used() > 0 {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running.Store(false)
	if j.room.Used() > 0 { // taken before start could see that the goroutine ends
		j.running.Store(true)
		return false
	}
	return true
}

func (j *janitor) sweep(now int64) (removed int) {
	start := time.Now()
	for _, t := range j.tables {
		removed += t.Sweep(now, j.timeout)
	}
	j.took.Store(int64(time.Since(start)))
	j.sweeps.Add(1)
	j.removed.Add(uint64(removed))
	return removed
}

// reclaimBudget is how many buckets a call looks at before it fails with ErrFull, in 0.2 ms.
const reclaimBudget = 1 << 14

// reclaim removes expired buckets, whatever the timeout, or finds that there is room again. now was
// read before the table was found full: since then others may have replaced all that had expired at
// now, and their buckets may have expired too. So reclaim gives up only if no bucket was taken
// while it looked and read the clock again and none has expired at that reading, or after a look at
// reclaimBudget buckets.
func (j *janitor) reclaim(now int64) bool {
	tables := j.tables
	for budget := reclaimBudget; budget > 0; budget -= 1 << 7 {
		before := j.room.Changes()
		if j.room.Used() < j.room.Max {
			return true
		}
		if removed := j.reclaimSome(tables, now, &budget); removed > 0 {
			j.removed.Add(uint64(removed))
			return true
		}
		soonest := maxInstant
		for _, t := range tables {
			soonest = min(soonest, t.Soonest())
		}
		if now = j.clock.Read(); now < soonest && j.room.Changes() == before {
			break
		}
	}
	return false
}

// reclaimBytes removes expired states until some bytes are free, and reports whether any are.
func (j *janitor) reclaimBytes(now int64) bool {
	tables := slices.DeleteFunc(slices.Clone(j.tables), func(s sweeper) bool { return !s.HasBytes() })
	before := j.room.Bytes.Load()
	for budget := reclaimBudget; budget > 0; {
		removed := j.reclaimSome(tables, now, &budget)
		j.removed.Add(uint64(removed))
		if removed == 0 || j.room.Bytes.Load() < before {
			break
		}
	}
	return j.room.Bytes.Load() < before
}

// reclaimSome looks through the tables. The next call begins after one that used up the budget.
func (j *janitor) reclaimSome(tables []sweeper, now int64, budget *int) (removed int) {
	first := int(j.turn.Load())
	for i := range tables {
		removed = tables[(first+i)%len(tables)].Reclaim(now, budget)
		if removed > 0 || *budget <= 0 {
			j.turn.Store(uint32(first + i + 1))
			break
		}
	}
	return removed
}

// close ends the goroutine and waits for it.
func (j *janitor) close() {
	j.mu.Lock()
	if !j.closed {
		j.closed = true
		close(j.stop)
	}
	j.mu.Unlock()
	j.done.Wait()
}
