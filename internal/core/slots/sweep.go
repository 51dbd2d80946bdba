package slots

import (
	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
)

// Sweep removes the buckets that expired timeout ago, and frees the chunks that are empty then. It
// holds the mutex for one chunk at a time, and calls between after each, without it.
func (sh *Shard) Sweep(now, timeout int64, between func()) (removed int) {
	sh.Lock()
	defer sh.Unlock()
	for c := 0; c < len(sh.chunks); c++ {
		removed += sh.sweepChunk(c, now, timeout)
		sh.Unlock()
		between()
		sh.Lock()
	}
	sh.findEarliest()
	sh.trim()
	return removed
}

// Reclaim removes some buckets that have expired at now. It returns 0 if it found none, or has used
// up budget: a number of slots to look at, which it lowers.
func (sh *Shard) Reclaim(now int64, budget *int) (removed int) {
	if sh.earliest.Load() > now {
		return 0
	}
	sh.Lock()
	defer sh.Unlock()
	for i := range sh.chunks {
		if sh.chunks[i].earliest > now {
			continue
		}
		removed = sh.sweepChunk(i, now, 0)
		*budget -= chunkSlots
		if removed > 0 || *budget <= 0 {
			break
		}
	}
	sh.findEarliest()
	return removed
}

// findEarliest raises earliest to the earliest of the chunks.
func (sh *Shard) findEarliest() {
	earliest := algorithm.End
	for i := range sh.chunks {
		earliest = min(earliest, sh.chunks[i].earliest)
	}
	sh.earliest.Store(earliest)
}

// sweepChunk removes the buckets of one chunk that expired timeout ago.
func (sh *Shard) sweepChunk(i int, now, timeout int64) (removed int) {
	if sh.chunks[i].earliest > now {
		return 0
	}
	earliest := algorithm.End
	for n, s := range sh.slots(i, i+1) {
		for {
			state := s.State()
			end := sh.End(s, s.Content(state))
			if now < arith.Add(end, timeout) {
				if end == algorithm.End && !sh.meaning.Stays(s, state) {
					continue
				}
				earliest = min(earliest, end)
				break
			}
			sh.Horizon = max(sh.Horizon, now)
			if sh.Release(s, n, state) { // else a late hit came, and may have moved the end
				removed++
				break
			}
		}
	}
	sh.chunks[i].earliest = earliest
	return removed
}

// trim frees the chunks without buckets, and the index if it is much too large.
func (sh *Shard) trim() {
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
