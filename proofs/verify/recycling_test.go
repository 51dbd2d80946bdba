package verify

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// counter counts the calls for one ID in one window.
type counter struct{ asked, admitted int }

// counterKey is the index of an ID and the instant at which its window ends.
type counterKey struct {
	id  int
	end int64
}

// outcomes counts the results of a limiter.
type outcomes struct {
	counters               map[counterKey]*counter
	admitted, denied, full int
}

func (o *outcomes) add(id int, res weir.Result, err error) {
	if err != nil {
		o.full++
		return
	}
	key := counterKey{id, res.ExpiresAt.UnixNano()}
	c := o.counters[key]
	if c == nil {
		c = new(counter)
		o.counters[key] = c
	}
	c.asked++
	if res.Allowed() {
		c.admitted++
		o.admitted++
	} else {
		o.denied++
	}
}

func (o *outcomes) merge(other outcomes) {
	for key, c := range other.counters {
		if mine := o.counters[key]; mine != nil {
			c.asked += mine.asked
			c.admitted += mine.admitted
		}
		o.counters[key] = c
	}
	o.admitted += other.admitted
	o.denied += other.denied
	o.full += other.full
}

// wrong returns the number of windows in which not exactly min(asked, limit) was admitted.
func (o *outcomes) wrong(limit int) (n int) {
	for _, c := range o.counters {
		if c.admitted != min(c.asked, limit) {
			n++
		}
	}
	return n
}

// mixedIDs returns IDs of all lengths: up to 22 bytes fit in a slot, and longer ones take up to 26
// slots.
func mixedIDs() (ids []string) {
	for i, n := range []int{3, 1000, 22, 23, 56, 57, 100, 500} {
		ids = append(ids, fmt.Sprint(i)+strings.Repeat("x", n-1))
	}
	return ids
}

// recycle calls CheckRate from 64 goroutines in windows of 1 ms. Two IDs take turns in each window,
// so that with room for two buckets almost every window reuses the slots of an ID of another
// length. The callers advance the clock and never wait.
func recycle(t *testing.T, l checker, clock *atomic.Int64, calls int, limit int64) outcomes {
	const goroutines = 64
	ids := mixedIDs()
	each := make([]outcomes, goroutines)
	var g errgroup.Group
	for i := range goroutines {
		g.Go(func() error {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			mine := &each[i]
			mine.counters = map[counterKey]*counter{}
			for range calls / goroutines {
				id := (int(clock.Load()) + rnd.IntN(2)) % len(ids)
				res, err := l.CheckRate(ids[id], 1, limit)
				if err != nil && err != weir.ErrFull {
					return err
				}
				mine.add(id, res, err)
				if rnd.IntN(40) == 0 {
					clock.Add(1)
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	sum := outcomes{counters: map[counterKey]*counter{}}
	for _, o := range each {
		sum.merge(o)
	}
	return sum
}

// Slots are recycled as fast as possible while the janitor runs: no hit is lost or counted in
// another bucket.
func TestRecycledSlotsCountExactly(t *testing.T) {
	const limit = 15
	calls := slow.N(20_000, 500_000, 10_000_000)
	var clock atomic.Int64
	l := newLimiter(t, weir.Config{
		Now: func() time.Time {
			return at(clock.Load())
		}, MaxBuckets: 2, Timeout: 1, SweepEvery: time.Microsecond,
	})
	start := time.Now()
	saw := recycle(t, l, &clock, calls, limit)
	s := l.Stats()
	t.Logf("%d calls in %v: %d admitted, %d denied, %d ErrFull, in %d buckets; %d sweeps, %d swept",
		calls,
		time.Since(start).Round(time.Millisecond), saw.admitted, saw.denied, saw.full, len(saw.counters),
		s.Sweeps, s.Swept)
	assert.Zero(t, saw.wrong(limit), "windows in which not exactly min(asked, limit) was admitted")
	assert.EqualValues(t, saw.admitted, s.Allowed)
	assert.EqualValues(t, saw.denied, s.Denied)
	assert.EqualValues(t, saw.full, s.Full)
	assert.Positive(t, saw.denied)
	assert.Greater(t, len(saw.counters), calls/200, "too few slots were recycled")

	clock.Add(1_000_000)
	l.Sweep()
	assert.Zero(t, l.Stats().Buckets)
	for b := range l.Buckets() {
		t.Errorf("%q remains", b.ID)
	}
	s = l.Stats()
	assert.EqualValues(t, saw.admitted, s.Allowed, "after the sweep")
	assert.EqualValues(t, saw.denied, s.Denied, "after the sweep")
}

// withoutGeneration recycles two slots, and counts in a slot without checking that it still has the
// same bucket.
type withoutGeneration struct {
	now   func() time.Time
	slots [2]struct {
		key   atomic.Pointer[counterKey]
		count atomic.Int64
	}
}

func (l *withoutGeneration) CheckRate(id string, scale, limit int64) (res weir.Result, err error) {
	now := l.now().UnixMilli()
	key := counterKey{int(id[0]), now + scale}
	s := &l.slots[key.id%2]
	if k := s.key.Load(); k == nil || *k != key {
		if k != nil && k.end > now {
			return res, weir.ErrFull
		}
		if s.key.CompareAndSwap(k, &key) {
			s.count.Store(0)
		}
	}
	res.ExpiresAt = at(key.end)
	for n := s.count.Load(); n < limit; n = s.count.Load() {
		yield()
		if s.count.CompareAndSwap(n, n+1) {
			res.State = weir.Allow
			break
		}
	}
	return res, nil
}

func TestRecycledSlotsControlWithoutGenerationIsRejected(t *testing.T) {
	const limit = 15
	var clock atomic.Int64
	l := &withoutGeneration{now: func() time.Time { return at(clock.Load()) }}
	saw := recycle(t, l, &clock, 20_000, limit)
	assert.Positive(t, saw.wrong(limit))
}
