package weir

import (
	"bytes"
	"context"
	"strings"
)

// PrefixResetter sets the counts of all keys that begin with a prefix to zero, in every Duration;
// the empty prefix stands for all keys. It returns how many counts that were. progress, unless it
// is nil, is called now and then with how many counts it has looked at, those of other keys
// included, and how many of them it has reset. An error, such as that of ctx, ends it early.
//
// A count that begins meanwhile is reset or not. The cost is that of looking at every count there
// is. In this process that is 40 ns for a bucket, 500 ns for a log, and 250 ns for one that is
// reset, with the lock of at most 128 buckets held at a time; on Redis it is a SCAN of the
// database, and a round trip for each count that is reset.
type PrefixResetter interface {
	ResetPrefix(
		ctx context.Context, prefix string, progress func(seen, reset int),
	) (reset int, err error)
}

// prefixReset is a reset of a prefix under way.
type prefixReset struct {
	ctx         context.Context
	prefix      string
	progress    func(seen, reset int)
	seen, reset int
}

// next reports whether to go on.
func (p *prefixReset) next() bool {
	if p.progress != nil {
		p.progress(p.seen, p.reset)
	}
	return p.ctx.Err() == nil
}

// ResetPrefix implements [PrefixResetter].
func (s *slotStrategy) ResetPrefix(
	ctx context.Context, prefix string, progress func(seen, reset int),
) (reset int, err error) {
	if s.l.closed.Load() {
		return 0, s.l.fail(ErrClosed)
	}
	p := &prefixReset{ctx: ctx, prefix: prefix, progress: progress}
	for i := range s.table.shards {
		sh := &s.table.shards[i]
		for c := 0; ctx.Err() == nil && sh.resetChunk(c, s, p, s.l.clock.Read()); c++ {
		}
		if !p.next() {
			break
		}
	}
	return p.reset, ctx.Err()
}

// owns reports whether a slot is a bucket of s.
func (s *slotStrategy) owns(in *slot) bool {
	k, scaleMs, number := in.period()
	own := s.ownScale()
	return k == s.kind && (scaleMs == own || own == 0 && scaleMs <= maxScale) &&
		(k == fixedKind || number == s.series<<1)
}

// resetChunk removes the buckets of one chunk that are of a strategy and whose ID begins with the
// prefix. It leaves those that have expired to a sweep, which raises the horizon. It reports false
// if there is no such chunk.
func (sh *shard) resetChunk(i int, of *slotStrategy, p *prefixReset, now int64) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if i >= len(sh.chunks) {
		return false
	}
	id, prefix := make([]byte, 0, inlineID), []byte(p.prefix)
	for n, s := range sh.slots(i, i+1) {
		p.seen++
		if id = sh.index.Load().appendID(id[:0], s); !bytes.HasPrefix(id, prefix) || !of.owns(s) {
			continue
		}
		for state := s.load(stateWord); now < s.end(s.content(state)); state = s.load(stateWord) {
			if sh.release(s, n, state) { // else a hit came
				p.reset++
				break
			}
		}
	}
	return true
}

// ResetPrefix implements [PrefixResetter].
func (s *stateStrategy[S]) ResetPrefix(
	ctx context.Context, prefix string, progress func(seen, reset int),
) (reset int, err error) {
	return s.resetPrefix(ctx, prefix, progress, func(h lockedState[S]) { s.states.remove(h.handle) })
}

// ResetPrefix implements [PrefixResetter]: the first in each line may leave at once.
func (b *LeakyBucket) ResetPrefix(
	ctx context.Context, prefix string, progress func(seen, reset int),
) (reset int, err error) {
	return b.resetPrefix(ctx, prefix, progress, b.reset)
}

// resetPrefix is ResetPrefix, which resets a state by reset, which unlocks it.
func (s *stateStrategy[S]) resetPrefix(
	ctx context.Context, prefix string, progress func(seen, reset int), reset func(lockedState[S]),
) (int, error) {
	if s.l.closed.Load() {
		return 0, s.l.fail(ErrClosed)
	}
	p := &prefixReset{ctx: ctx, prefix: prefix, progress: progress}
	for i := range s.states.shards {
		entries := s.states.shards[i].entries.Load()
		if entries == nil {
			continue
		}
		entries.Range(func(k stateKey, _ *entry) bool {
			p.seen++
			if own := s.ownScale(); k.plan != s.plan || k.series != s.series ||
				own != 0 && k.scale != own || !strings.HasPrefix(k.id, prefix) {
				return true
			}
			if h, err := s.lock(k.id, k.scale, false); err == nil && h.entry != nil {
				reset(h)
				p.reset++
			}
			return true
		})
		if !p.next() {
			break
		}
	}
	return p.reset, ctx.Err()
}
