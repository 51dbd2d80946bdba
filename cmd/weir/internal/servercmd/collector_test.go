package servercmd

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

func TestGCPercentLeavesRoom(t *testing.T) {
	for _, c := range []struct {
		inUse uint64
		want  int
	}{
		{0, 1600}, {1 << 20, 1600}, {3 << 20, 500}, {15 << 20, 100}, {16 << 20, 100}, {1 << 30, 100},
	} {
		assert.Equal(t, c.want, gcPercent(c.inUse), c.inUse)
		if c.inUse > 1<<20 && c.inUse < 8<<20 {
			room := float64(c.inUse) * float64(gcPercent(c.inUse)) / 100
			assert.InEpsilon(t, heapRoom, room, .2, c.inUse)
		}
	}
}

// percent returns the GOGC in force.
func percent() int {
	p := debug.SetGCPercent(math.MaxInt32)
	debug.SetGCPercent(p)
	return p
}

func TestARoomIsLeftUntilTheEnd(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(55))
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		go leaveRoom(ctx)
		synctest.Wait()
		assert.GreaterOrEqual(t, percent(), 100)
		end()
		synctest.Wait()
		assert.Equal(t, 55, percent())
	})
}

func TestAGivenGOGCStays(t *testing.T) {
	before := percent()
	t.Setenv("GOGC", "55")
	leaveRoom(t.Context())
	assert.Equal(t, before, percent())
}
