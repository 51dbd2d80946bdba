package redislimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// OnCall is called once for each call of the server, and not for requests rejected before that.
func TestOnCall(t *testing.T) {
	server := redistest.Start(t)
	var calls []redislimit.Class
	store := storeOn(t, dial(t, redislimit.Options(server.Addr)),
		redislimit.Config{OnCall: func(took time.Duration, err error) {
			assert.Positive(t, took)
			calls = append(calls, redislimit.Classify(err))
		}})
	s := store.FixedWindow()
	r := &weir.Request{Key: "a", Limit: 10, Duration: time.Hour}
	mustRun(t, s, r)
	require.NoError(t, ops.Reset(t.Context(), s, r))
	_, err := s.Run(t.Context(), &weir.Request{Limit: 10, Duration: time.Hour})
	require.ErrorIs(t, err, weir.ErrID)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Run(canceled, r)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []redislimit.Class{redislimit.None, redislimit.None}, calls)
	_, err = ops.Hits(t.Context(), store.List(), r)
	require.NoError(t, err)
	assert.Equal(t, []redislimit.Class{redislimit.None}, calls[2:])
	server.Kill()
	_, err = s.Run(t.Context(), r)
	require.Error(t, err)
	require.Error(t, ops.Reset(t.Context(), s, r))
	assert.Equal(t, []redislimit.Class{redislimit.Down, redislimit.Down}, calls[3:])
}
