package weir

import (
	"cmp"
	"iter"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/engine"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/windows"
)

// Bucket is the count of one ID in one window.
type Bucket struct {
	ID    string
	Scale time.Duration // of the window

	// Limit is the name of the [Limit] that counts in the bucket, or its numbers if it has no name;
	// empty for CheckRate and for a strategy itself.
	Limit string

	// Calendar has the window, such as "month:17@Europe/Berlin"; empty in other windows.
	Calendar string

	// Number tells the window: Unix time divided by Scale, rounded down; in a calendar the number of
	// its end.
	Number int64

	Count    uint64    // admitted cost
	Denied   uint64    // denied hits, which are in no count
	Created  time.Time // first hit, to 128 ns; zero if there was none
	Modified time.Time // last hit, admitted or denied; early by at most 1/65,536 of Scale, and 17 ms
	Ends     time.Time // when the window ends
}

// Inspect returns the Bucket of id in the current window of scaleMs, and creates none: for an id
// without one, Count is 0 and Created the zero time. It fails with [ErrID], [ErrScale] and
// [ErrClosed].
func (l *Limiter) Inspect(id string, scaleMs int64) (Bucket, error) {
	c, err := l.lockWindow(id, scaleMs)
	if err != nil {
		return Bucket{}, err
	}
	return l.inspect(&c, scaleMs), nil
}

// Buckets yields the buckets of CheckRate, FixedWindow and Calendar that are kept, expired ones
// too, in no order. Those present for the whole iteration are yielded once; those added or removed
// meanwhile may be missed. No lock is held during a yield. A bucket costs about 150 ns.
func (l *Limiter) Buckets() iter.Seq[Bucket] {
	return func(yield func(Bucket) bool) {
		shards := l.buckets.Shards()
		for i := range shards {
			var found []Bucket
			sh := &shards[i]
			add := func(_ int, s *slots.Slot) { found = append(found, l.bucket(sh, s)) }
			for c := 0; sh.Visit(c, add); c, found = c+1, found[:0] {
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
	c, err := l.lockWindow(id, scaleMs)
	if err != nil {
		return err
	}
	c.Remove()
	return nil
}

// bucket returns the Bucket in a slot of a fixed window. The shard's mutex is held.
func (l *Limiter) bucket(sh *slots.Shard, s *slots.Slot) Bucket {
	_, scale, number := s.Period()
	b, start := l.newBucket(string(sh.AppendID(nil, s)), scale, number)
	at := func(stamp uint64) time.Time {
		return l.clock.Time(arith.Add(start, int64(stamp<<windows.StampShift(scale))))
	}
	b.Count, b.Denied = uint64(s.State().Count()), s.Denied()
	b.Created, b.Modified = at(s.Mark()), at(s.LastUse())
	return b
}

// newBucket returns the Bucket of an ID without a hit, and when its window starts.
func (l *Limiter) newBucket(id string, scaleMs, number int64) (b Bucket, start int64) {
	if scaleMs > maxScale {
		in, end := l.windows.Of(scaleMs), windows.OfMilli(number)
		start = in.At(end - 1).Start
		b = Bucket{ID: id, Scale: time.Duration(end - start), Limit: cmp.Or(in.Name, in.Numbers),
			Calendar: in.SeriesName.Calendar, Number: number / 1000, Ends: l.clock.Time(end)}
		if in.Length > 0 {
			b.Scale, b.Number = time.Duration(in.Length*msec), number/in.Length-1
		}
		return b, start
	}
	ends := l.clock.Time(algorithm.WindowStart(number+1, scaleMs))
	start = algorithm.WindowStart(number, scaleMs)
	return Bucket{ID: id, Scale: time.Duration(scaleMs * msec), Number: number, Ends: ends}, start
}

// inspect returns the Bucket of a key in a fixed window, and unlocks the shard.
func (l *Limiter) inspect(c *engine.LockedSlot, scaleMs int64) Bucket {
	defer c.Unlock()
	if c.Slot != nil {
		return l.bucket(c.Shard, c.Slot)
	}
	b, _ := l.newBucket(c.ID, scaleMs, l.windows.Running(c.Now, scaleMs).Number)
	return b
}

// lockWindow locks the bucket of id in the current window.
func (l *Limiter) lockWindow(id string, scaleMs int64) (c engine.LockedSlot, err error) {
	if err = checkArgs(id, scaleMs, 0); err == nil && l.closed.Load() {
		err = ErrClosed
	}
	if err != nil {
		return c, l.fail(err)
	}
	return l.stores.Slots[engine.FixedKind].Lock(id, scaleMs, noInstant, false, present)
}
