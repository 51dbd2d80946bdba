package weir

import (
	"math"
	"sync/atomic"

	"github.com/weirgo/weir/internal/arith"
)

// A bucket expires when no later reading of the clock uses its count any more. A sweep removes it
// Timeout after that; at a full table it is removed at once, by reclaim.

// sweep removes the buckets that expired timeout ago, and frees the chunks that are empty then. It
// holds a shard's mutex for one chunk at a time.
func (t *table) sweep(now, timeout int64) (removed int) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		for c := 0; c < len(sh.chunks); c++ {
			removed += sh.sweepChunk(c, now, timeout)
			sh.mu.Unlock()
			t.capacity.janitor.clock.Advance() // a sweep takes longer than a tick
			sh.mu.Lock()
		}
		sh.findEarliest()
		sh.trim()
		sh.mu.Unlock()
	}
	return removed
}

func (t *table) reclaimSome(now int64, budget *int) (removed int) {
	for i := range t.shards {
		if t.shards[i].earliest.Load() > now {
			continue
		}
		if removed = t.shards[i].reclaim(now, budget); removed > 0 || *budget <= 0 {
			break
		}
	}
	return removed
}

func (sh *shard) reclaim(now int64, budget *int) (removed int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i := range sh.chunks {
		if sh.chunks[i].earliest > now {
			continue
		}
		removed = sh.sweepChunk(i, now, 0)
		if *budget -= chunkSlots; removed > 0 || *budget <= 0 {
			break
		}
	}
	sh.findEarliest()
	return removed
}

func (t *table) soonest() int64 {
	soonest := maxInstant
	for i := range t.shards {
		soonest = min(soonest, t.shards[i].earliest.Load())
	}
	return soonest
}

// findEarliest raises earliest to the earliest of the chunks.
func (sh *shard) findEarliest() {
	earliest := maxInstant
	for i := range sh.chunks {
		earliest = min(earliest, sh.chunks[i].earliest)
	}
	sh.earliest.Store(earliest)
}

// sweepChunk removes the buckets of one chunk that expired timeout ago.
func (sh *shard) sweepChunk(i int, now, timeout int64) (removed int) {
	if sh.chunks[i].earliest > now {
		return 0
	}
	earliest := maxInstant
	for n, s := range sh.slots(i, i+1) {
		for {
			state := s.load(stateWord)
			end := s.end(s.content(state))
			if now < arith.Add(end, timeout) {
				if end == maxInstant && !s.unnote(state) {
					continue
				}
				earliest = min(earliest, end)
				break
			}
			sh.horizon = max(sh.horizon, now)
			if sh.release(s, n, state) { // else a late hit came, and may have moved the end
				removed++
				break
			}
		}
	}
	sh.chunks[i].earliest = earliest
	return removed
}

// trim frees the chunks without buckets, and the index if it is much too large.
func (sh *shard) trim() {
	if sh.buckets == 0 {
		sh.chunks, sh.open, sh.filled = nil, 0, 0
		sh.index.Store(noIndex)
		return
	}
	x := sh.index.Load()
	for i := range sh.chunks {
		if sh.chunks[i].empty() {
			x.chunks[i].Store(nil)
		}
	}
	for last := len(sh.chunks) - 1; x.chunks[last].Load() == nil; last-- {
		sh.chunks = sh.chunks[:last]
	}
	sh.open = min(sh.open, len(sh.chunks))
	if len(x.words) > minIndex && 16*sh.buckets < len(x.words) {
		sh.rebuild()
	}
}

// expiry is a lower bound, kept without a mutex, of the instants at which states expire. A sweep of
// them raises it again: it calls begin, looks at every state, and calls finish with the earliest it
// saw. States that change meanwhile are in noted. note lowers noted, then earliest; finish stores
// earliest, then reads noted: so each note is seen by finish, or lowers what finish stored.
type expiry struct{ earliest, noted atomic.Int64 }

func (e *expiry) reset() {
	e.earliest.Store(maxInstant)
	e.noted.Store(maxInstant)
}

func (e *expiry) note(end int64) {
	storeMin(&e.noted, end)
	storeMin(&e.earliest, end)
}

func (e *expiry) begin() { e.noted.Store(math.MaxInt64) }

func (e *expiry) finish(earliest int64) {
	e.earliest.Store(earliest)
	storeMin(&e.earliest, e.noted.Load())
}

func storeMin(a *atomic.Int64, to int64) {
	for {
		if at := a.Load(); at <= to || a.CompareAndSwap(at, to) {
			return
		}
	}
}

// storeMax raises a to at least to, and returns what it is then.
func storeMax(a *atomic.Int64, to int64) int64 {
	for {
		if at := a.Load(); at >= to || a.CompareAndSwap(at, to) {
			return max(at, to)
		}
	}
}
