package fallback

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
)

// However many instants debts lapse at, few are kept apart, and what is owed is never less than it is, nor more for longer
// than an eighth of a Duration.
func TestDebtsAreBounded(t *testing.T) {
	r := &weir.Request{Key: "a", Limit: 1, Duration: time.Minute}
	type hit struct {
		cost  uint64
		until time.Time
	}
	for _, span := range []time.Duration{time.Minute, 2 * time.Minute, time.Hour} {
		rng := rand.New(rand.NewPCG(1, uint64(span)))
		var a account
		var hits []hit
		now := time.Unix(-100, 5) // across the epoch
		for range 2000 {
			now = now.Add(time.Duration(rng.Int64N(int64(time.Second))))
			h := hit{1 + rng.Uint64N(5), now.Add(time.Duration(rng.Int64N(int64(span))) + 1)}
			hits = append(hits, h)
			a.owe(r, h.cost, h.until, now)
			require.LessOrEqual(t, len(a.debts), maxDebts)
			least, most := uint64(0), uint64(0)
			for _, h := range hits {
				if h.until.After(now) {
					least += h.cost
				}
				if h.until.Add(r.Duration / 8).After(now) {
					most += h.cost
				}
			}
			owed := a.owed(now)
			require.GreaterOrEqual(t, owed, least)
			if span <= 2*time.Minute {
				require.LessOrEqual(t, owed, most)
			}
		}
	}
}

func TestGrain(t *testing.T) {
	r := &weir.Request{Duration: 8 * time.Second}
	for at, want := range map[time.Duration]time.Duration{
		0: 0, 1: time.Second, time.Second - 1: time.Second, time.Second: time.Second,
		-1: 0, -time.Second: -time.Second, -time.Second - 1: -time.Second,
	} {
		assert.Equal(t, want, grain(r, time.Unix(0, int64(at))).Sub(time.Unix(0, 0)), "%v", at)
	}
}
