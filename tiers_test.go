package weir

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTiersCountTogetherInAnyOrder(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	a := MustTiers(t, l, Tier{3, time.Minute}, Tier{10, time.Hour})
	b := MustTiers(t, l, Tier{10, time.Hour}, Tier{3, time.Minute})
	c := MustTiers(t, l, Tier{10, time.Hour}, Tier{3, time.Minute}, Tier{10, time.Second})
	r := &Request{Key: "id"}
	for i, s := range []*Tiers{a, b, a} {
		res, tier, err := runTier(t.Context(), s, r)
		require.NoError(t, err)
		assert.True(t, res.Allowed())
		assert.EqualValues(t, i+1, res.TotalRequests)
		assert.Equal(t, Tier{3, time.Minute}, tier, "it has the least left")
	}
	res, tier, err := runTier(t.Context(), b, r)
	require.NoError(t, err)
	assert.False(t, res.Allowed())
	assert.Equal(t, Tier{3, time.Minute}, tier)
	res = MustRun(t, c, r)
	assert.True(t, res.Allowed(), "other durations count by themselves")
}

func TestTiersReturnTheFirstOfEqualTiers(t *testing.T) {
	for _, given := range [][]Tier{
		{{5, time.Second}, {5, 2 * time.Second}}, {{5, 2 * time.Second}, {5, time.Second}},
	} {
		l, _ := newTestLimiter(t, Config{})
		s := MustTiers(t, l, given...)
		_, tier, err := runTier(t.Context(), s, &Request{Key: "id"})
		require.NoError(t, err)
		assert.Equal(t, given[0], tier)
		res, tier, err := runTier(t.Context(), s, &Request{Key: "id", Cost: 6})
		require.NoError(t, err)
		assert.True(t, res.ExpiresAt.IsZero(), "it can never pass")
		assert.Equal(t, given[0], tier)
	}
}

func TestTiersCreateNothingForImpossibleCosts(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	s := MustTiers(t, l, Tier{3, time.Second}, Tier{10, time.Minute})
	res := MustRun(t, s, &Request{Key: "id", Cost: 4})
	assert.False(t, res.Allowed())
	assert.True(t, res.ExpiresAt.IsZero())
	assert.Zero(t, l.Stats().Buckets)
}

func TestTiersDenyAHugeCostWithAHugeCount(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	s := MustTiers(t, l, Tier{10, time.Second}, Tier{20, time.Minute})
	r := &Request{Key: "id", Cost: math.MaxUint64}
	require.NoError(t, ops.Charge(t.Context(), s, r))
	res := MustRun(t, s, r)
	assert.False(t, res.Allowed())
	assert.True(t, res.ExpiresAt.IsZero())
	assert.Equal(t, uint64(math.MaxInt64), res.TotalRequests)
}

func TestTiersWithAResolutionCountByThemselves(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	coarse := MustTiers(t, l, Tier{3, time.Minute}, Tier{10, time.Hour})
	fine := coarse.Resolution(6 * time.Second)
	finer := fine.Resolution(time.Second)
	for name, s := range map[string]*Tiers{"coarse": coarse, "fine": fine, "finer": finer} {
		res := MustRun(t, s, &Request{Key: "id"})
		assert.EqualValues(t, 1, res.TotalRequests, name)
	}
	again := coarse.Resolution(time.Second)
	res, tier, err := runTier(t.Context(), again, &Request{Key: "id"})
	require.NoError(t, err)
	assert.EqualValues(t, 2, res.TotalRequests, "the same Durations and Resolution")
	assert.Equal(t, Tier{3, time.Minute}, tier)
	assert.Equal(t, time.Hour, coarse.About().Longest)
	assert.Equal(t, time.Hour+time.Second, finer.About().Longest)
}

// Tiers that cannot be fail as other strategies with such numbers do: Limit panics, and NewLimit
// and each call fail, which count nothing.
func TestTiersThatCannotBe(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	for name, s := range map[string]*Tiers{
		"no tiers":     l.Tiers(),
		"no duration":  l.Tiers(Tier{Limit: 1}),
		"microseconds": l.Tiers(Tier{1, time.Microsecond}),
		"two of one":   l.Tiers(Tier{1, time.Second}, Tier{2, time.Minute}, Tier{2, time.Second}),
		"resolution":   l.Tiers(Tier{1, time.Second}).Resolution(300 * time.Millisecond),
		"of bad ones":  l.Tiers().Resolution(time.Second),
	} {
		_, err := NewLimit(s, 0, 0)
		require.ErrorIs(t, err, ErrScale, name)
		_, err = s.Run(t.Context(), &Request{Key: "id"})
		require.ErrorIs(t, err, ErrScale, name)
		require.ErrorIs(t, ops.Charge(t.Context(), s, &Request{Key: "id"}), ErrScale, name)
		assert.PanicsWithValue(t, err.Error(), func() { s.Limit() }, name)
	}
	assert.Zero(t, l.Stats().Allowed)
	assert.True(t, l.Tiers(Tier{1, time.Second}).Limit().Allow("id"), "the control")
}

func TestTiersRejectAResolutionThatDoesNotDivideTheirSlices(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	s := MustTiers(t, l, Tier{3, 2 * time.Second}, Tier{10, 3 * time.Second})
	for _, d := range []time.Duration{-1, 0, time.Microsecond, 300 * time.Millisecond, 2 * time.Second,
		400 * 24 * time.Hour} {
		_, err := NewLimit(s.Resolution(d), 0, 0)
		assert.ErrorIs(t, err, ErrScale, "%v", d)
	}
	for _, d := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second} {
		_, err := NewLimit(s.Resolution(d), 0, 0)
		assert.NoError(t, err, "%v", d)
	}
}
