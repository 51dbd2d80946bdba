package turns

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// join returns a caller that has joined the queue, with a deadline.
func join(deadline time.Time) *Caller {
	c := &Caller{Deadline: deadline}
	c.Join(ID{Of: "s"})
	return c
}

// A caller leaves the queue at a cost that does not depend on its length: it looks at its neighbors
// only.
func TestLeavingIsCheap(t *testing.T) {
	var callers []*Caller
	for range 1001 {
		callers = append(callers, join(NoDeadline))
	}
	leaves := callers[500]
	q := leaves.queue
	for i, c := range callers {
		if i != 500 {
			c.place.Value = nil // to look at it would panic
		}
	}
	assert.NotPanics(t, func() { leaves.Leave(time.Time{}) })
	assert.Equal(t, 1000, q.callers.Len())
	assert.Empty(t, callers[0].wake, "the first is the same")
	assert.NotPanics(t, func() { callers[0].AsksAt(time.Now(), time.Minute) }, "no caller has a deadline")
	delete(queues.byID, q.id)
	waiting.Store(0)
}

// A signal that comes before its receiver sleeps is not lost.
func TestCallersKeepTheirSignal(t *testing.T) {
	first, second := join(NoDeadline), join(NoDeadline)
	first.Leave(time.Time{})
	assert.Len(t, second.wake, 1)
	Signal(ID{Of: "s"}) // does not block
	second.Leave(time.Time{})
	assert.Zero(t, Queues())
	assert.NotPanics(t, func() { Signal(ID{Of: "s"}) }, "nobody waits")
}

// The first looks at the others once for each deadline that is too near.
func TestQueueKnowsItsEarliestDeadline(t *testing.T) {
	now := time.Now()
	at := func(seconds time.Duration) time.Time { return now.Add(seconds * time.Second) }
	var first *Caller
	for _, after := range []time.Duration{4, 2, 3, 5} {
		if c := join(at(after)); first == nil {
			first = c
		}
	}
	for _, next := range []struct{ next, earliest time.Duration }{{2, 2}, {3, 3}, {3, 3}, {4, 4},
		{5, 5}} {
		first.AsksAt(at(next.next), next.next*time.Second)
		assert.Equal(t, at(next.earliest), first.queue.earliest)
	}
	first.AsksAt(at(6), 6*time.Second)
	assert.Equal(t, NoDeadline, first.queue.earliest)
	delete(queues.byID, first.queue.id)
}

// Where the first asks again soon, it does not look at all others each time.
func TestAskingFromALongQueueIsCheap(t *testing.T) {
	now := time.Now()
	var first, last *Caller
	for range 1000 {
		if last = join(now); first == nil {
			first = last
		}
	}
	first.AsksAt(now.Add(1), time.Millisecond-1)
	assert.Empty(t, last.wake)
	first.AsksAt(now.Add(1), time.Millisecond)
	assert.Len(t, last.wake, 1)
	delete(queues.byID, first.queue.id)
}

// The next caller has its turn when the first leaves, and knows that it has waited.
func TestTurnsAreInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := join(NoDeadline), join(NoDeadline)
		waited, err := first.Await(t.Context())
		require.NoError(t, err)
		assert.False(t, waited)
		turn := make(chan bool, 1)
		go func() {
			waited, err := second.Await(context.Background())
			assert.NoError(t, err)
			turn <- waited
		}()
		synctest.Wait()
		assert.Empty(t, turn)
		first.Leave(time.Time{})
		assert.True(t, <-turn)
		second.Leave(time.Time{})
	})
}

// What cannot be identified has no queue that others find.
func TestWithoutAnIDEachWaitsAlone(t *testing.T) {
	a, b := &Caller{Deadline: NoDeadline}, &Caller{Deadline: NoDeadline}
	a.Join(ID{})
	b.Join(ID{})
	for _, c := range []*Caller{a, b} {
		waited, err := c.Await(t.Context())
		require.NoError(t, err)
		assert.False(t, waited)
	}
	queued, _ := Find(ID{})
	assert.False(t, queued)
	a.Leave(time.Time{})
	b.Leave(time.Time{})
	assert.Zero(t, Queues())
}
