package proxy

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

// TestBindingAgreesWithRunTier checks that binding finds the same tier as weir's RunTier
// from ExpiresAt alone, at any time within a slice.
func TestBindingAgreesWithRunTier(t *testing.T) {
	tiers := []weir.Tier{{Limit: 10, Duration: 2 * time.Second},
		{Limit: 25, Duration: 6 * time.Second},
		{Limit: 40, Duration: 15 * time.Second}}
	now := time.UnixMilli(1_700_000_000_123)
	l, err := weir.New(weir.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	defer l.Close()
	s, err := l.Tiers(tiers...)
	require.NoError(t, err)
	p := &tiered{backend: s, tiers: tiers, slice: sliceOf(tiers), most: 40}
	require.Equal(t, time.Second, p.slice)

	rng := rand.New(rand.NewPCG(1, 2))
	named := map[time.Duration]int{}
	for range 20_000 {
		now = now.Add(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
		res, want, err := s.RunTier(t.Context(),
			&weir.Request{Key: "k", Limit: 40, Duration: 15 * time.Second})
		require.NoError(t, err)
		got := p.adjust(res, now)
		assert.Equal(t, res.State, got.State)
		assert.Equal(t, res.ExpiresAt, got.ExpiresAt)
		if !res.Allowed() {
			assert.EqualValues(t, 40, got.TotalRequests, "nothing is left")
			continue
		}
		require.Equal(t, want, p.tier(res.ExpiresAt, now))
		require.Equal(t, want.Limit-res.TotalRequests, p.most-got.TotalRequests, "the same remainder")
		named[want.Duration]++
	}
	assert.Len(t, named, 3, "each tier was the binding one: %v", named)
}
