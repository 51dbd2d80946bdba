package interop_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/weirgo/weir/adapters/xrate"
)

var _ flowcontrol.RateLimiter = (*xrate.Flow)(nil)

// A Flow answers as client-go's own token bucket does.
func TestFlowIsARateLimiter(t *testing.T) {
	for name, f := range map[string]flowcontrol.RateLimiter{
		"client-go": flowcontrol.NewTokenBucketRateLimiter(0.01, 2),
		"xrate":     xrate.NewFlow(newBucket(t, 1, 100*time.Second, 2)),
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, float32(0.01), f.QPS())
			f.Accept()
			require.NoError(t, f.Wait(context.Background()))
			assert.False(t, f.TryAccept())
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			assert.Error(t, f.Wait(ctx), "a token is 100 s away")
		})
	}
}

// Stop ends waits, which client-go's own does not.
func TestFlowStops(t *testing.T) {
	bucket := newBucket(t, 1, time.Hour, 1)
	flow := xrate.NewFlow(bucket)
	flow.Accept()
	accepted, waited := make(chan struct{}), make(chan error)
	go func() { flow.Accept(); close(accepted) }()
	go func() { waited <- flow.Wait(context.Background()) }()
	for bucket.Tokens() > -2 { // both wait for a token
		time.Sleep(time.Millisecond) // between two looks
	}
	flow.Stop()
	<-accepted
	assert.ErrorIs(t, <-waited, context.Canceled)
	assert.False(t, flow.TryAccept())
	assert.Error(t, flow.Wait(context.Background()))
	flow.Accept()
}
