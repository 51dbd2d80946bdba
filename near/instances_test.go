package near_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/near"
)

// Leases inside of a fallback and around one know its number of instances: as few requests are
// denied wrongly as if their own configuration had it.
func TestLeasesKnowTheInstancesOfAFallback(t *testing.T) {
	// in a bubble no call is late, however busy the machine is
	synctest.Test(t, testLeasesKnowTheInstances)
}

func testLeasesKnowTheInstances(t *testing.T) {
	for name, compose := range map[string]func(s, local weir.Strategy, lease near.LeaseConfig,
		cfg fallback.Config) (weir.Strategy, error){
		"inside": func(s, local weir.Strategy, lease near.LeaseConfig,
			cfg fallback.Config) (weir.Strategy, error) {
			return fallback.New(near.NewLeases(near.NewDenials(s, near.DenialsConfig{Now: cfg.Now}), lease), local,
				cfg)
		},
		"around": func(s, local weir.Strategy, lease near.LeaseConfig,
			cfg fallback.Config) (weir.Strategy, error) {
			f, err := fallback.New(s, local, cfg)
			return near.NewLeases(f, lease), err
		},
	} {
		// Of as many requests as the limit allows: how many are denied.
		wrongly := func(lease near.LeaseConfig, instances fallback.Config) (denied int) {
			for seed := range uint64(20) {
				rng := rand.New(rand.NewPCG(seed, 3))
				clock, server := minute(t)
				lease.Block, lease.Now, instances.Now = 50, clock.Now, clock.Now
				var fleet []weir.Strategy
				for range 3 {
					s, err := compose(server, limiterOn(t, clock.Now).FixedWindow(), lease, instances)
					require.NoError(t, err)
					fleet = append(fleet, s)
				}
				for range hundred.Limit {
					if !ask(t, fleet[rng.IntN(3)], hundred).Allowed() {
						denied++
					}
				}
			}
			return denied
		}
		own := wrongly(near.LeaseConfig{Instances: 3}, fallback.Config{Instances: 3})
		assert.Equal(t, own, wrongly(near.LeaseConfig{}, fallback.Config{Instances: 3}), name)
		assert.Equal(t, own, wrongly(near.LeaseConfig{},
			fallback.Config{InstancesFunc: func() int { return 3 }}), name)
		assert.Equal(t, own, wrongly(near.LeaseConfig{Instances: 3,
			InstancesFunc: func() int { return 0 }}, fallback.Config{}), name)
		alone := wrongly(near.LeaseConfig{Instances: 1}, fallback.Config{Instances: 3})
		assert.Less(t, 4*own, alone, "%s: its own number has precedence", name)
		t.Logf("%s: of 2000 requests %d are denied, %d if leases take the instance for the only one",
			name, own, alone)
	}
}
