package httplimit

import (
	"net/http"
	"sync"

	"golang.org/x/sync/semaphore"
)

// inFlight bounds the requests inside the handler at one time, of all clients and of each client.
// Its memory is proportional to the requests in flight.
type inFlight struct {
	all       *semaphore.Weighted // nil: no bound
	perClient int                 // 0: no bound

	mu      sync.Mutex
	clients map[string]int // guarded by mu; requests in flight of each key, at least 1
}

// newInFlight returns nil if there is no bound.
func newInFlight(all, perClient int) *inFlight {
	if all == 0 && perClient == 0 {
		return nil
	}
	f := &inFlight{perClient: perClient, clients: make(map[string]int)}
	if all > 0 {
		f.all = semaphore.NewWeighted(int64(all))
	}
	return f
}

// slot is what one request holds of the bounds until leave.
type slot struct {
	all    bool   // a slot of all
	client string // a slot of this key; empty: none
}

// enter takes a slot for the request in c and records it in c.slot, or ends the request and returns
// false.
func (f *inFlight) enter(c *call, clientStatus int) bool {
	if f.all != nil {
		if !f.all.TryAcquire(1) {
			c.end(Busy, http.StatusServiceUnavailable, nil)
			return false
		}
		c.slot.all = true
	}
	if f.perClient > 0 && len(c.key) > 0 && !f.enterClient(c) {
		c.end(Busy, clientStatus, nil)
		return false
	}
	return true
}

func (f *inFlight) enterClient(c *call) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clients[string(c.key)] >= f.perClient {
		return false
	}
	c.slot.client = string(c.key)
	f.clients[c.slot.client]++
	return true
}

// leave releases a slot.
func (f *inFlight) leave(s *slot) {
	if s.all {
		f.all.Release(1)
	}
	if s.client == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clients[s.client]--; f.clients[s.client] == 0 {
		delete(f.clients, s.client)
	}
}
