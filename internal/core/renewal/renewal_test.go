package renewal

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// call is a Caller that takes a while.
type call struct {
	Item
	takes, again time.Duration
	calls        int
	at           []time.Duration
	begun        time.Time
	busy, most   *atomic.Int64
}

func (c *call) Call() time.Duration {
	c.calls++
	c.at = append(c.at, time.Since(c.begun))
	if c.busy != nil {
		n := c.busy.Add(1)
		for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
		}
		defer c.busy.Add(-1)
	}
	time.Sleep(c.takes) // in a bubble
	return c.again
}

const second = time.Second

func TestItemsAreCalledWhenTheyAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Renewer
		begun := time.Now()
		slow := &call{again: 10 * second, takes: second, begun: begun}
		fast := &call{again: 3 * second, begun: begun}
		once := &call{begun: begun}
		r.Add(&slow.Item, slow, 10*second)
		r.Add(&fast.Item, fast, 2*second)
		r.Add(&once.Item, once, 5*second)
		time.Sleep(12500 * time.Millisecond)
		r.Remove(&fast.Item)
		time.Sleep(20 * second)
		r.Remove(&slow.Item)
		r.Remove(&once.Item) // which is gone
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []time.Duration{2 * second, 5 * second, 8 * second, 11 * second}, fast.at)
		assert.Equal(t, []time.Duration{10 * second, 21 * second, 32 * second}, slow.at)
		assert.Equal(t, []time.Duration{5 * second}, once.at)
		assert.False(t, r.running, "no goroutine is left")

		again := &call{begun: begun}
		r.Add(&again.Item, again, second)
		time.Sleep(2 * second)
		synctest.Wait()
		assert.Equal(t, 1, again.calls, "it starts again")
		r.Remove(&again.Item)
	})
}

// An item that is removed while it is called is not called again.
func TestRemoveDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Renewer
		c := &call{again: second, takes: 10 * second, begun: time.Now()}
		r.Add(&c.Item, c, second)
		time.Sleep(5 * second)
		r.Remove(&c.Item)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, c.calls)
		assert.False(t, r.running)
	})
}

// Many items that are due at one time are called Width at a time, and none is forgotten.
func TestAtMostWidthCallsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Renewer
		var busy, most atomic.Int64
		items := make([]*call, 10*Width)
		for i := range items {
			items[i] = &call{again: time.Minute, takes: second, busy: &busy, most: &most, begun: time.Now()}
			r.Add(&items[i].Item, items[i], second)
		}
		time.Sleep(12 * second)
		synctest.Wait()
		for _, c := range items {
			assert.Equal(t, 1, c.calls)
			r.Remove(&c.Item)
		}
		assert.EqualValues(t, Width, most.Load())
		synctest.Wait()
		assert.False(t, r.running)
	})
}

// An item that is due before those that are waited for is called when it is due.
func TestAnItemThatIsDueSoonerIsCalledFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Renewer
		begun := time.Now()
		late := &call{again: time.Hour, begun: begun}
		r.Add(&late.Item, late, time.Minute)
		time.Sleep(second)
		soon := &call{begun: begun}
		r.Add(&soon.Item, soon, second)
		time.Sleep(2 * time.Minute)
		r.Remove(&late.Item)
		synctest.Wait()
		assert.Equal(t, []time.Duration{2 * second}, soon.at)
		assert.Equal(t, []time.Duration{time.Minute}, late.at)
		assert.False(t, r.running)
	})
}

// Whatever is added, repeated and removed, each item is called at its instants and at no others.
func TestEachOfManyItemsIsCalledWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Renewer
		random := rand.New(rand.NewPCG(1, 2))
		begun := time.Now()
		var all []*call
		var want [][]time.Duration
		for range 300 {
			c := &call{begun: begun, again: time.Duration(1+random.IntN(60)) * second}
			first := time.Duration(1+random.IntN(100)) * second
			ends := time.Since(begun) + time.Duration(random.IntN(200))*second
			ends += second / 4 // no item is due then
			var due []time.Duration
			for at := time.Since(begun) + first; at < ends; at += c.again {
				due = append(due, at)
			}
			all, want = append(all, c), append(want, due)
			r.Add(&c.Item, c, first)
			time.AfterFunc(ends-time.Since(begun), func() { r.Remove(&c.Item) })
			time.Sleep(time.Duration(random.IntN(3)) * second)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for i, c := range all {
			assert.Equal(t, want[i], c.at, i)
		}
		assert.False(t, r.running)
	})
}

// hung is a Place of which each renewal takes until its context ends.
type hung struct {
	begun time.Time
	at    []time.Duration // of the renewals: begin and end
}

func (h *hung) Renew(ctx context.Context) (bool, error) {
	h.at = append(h.at, time.Since(h.begun))
	<-ctx.Done()
	h.at = append(h.at, time.Since(h.begun))
	return false, ctx.Err()
}

func (h *hung) Release(context.Context) error { return nil }

// A renewal that hangs ends after a third of the lease, so that the next try comes within it.
func TestARenewalThatHangsLeavesTimeForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, k := &hung{begun: time.Now()}, new(Kept)
		k.Start(nil, time.Minute, p)
		time.Sleep(69 * second)
		assert.NoError(t, k.Release(t.Context()))
		want := []time.Duration{20 * second, 40 * second, 45 * second, 65 * second}
		assert.Equal(t, want, p.at, "no renewal runs now")
		synctest.Wait()
		select {
		case <-k.Lost():
			t.Error("an error is no loss")
		default:
		}
	})
}
