package near_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/near"
)

func TestDenialsAreRepeated(t *testing.T) {
	clock, server := minute(t)
	d := near.NewDenials(server, near.DenialsConfig{Size: 8, Skew: -1, Now: clock.Now})
	most(t, d, hundred)
	clock.Advance(20 * time.Second)
	calls := server.calls.Load()
	for range 1000 {
		assert.Equal(t, weir.Result{TotalRequests: 100, ExpiresAt: clock.Now().Add(40 * time.Second)},
			ask(t, d, hundred))
	}
	assert.Equal(t, calls, server.calls.Load(), "repeated requests do not reach the server")
	assert.EqualValues(t, 1000, d.Repeated())
	for name, other := range map[string]weir.Request{
		"another key":      {Key: "b", Limit: 100, Duration: time.Minute},
		"another Duration": {Key: "a", Limit: 100, Duration: time.Hour},
		"another Limit":    {Key: "a", Limit: 101, Duration: time.Minute},
		"another Cost":     {Key: "a", Limit: 100, Duration: time.Minute, Cost: 2},
	} {
		calls := server.calls.Load()
		ask(t, d, other)
		assert.Equal(t, calls+1, server.calls.Load(), name)
	}
}

// A cached denial is not used at or after the instant it states, even if the clock is off by Skew.
func TestDenialsEndInTime(t *testing.T) {
	for given, skew := range map[time.Duration]time.Duration{-1: 0, 0: near.DefaultSkew,
		time.Second: time.Second} {
		clock, server := minute(t)
		d := near.NewDenials(server, near.DenialsConfig{Size: 8, Skew: given, Now: clock.Now})
		most(t, d, hundred)
		calls := server.calls.Load()
		clock.Advance(time.Minute - skew - 1)
		ask(t, d, hundred)
		assert.Equal(t, calls, server.calls.Load())
		clock.Advance(1)
		ask(t, d, hundred)
		assert.Equal(t, calls+1, server.calls.Load())
	}
}

func TestDenialsEndWithARefundOrReset(t *testing.T) {
	clock, server := minute(t)
	d, r := near.NewDenials(server, near.DenialsConfig{Size: 8, Now: clock.Now}), hundred
	taken := ask(t, d, r)
	most(t, d, r)
	assert.NoError(t, ops.Refund(t.Context(), d, &r, &taken))
	assert.EqualValues(t, 1, most(t, d, r))
	assert.NoError(t, ops.Reset(t.Context(), d, &r))
	assert.EqualValues(t, 100, most(t, d, r))
}

// A set of the cache holds two denials, so almost as many denied keys as the cache holds are kept
// from the server.
func TestDenialsOfManyAttackers(t *testing.T) {
	clock, server := minute(t)
	d := near.NewDenials(server, near.DenialsConfig{Size: 1024, Now: clock.Now})
	attack := func() {
		for n := range 512 {
			ask(t, d, weir.Request{Key: strconv.Itoa(n), Limit: 1, Duration: time.Minute})
		}
	}
	attack()
	attack()
	calls := server.calls.Load()
	for range 10 {
		attack()
	}
	assert.Less(t, server.calls.Load()-calls, uint64(5120/5))
}

// A denial decided before a refund and received after it is not cached.
func TestDenialsAndARefundMeanwhile(t *testing.T) {
	clock, server := minute(t)
	d, one := near.NewDenials(server, near.DenialsConfig{Size: 8, Now: clock.Now}),
		weir.Request{Key: "a", Limit: 1,
			Duration: time.Minute}
	taken := ask(t, d, one)
	server.afterRun(func() { assert.NoError(t, ops.Refund(t.Context(), d, &one, &taken)) })
	assert.False(t, ask(t, d, one).Allowed())
	assert.True(t, ask(t, d, one).Allowed())
}
