package remainder

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTake(t *testing.T) {
	var r Remainder
	r.Set(5)
	for _, c := range []struct{ n, taken, before uint64 }{{2, 2, 5}, {0, 0, 3}, {9, 3, 3}, {1, 0, 0}} {
		taken, before := r.Take(c.n)
		assert.Equal(t, c.taken, taken)
		assert.Equal(t, c.before, before)
	}
}

func TestConcurrentTakesAddUp(t *testing.T) {
	var r Remainder
	r.Set(1000)
	var sum atomic.Uint64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				taken, _ := r.Take(3)
				sum.Add(taken)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1000, sum.Load())
}
