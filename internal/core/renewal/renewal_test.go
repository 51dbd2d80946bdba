package renewal

import (
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
