package tally

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A tally is its additions, of either sign, before it has stripes and after.
func TestTallyAddsUp(t *testing.T) {
	var sum Tally
	want := int64(0)
	add := func(n int64) {
		sum.Add(sum.One(), n)
		want += n
		require.Equal(t, want, int64(sum.Load()))
	}
	for _, n := range []int64{1, 1, -5, 1 << 48, -1 << 62, -1 << 62, -1 << 62, 1} {
		add(n)
	}
	require.Nil(t, sum.stripes.Load(), "nobody else adds")
	sum.Add(sum.One()-1, 3) // another addition came in between
	want += 3
	require.NotNil(t, sum.stripes.Load())
	one := sum.One()
	for _, n := range []int64{0, 1, -1 << 62, -1 << 62, -1 << 62, 1 << 50, 7} {
		add(n)
	}
	assert.Equal(t, one, sum.One(), "it is written no more")
}

// Additions at once are all counted, those that meet the first stripes too.
func TestTallyAddsUpConcurrently(t *testing.T) {
	for range 100 {
		var sum, want Tally
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				rnd := rand.New(rand.NewPCG(1, uint64(i)))
				mine := int64(0)
				for range 100 {
					n := rnd.Int64N(10) - 3
					sum.Add(sum.One(), n)
					mine += n
				}
				want.Stripe().Add(mine)
			})
		}
		all.Wait()
		require.Equal(t, want.Load(), sum.Load())
	}
}
