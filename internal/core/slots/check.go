package slots

import (
	"fmt"
	"math/bits"

	"github.com/weirgo/weir/internal/core/ids"
)

// Check returns which invariant of the shard does not hold, or nil, and the number of its buckets.
// Nothing else uses the shard meanwhile. It is for tests, so it stands apart from what runs.
func (sh *Shard) Check() (buckets int, err error) {
	if err = sh.checkIndex(); err == nil {
		err = sh.checkChunks()
	}
	return sh.buckets, err
}

// checkIndex compares the words of the index with the slots.
func (sh *Shard) checkIndex() error {
	x := sh.index.Load()
	filled, words := 0, map[int]bool{}
	for _, w := range x.words {
		if w != emptyWord {
			filled++
		}
		if w != emptyWord && w != tombstoneWord {
			words[int(w&slotMask)-2] = true
		}
	}
	switch {
	case sh.filled != filled:
		return fmt.Errorf("%d words are not empty, and not %d", filled, sh.filled)
	case 4*filled > 3*len(x.words):
		return fmt.Errorf("%d of %d words are more than three quarters", filled, len(x.words))
	case bits.OnesCount(uint(len(x.words))) != 1:
		return fmt.Errorf("%d words are no power of two", len(x.words))
	case len(x.words) > minIndex && len(x.words) >= 32*max(1, sh.buckets):
		return fmt.Errorf("%d words are too many for %d buckets", len(x.words), sh.buckets)
	}
	live := 0
	for n, s := range sh.All() {
		live++
		id, p, state := string(x.appendID(nil, s)), PeriodOf(s.Period()), s.State()
		found, foundState, at := x.Find(sh.hasher.Pack(id), id, &p)
		switch {
		case found != s || at != n || foundState != state:
			return fmt.Errorf("slot %d is found as %d with state %x, not %x", n, at, foundState, state)
		case sh.tallied && (Word(s.load(deniedWord)).Epoch() != state.Epoch() ||
			Word(s.load(usedWord)).Epoch() != state.Epoch()):
			return fmt.Errorf("the tallies of slot %d are of another generation", n)
		}
	}
	if live != sh.buckets || live != len(words) {
		return fmt.Errorf("%d slots are live, %d counted, %d have a word", live, sh.buckets, len(words))
	}
	return nil
}

// checkChunks checks that each slot is in use or free, and that none expires before the bounds.
func (sh *Shard) checkChunks() error {
	x := sh.index.Load()
	used := map[int]bool{}
	for n, s := range sh.All() {
		bound, end := max(sh.chunks[n/chunkSlots].earliest, sh.Soonest()), sh.End(s, s.Content(s.State()))
		if end < bound {
			return fmt.Errorf("slot %d expires at %d, before the bound %d", n, end, bound)
		}
		used[n] = true
		part, left := int(s.load(restWord)&countMask), s.IDLen()
		if left <= ids.Inline {
			continue
		}
		for left -= ids.Head; left > 0; left -= partBytes {
			if used[part] || x.slot(part).State().Live() {
				return fmt.Errorf("slot %d, a part of the ID of slot %d, is in use", part, n)
			}
			used[part] = true
			part = int(x.slot(part).load(deniedWord) & countMask)
		}
	}
	for i := range sh.chunks {
		c := &sh.chunks[i]
		for j := range chunkSlots {
			free, gone := c.free[j/64]>>(j%64)&1 == 1, x.chunks[i].Load() == nil
			if used[i*chunkSlots+j] == (free || gone) {
				return fmt.Errorf("slot %d of chunk %d: used %v, free %v", j, i, !free, free)
			}
		}
		if i < sh.open && !c.closed && c.free != [2]uint64{} {
			return fmt.Errorf("chunk %d has a free slot, before %d", i, sh.open)
		}
	}
	return nil
}
