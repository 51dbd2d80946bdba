package weir

import "sync/atomic"

// cell is a key with its shard locked, and its slot; that is nil where there is none.
type cell struct {
	*slot
	n     int    // number of the slot
	state uint64 // as read last: a hit may have changed it since
	shard *shard
	packedID
	id  string
	key period

	// set by slotStrategy.lock
	now  int64   // the reading of the clock
	have content // with state; that of a caller without a bucket if there is no slot
}

// identity distinguishes a bucket from the others of its key. The zero value is no bucket's.
type identity struct{ mark, slot uint64 }

// identity returns that of the bucket in a cell. In a fixed window it is the stamp of its creation,
// its slot and the generation: that of two buckets is the same only if the clock stood still while
// a sweep freed the memory of the first.
func (c *cell) identity() identity {
	if c.slot == nil {
		return identity{}
	}
	id := identity{mark: c.load(tailWord) >> 16}
	if c.shard.tallied {
		id.slot = generation(c.load(stateWord)) | uint64(c.n+1)
	}
	return id
}

// replace changes the content of a cell from c.have to next. If there is no bucket it makes one. It
// begins another epoch only if a still word differs. It reports false if a hit came in between, and
// reads the content again. It fails with ErrFull, and has changed nothing then, if the slot's
// generations are used up and there is no other slot. It leaves shard.allowed to the caller.
func (c *cell) replace(next content) (done bool, err error) {
	switch {
	case c.slot == nil:
		c.insert(next, 0)
		done = true
	case next.Still1 == c.have.Still1 && next.Still2 == c.have.Still2:
		done = c.swap(c.state, next.N)
	case nextGeneration(c.state)>>countBits == lastGeneration && len(c.shard.chunks) > maxChunks:
		return false, ErrFull
	default:
		done = c.roll(c.state, next)
	}
	if !done {
		c.state = c.load(stateWord)
		c.have = c.content(c.state)
	}
	return done, nil
}

// insert makes the slot of a cell that has none. mark is 0 for a new bucket.
func (c *cell) insert(first content, mark uint64) {
	sh := c.shard
	if x := sh.index.Load(); 4*(sh.filled+1) > 3*len(x.words) {
		sh.rebuild()
	}
	n, s := sh.take()
	k := c.packedID
	if len(c.id) > inlineID {
		k.c = uint64(sh.insertParts(c.id[headID:]))
	}
	epoch := s.load(stateWord) &^ countMask
	tallies := uint64(0)
	if sh.tallied {
		tallies, mark = epoch, uint64(first.Still2) // the last use is the first one
	} else if mark == 0 {
		sh.marks++
		mark = sh.marks
	}
	s.write(lowWord, c.key.low)
	s.write(idWord, k.a)
	s.write(idWord2, k.b)
	s.write(restWord, c.key.mid|k.c)
	s.write(tailWord, mark<<16|c.key.high|uint64(len(c.id)))
	s.write(stillWord1, tallies|uint64(first.Still1))
	s.write(stillWord2, tallies|uint64(first.Still2))
	// Readers look at the state first. It is stored after the other words, and the index word last.
	atomic.StoreUint64(&s[stateWord], epoch|uint64(first.N+1))
	if sh.index.Load().put(uint32(k.hash^c.key.salt), n) {
		sh.filled++
	}
	sh.buckets++
	c.slot, c.n = s, n
}

// roll begins another epoch of a bucket. Hits without a lock rely on the order: first the
// generation, then the still words, last the number, which makes the slot live again. A slot with
// one generation left moves its bucket to another slot.
func (c *cell) roll(state uint64, next content) bool {
	s, then := c.slot, nextGeneration(state)
	if !s.kill(state) {
		return false
	}
	if then>>countBits == lastGeneration {
		mark := s.load(tailWord) >> 16
		c.shard.unlink(s, c.n)
		c.insert(next, mark)
		return true
	}
	atomic.StoreUint64(&s[stillWord1], uint64(next.Still1))
	atomic.StoreUint64(&s[stillWord2], uint64(next.Still2))
	atomic.StoreUint64(&s[stateWord], then|uint64(next.N+1))
	return true
}

// remove removes the bucket in a cell, if there is one, whatever it counts, and unlocks the shard.
func (c *cell) remove() {
	for c.slot != nil && !c.shard.release(c.slot, c.n, c.load(stateWord)) {
	}
	c.shard.mu.Unlock()
}
