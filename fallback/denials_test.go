package fallback_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
)

func TestDenialCache(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{DenialCache: 8, Skew: -1}, whole)
	i, r := f.instances[0], hundred
	ask(t, i, r)
	most(t, i, r)
	f.clock.Advance(20 * time.Second)
	asked := f.server.runs.Load()
	for range 1000 {
		res, by := ask(t, i, r)
		assert.Equal(t, fallback.FromDenials, by)
		assert.Equal(t, weir.Result{TotalRequests: 100, ExpiresAt: f.clock.Now().Add(40 * time.Second)}, res)
	}
	assert.Equal(t, asked, f.server.runs.Load(), "an attack does not reach primary")
	for name, other := range map[string]weir.Request{
		"another key":      {Key: "b", Limit: 100, Duration: time.Minute},
		"another Duration": {Key: "a", Limit: 100, Duration: time.Hour},
		"another Limit":    {Key: "a", Limit: 101, Duration: time.Minute},
		"another Cost":     {Key: "a", Limit: 100, Duration: time.Minute, Cost: 2},
	} {
		_, by := ask(t, i, other)
		assert.Equal(t, fallback.FromPrimary, by, name)
	}
}

// A denial is never repeated at or after the instant that primary stated, by a clock that may be off by Skew.
func TestDenialCacheEndsInTime(t *testing.T) {
	for _, skew := range []time.Duration{-1, 0, time.Second} {
		f := newFleet(t, 1, fixedWindow, fallback.Config{DenialCache: 8, Skew: skew}, whole)
		i, r := f.instances[0], hundred
		most(t, i, r)
		switch {
		case skew == 0:
			skew = fallback.DefaultSkew
		case skew < 0:
			skew = 0
		}
		f.clock.Advance(time.Minute - skew - 1)
		_, by := ask(t, i, r)
		assert.Equal(t, fallback.FromDenials, by)
		f.clock.Advance(1)
		_, by = ask(t, i, r)
		assert.Equal(t, fallback.FromPrimary, by)
	}
}

func TestDenialCacheIsToldOfRefundsAndResets(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{DenialCache: 8}, whole)
	i, r := f.instances[0], hundred
	taken, _ := ask(t, i, r)
	most(t, i, r)
	assert.NoError(t, i.Refund(t.Context(), &r, &taken))
	assert.EqualValues(t, 1, most(t, i, r))
	assert.NoError(t, i.Reset(t.Context(), &r))
	assert.EqualValues(t, 100, most(t, i, r))
}

// Two denials of one place do not drive each other out: as many attackers as are kept, nearly, are kept from primary.
func TestDenialCacheHoldsManyAttackers(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{DenialCache: 1024}, whole)
	attack := func() {
		for n := range 512 {
			ask(t, f.instances[0], weir.Request{Key: strconv.Itoa(n), Limit: 1, Duration: time.Minute, Cost: 1})
		}
	}
	attack()
	attack()
	asked := f.server.runs.Load()
	for range 10 {
		attack()
	}
	assert.Less(t, f.server.runs.Load()-asked, uint64(5120/5))
}

// A denial that is given before a refund and arrives after it is not kept.
func TestDenialCacheAndARefundMeanwhile(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{DenialCache: 8}, whole)
	i, one := f.instances[0], weir.Request{Key: "a", Limit: 1, Duration: time.Minute}
	taken, _ := ask(t, i, one)
	late := f.server
	late.then = func() {
		late.then = nil
		assert.NoError(t, i.Refund(t.Context(), &one, &taken))
	}
	res, _ := ask(t, i, one)
	assert.False(t, res.Allowed())
	res, by := ask(t, i, one)
	assert.True(t, res.Allowed())
	assert.Equal(t, fallback.FromPrimary, by)
}
