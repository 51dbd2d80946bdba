package weir

import (
	"sync"
	"sync/atomic"
	"time"
)

// room is the cap: how many entries all tables of a limiter may hold together.
type room struct {
	max     int64
	used    atomic.Int64
	janitor *janitor
}

func (r *room) inUse() int64 { return r.used.Load() }

// take reserves room for one entry. When none is left it reclaims what is over, and fails if nothing is. What it
// reclaimed may be taken by others before it tries again: then it reclaims more.
func (r *room) take() bool {
	for !r.tryTake() {
		if r.janitor.reclaim() == 0 {
			if r.tryTake() { // another reclaimed what we looked for
				break
			}
			return false
		}
	}
	r.janitor.start()
	return true
}

func (r *room) tryTake() bool {
	for {
		n := r.used.Load()
		if n >= r.max {
			return false
		}
		if r.used.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (r *room) give() { r.used.Add(-1) }

// janitor sweeps the tables of a limiter. Its goroutine starts with the first entry and ends with the last, so that a
// limiter nobody uses holds none.
type janitor struct {
	clock   *clock
	room    *room
	every   time.Duration
	timeout int64 // ns an entry is kept after it is over and was last modified

	running atomic.Bool // set under mu
	mu      sync.Mutex
	closed  bool           // guarded by mu
	tables  []swept        // guarded by mu; replaced, never changed in place
	stop    chan struct{}  // closed by close
	done    sync.WaitGroup // the goroutine

	sweeps, removed atomic.Uint64
	took            atomic.Int64 // ns, the last sweep
}

// swept is a table of any state.
type swept interface {
	sweep(now, grace int64) (removed int)
	reclaim(now int64) (removed int)
	tally() (allowed, denied uint64)
}

func (j *janitor) add(t swept) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tables = append(j.tables[:len(j.tables):len(j.tables)], t)
}

func (j *janitor) all() []swept {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tables
}

// start makes sure that the goroutine runs. It is called after room was taken: either it sees that the goroutine has
// ended, or the goroutine sees the room taken and does not end.
func (j *janitor) start() {
	if j.running.Load() {
		return
	}
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
			j.sweep()
			if j.ended() {
				return
			}
		}
	}
}

// ended gives up the goroutine if no entry is left.
func (j *janitor) ended() bool {
	if j.room.inUse() > 0 {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running.Store(false)
	if j.room.inUse() > 0 { // taken before its taker could see that we end
		j.running.Store(true)
		return false
	}
	return true
}

// sweep forgets what is over and has not been touched for the timeout.
func (j *janitor) sweep() (removed int) {
	start := time.Now()
	now := j.clock.read()
	for _, t := range j.all() {
		removed += t.sweep(now, j.timeout)
	}
	j.took.Store(int64(time.Since(start)))
	j.sweeps.Add(1)
	j.removed.Add(uint64(removed))
	return removed
}

// reclaim forgets what is over, without grace, in at least one shard if there is anything. When everything is live it
// costs one load a shard, and a scan of each shard every 100 ms where state is reused in place.
func (j *janitor) reclaim() (removed int) {
	now := j.clock.read()
	for _, t := range j.all() {
		if removed = t.reclaim(now); removed > 0 {
			break
		}
	}
	j.removed.Add(uint64(removed))
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
