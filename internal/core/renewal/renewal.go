// Package renewal repeats calls when they are due, many of them by one goroutine.
package renewal

import (
	"container/heap"
	"sync"
	"time"
)

// Width is how many calls of one Renewer are made at one time.
const Width = 16

// Renewer makes the calls of its items when they are due. It has one goroutine while there are
// items, and one for each call that is under way, Width at most. The zero value is ready. It is
// safe for concurrent use.
type Renewer struct {
	mu      sync.Mutex
	items   items // guarded by mu, as all below
	running bool
	busy    int           // calls under way
	wake    chan struct{} // receives when the goroutine has to look again
}

// Caller has the call of an item. It returns when to call again; 0: never. An item is called once
// at a time.
type Caller interface{ Call() (again time.Duration) }

// Item is a call that is repeated. It is part of its Caller, and guarded by its Renewer.
type Item struct {
	caller Caller
	due    time.Time
	place  int // in the heap, from 1; 0: not there
	done   bool
}

// Add has c called after a Duration, and so on, until the item is removed.
func (r *Renewer) Add(it *Item, c Caller, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	it.caller, it.due = c, time.Now().Add(after)
	r.push(it)
}

// Remove ends the calls of an item, but one that is under way.
func (r *Renewer) Remove(it *Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	it.done = true
	if it.place > 0 {
		heap.Remove(&r.items, it.place-1)
	}
	if len(r.items)+r.busy == 0 {
		r.signal()
	}
}

// push adds an item, and starts the goroutine, or has it look if the item is the first. mu is held.
func (r *Renewer) push(it *Item) {
	heap.Push(&r.items, it)
	if !r.running {
		r.running, r.wake = true, make(chan struct{}, 1)
		go r.run(r.wake)
	} else if it.place == 1 {
		r.signal()
	}
}

// signal has the goroutine look again. mu is held.
func (r *Renewer) signal() {
	select {
	case r.wake <- struct{}{}:
	default: // it has yet to look, or there is none
	}
}

// run ends when there are neither items nor calls under way.
func (r *Renewer) run(wake <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-wake:
		}
		next, ok := r.start()
		if !ok {
			return
		}
		timer.Reset(next)
	}
}

// idle is how long the goroutine sleeps if only an item or the end of a call can give it work.
const idle = time.Hour

// start starts the calls that are due, and returns when to look again.
func (r *Renewer) start() (next time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for now := time.Now(); len(r.items) > 0 && r.busy < Width; {
		it := r.items[0]
		if left := it.due.Sub(now); left > 0 {
			return left, true
		}
		heap.Pop(&r.items)
		r.busy++
		go r.do(it)
	}
	r.running = len(r.items) > 0 || r.busy > 0
	return idle, r.running
}

// do makes the call of an item.
func (r *Renewer) do(it *Item) {
	var again time.Duration
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.busy--
		if again > 0 && !it.done {
			it.due = time.Now().Add(again)
			r.push(it)
		}
		r.signal() // there is room for a call, or nothing left to do
	}()
	again = it.caller.Call()
}

// items is a heap by due.
type items []*Item

func (h items) Len() int           { return len(h) }
func (h items) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h items) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

// Push is part of heap.Interface.
func (h *items) Push(x any) {
	it := x.(*Item)
	it.place = len(*h) + 1
	*h = append(*h, it)
}

// Pop is part of heap.Interface.
func (h *items) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1], it.place = nil, 0
	*h = old[:len(old)-1]
	return it
}
