package room

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRoomIsReserved(t *testing.T) {
	r := New(1, func() {})
	assert.False(t, overshoots(r))
	assert.Zero(t, r.Used())
}

func TestRoomControlOvershoots(t *testing.T) {
	assert.True(t, overshoots(new(checkThenTake)))
}

// checkThenTake checks for room and then takes it.
type checkThenTake struct{ n atomic.Int64 }

func (r *checkThenTake) Take() bool {
	if r.n.Load() > 0 {
		return false
	}
	runtime.Gosched()
	r.n.Add(1)
	return true
}

func (r *checkThenTake) Give()       { r.n.Add(-1) }
func (r *checkThenTake) Used() int64 { return r.n.Load() }

// overshoots reports whether more than one of 8 callers has taken the only place at any time.
func overshoots(r interface {
	Take() bool
	Give()
	Used() int64
}) bool {
	var over atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := 0; i < 300_000 && !over.Load(); i++ {
				if !r.Take() {
					continue
				}
				if i%8 == 0 {
					runtime.Gosched() // lets the others run, even on one processor
				}
				if r.Used() > 1 {
					over.Store(true)
				}
				r.Give()
			}
		})
	}
	wg.Wait()
	return over.Load()
}
