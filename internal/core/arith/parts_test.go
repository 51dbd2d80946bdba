package arith

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParts(t *testing.T) {
	type call struct{ n, before uint64 }
	var calls []call
	give := Parts(5, func(_ context.Context, n, before uint64) error {
		calls = append(calls, call{n, before})
		return nil
	})
	for _, n := range []uint64{2, 0, 9, 1} {
		assert.NoError(t, give(t.Context(), n))
	}
	assert.Equal(t, []call{{2, 0}, {3, 2}}, calls)
	assert.NoError(t, Parts(0, nil)(t.Context(), 1), "of nothing")
}

func TestConcurrentPartsAddUp(t *testing.T) {
	var sum atomic.Uint64
	give := Parts(1000, func(_ context.Context, n, _ uint64) error { sum.Add(n); return nil })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				_ = give(t.Context(), 3)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1000, sum.Load())
}
