// Package offenders finds the callers who are denied most, in bounded memory.
//
//	worst := offenders.New(offenders.Config{})
//	strategy := worst.Watch(limiter.SlidingWindow())
//	…
//	for _, o := range worst.Top(20) { fmt.Println(o.Key, o.Denied) }
//
// It is the Space-Saving algorithm (Metwally, Agrawal and El Abbadi, 2005). While no more than Size
// different keys were denied, the counts are exact. From then on a new key takes the place of the
// rarest and inherits its count, as its Error. So of N denials in all:
//
//   - a key was denied at most Denied times, and at least Denied less Error;
//   - no Error exceeds N/Size;
//   - a key that was denied more than N/Size times is there.
//
// The first 16,384 denials are all counted. Later ones are sampled: one in Sample, drawn at random,
// counts as that many, so that a flood of them costs next to nothing. This adds an error of its own
// to a count of n: for all but one key in 10,000 it is less than 4*sqrt(n*Sample) + 3*Sample. With
// a Sample of 1 there is none.
package offenders

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/frequent"
)

// Config bounds a Table. The zero value holds the documented defaults.
type Config struct {
	// Size is how many keys are kept; 0 means 1000. Each takes about 150 bytes and the key. Too small
	// and rare keys crowd out frequent ones: an Error is up to one Size-th of all denials.
	Size int

	// Sample: one denial in so many is counted, once there were many. 0 means 128; it is rounded up to
	// a power of two. 1 counts all, at 50 to 300 ns each under one mutex. Larger costs less and errs
	// more.
	Sample int

	// Now is the clock of Offender.Last; nil means time.Now.
	Now func() time.Time
}

// Offender is a caller who was denied.
type Offender struct {
	Key    string
	Denied uint64    // at most so often
	Error  uint64    // and at least so much less often
	Last   time.Time // the last denial that was counted
}

// exact is how many denials are all counted.
const exact = 1 << 14

// Table counts denials. Make one with [New]. It is safe for concurrent use.
type Table struct {
	now  func() time.Time
	mask uint64      // of a random number: zero one time in Sample
	many atomic.Bool // there were so many denials that they are sampled

	mu   sync.Mutex
	keys *frequent.Keys[time.Time] // guarded by mu; with the time of the last denial
}

// New returns a Table that has counted nothing. A Size or Sample below 0 is taken for 0.
func New(cfg Config) *Table {
	t := &Table{now: cfg.Now, mask: 127}
	if t.now == nil {
		t.now = time.Now
	}
	if cfg.Sample > 0 {
		for t.mask = 0; t.mask+1 < uint64(cfg.Sample); {
			t.mask = t.mask<<1 | 1
		}
	}
	size := 1000
	if cfg.Size > 0 {
		size = cfg.Size
	}
	t.keys = frequent.New[time.Time](size)
	return t
}

// Denied counts a denial of key.
func (t *Table) Denied(key string) {
	switch {
	case !t.many.Load():
		if t.add(key, 1) == exact {
			t.many.Store(t.mask > 0)
		}
	case rand.Uint64()&t.mask == 0:
		t.add(key, t.mask+1)
	}
}

// add counts n denials of key, and returns how many there were in all.
func (t *Table) add(key string, n uint64) (total uint64) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys.Add(key, n).Value = now
	return t.keys.Total()
}

// Top returns the n keys that were denied most, first the most, and how many denials there were in
// all. It copies and sorts all keys.
func (t *Table) Top(n int) (top []Offender, total uint64) {
	t.mu.Lock()
	all := make([]Offender, 0, len(t.keys.All()))
	for _, c := range t.keys.All() {
		all = append(all, Offender{Key: c.Key, Denied: c.N, Error: c.Error, Last: c.Value})
	}
	total = t.keys.Total()
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b Offender) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Error, b.Error),
			strings.Compare(a.Key, b.Key))
	})
	return all[:min(max(0, n), len(all))], total
}

// Watch returns s as it is, but that its denials are counted, under the keys of the requests. To
// watch a limits.All, watch the strategies of its limits.
func (t *Table) Watch(s weir.Strategy) weir.Strategy {
	w := &watched{counter: weir.CounterOf(s), table: t}
	w.about = w.counter.About().By(w)
	return w
}

// watched counts the denials of a Counter.
type watched struct {
	counter weir.Counter
	about   *weir.About
	table   *Table
}

// About implements weir.Counter.
func (w *watched) About() *weir.About { return w.about }

// Run implements weir.Strategy.
func (w *watched) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, err := w.counter.Run(ctx, r)
	if err == nil && res.State == weir.Deny {
		w.table.Denied(r.Key)
	}
	return res, err
}

// Do implements weir.Counter.
func (w *watched) Do(ctx context.Context, ops []*weir.Op) {
	w.counter.Do(ctx, ops)
	for _, op := range ops {
		decides := op.Verb == weir.OpTake || op.Verb == weir.OpLookup
		if decides && op.Err == nil && op.Result.State == weir.Deny {
			w.table.Denied(op.Key)
		}
	}
}
