package main

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/weirgo/weir"
)

// The stores of work in flight. A decision takes a place, and gives it back.
var (
	weirHolds      = store{"InFlight", modWeir, openHolds}
	semaphoreStore = store{"semaphore", modXSync, openSemaphores}
)

// openHolds has no size: a sweep removes the callers who hold nothing.
func openHolds(q quota) instance {
	l := must(weir.New(weir.Config{}))
	jobs, ctx := l.InFlight().Limit(uint64(q.limit)), context.Background()
	return instance{
		caller: func() decide {
			return func(id string) bool {
				held, err := jobs.Hold(ctx, id)
				return err == nil && held.Release(ctx) == nil
			}
		},
		close: func() { must(0, l.Close()) },
	}
}

// openSemaphores keeps a semaphore for each id in a sync.Map, and never removes one.
func openSemaphores(q quota) instance {
	var m sync.Map
	in := shared(func(id string) bool {
		s, ok := m.Load(id)
		if !ok {
			s, _ = m.LoadOrStore(id, semaphore.NewWeighted(q.limit))
		}
		held := s.(*semaphore.Weighted)
		if !held.TryAcquire(1) {
			return false
		}
		held.Release(1)
		return true
	})
	in.size = func() int { return length(&m) }
	return in
}
