package servercmd

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGCPercentLeavesRoom(t *testing.T) {
	for _, c := range []struct {
		inUse uint64
		want  int
	}{
		{0, 400}, {3 << 20, 400}, {5 << 20, 300}, {15 << 20, 100}, {16 << 20, 100}, {1 << 30, 100},
	} {
		assert.Equal(t, c.want, gcPercent(c.inUse), c.inUse)
		if c.inUse > 4<<20 && c.inUse < 8<<20 {
			room := float64(c.inUse) * float64(gcPercent(c.inUse)) / 100
			assert.InEpsilon(t, heapRoom, room, .2, c.inUse)
		}
	}
}

// percent returns the GOGC in force.
func percent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

func TestARoomIsLeftUntilTheEnd(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(55))
	ctx, end := context.WithCancel(t.Context())
	var leaving sync.WaitGroup
	leaving.Go(func() { leaveRoom(ctx) })
	is := func(want func(int) bool) func() bool {
		return func() bool {
			runtime.GC()
			return want(percent())
		}
	}
	require.Eventually(t, is(func(p int) bool { return p > 100 }), 10*time.Second, time.Millisecond)
	large := make([]byte, 64<<20)
	require.Eventually(t, is(func(p int) bool { return p == 100 }), 10*time.Second, time.Millisecond,
		"much is in use")
	runtime.KeepAlive(large)
	require.Eventually(t, is(func(p int) bool { return p > 100 }), 10*time.Second, time.Millisecond)
	end()
	leaving.Wait()
	assert.Equal(t, 55, percent())
}

func TestAGivenGOGCStays(t *testing.T) {
	before := percent()
	t.Setenv("GOGC", "55")
	leaveRoom(t.Context())
	assert.Equal(t, before, percent())
}
