package weir

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Nobody knows when a place of this process is released: no denial names an instant, however long
// the place is held. Where enough leases end, that is known.
func TestADenialOfWorkInFlightNamesNoInstantThatNobodyKnows(t *testing.T) {
	const unknown = time.Duration(math.MaxInt64)
	for name, c := range map[string]struct {
		places, leases int // of 4, a lease each minute
		cost           uint64
		want           time.Duration // unknown: no instant
		never          bool
	}{
		"all places are held":                {places: 4, want: unknown},
		"the last lease ends":                {places: 3, leases: 1, want: time.Minute},
		"a lease ends, and one is held":      {places: 3, leases: 1, cost: 2, want: unknown},
		"leases only":                        {leases: 4, want: time.Minute},
		"a cost over the limit":              {cost: 5, want: unknown, never: true},
		"a cost over the limit, and a place": {places: 1, cost: 5, want: unknown, never: true},
	} {
		t.Run(name, func(t *testing.T) {
			l, now := manual(t)
			m := l.InFlight().Limit(4)
			for range c.places {
				_, err := m.Hold(t.Context(), "k")
				require.NoError(t, err)
			}
			// takes them at the instant that is now
			lease := func() {
				for range c.leases {
					MustRun(t, CounterOf(m), &Request{Key: "k"})
				}
			}
			for _, later := range []time.Duration{0, time.Hour, 365 * 24 * time.Hour} {
				*now = now.Add(later)
				lease()
				r := &Request{Key: "k", Cost: c.cost}
				var denied *DeniedError
				_, err := Hold(t.Context(), m, r)
				require.ErrorAs(t, err, &denied)
				res, _, err := ops.Acquire(t.Context(), CounterOf(m), r)
				require.NoError(t, err)
				peek := MustPeek(t, m, r)
				for _, got := range []*Result{&denied.Result, res, peek} {
					assert.Equal(t, c.want, got.RetryAfter(*now))
					assert.Equal(t, c.want == unknown, got.ExpiresAt.IsZero())
				}
				assert.Equal(t, c.never, errors.Is(denied, ErrLimit))
				switch {
				case c.never:
					assert.ErrorContains(t, denied, "the cost can never pass")
				case c.want == unknown:
					assert.ErrorContains(t, denied, "in flight, until one is released")
				default:
					assert.ErrorContains(t, denied, "at the latest")
				}
				if c.cost == 0 {
					out, err := m.Peek(t.Context(), "k")
					require.NoError(t, err)
					assert.Equal(t, c.want, out.Wait)
				}
				if c.leases > 0 { // they end
					*now = now.Add(time.Minute)
				}
			}
		})
	}
}

// The leases of a snapshot end at an instant.
func TestLoadedPlacesEnd(t *testing.T) {
	l, now := manual(t)
	_, err := l.InFlight().Limit(1).Hold(t.Context(), "k")
	require.NoError(t, err)
	var saved bytes.Buffer
	require.NoError(t, l.Save(&saved))
	other, at := manual(t)
	require.NoError(t, other.Load(&saved))
	*at = now.Add(20 * time.Second)
	_, err = other.InFlight().Limit(1).Hold(t.Context(), "k")
	var denied *DeniedError
	require.ErrorAs(t, err, &denied)
	assert.Equal(t, 40*time.Second, denied.Result.RetryAfter(*at))
}

// Who waits for a place waits until its release, and for no instant before.
func TestHoldWaitWaitsForTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := MustNew(t, Config{})
		m := l.InFlight().Limit(1)
		first, err := m.Hold(t.Context(), "k")
		require.NoError(t, err)
		time.AfterFunc(5*time.Hour, func() { assert.NoError(t, first.Release(t.Context())) })
		start := time.Now()
		second, err := m.HoldWait(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, 5*time.Hour, time.Since(start))
		require.NoError(t, second.Release(t.Context()))
		_, err = HoldWait(t.Context(), m, &Request{Key: "k", Cost: 2})
		require.ErrorIs(t, err, ErrLimit)
		require.NoError(t, l.Close())
	})
}
