package replay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// verdicts are what a judge says of requests of one caller that come at these instants.
func verdicts(t *testing.T, r rule.Rule, at []time.Time) []bool {
	t.Helper()
	var clock clock
	clock.set(at[0].UnixNano())
	j, err := newJudge(r, &clock, 1<<10)
	require.NoError(t, err)
	defer j.limiter.Close()
	out := make([]bool, len(at))
	for i, when := range at {
		clock.set(when.UnixNano())
		out[i], err = j.admit(0, "caller", when.UnixNano())
		require.NoError(t, err)
	}
	return out
}

// instants makes up when requests come: in bursts, and a few microseconds off every round number.
func instants(seed uint64, start time.Time) []time.Time {
	rnd := rand.New(rand.NewPCG(seed, 4))
	out := make([]time.Time, 120)
	at := start
	for i := range out {
		if rnd.IntN(3) == 0 {
			at = at.Add(time.Duration(rnd.IntN(2500))*time.Millisecond + time.Duration(1+rnd.IntN(999))*time.Microsecond)
		}
		out[i] = at
	}
	return out
}

// The replay of a leaky bucket, which waits for nobody, must say what Run says to callers who do wait.
func TestLeakyBucketIsReplayedAsItRuns(t *testing.T) {
	for seed := range uint64(20) {
		for _, burst := range []uint64{1, 2, 5} {
			synctest.Test(t, func(t *testing.T) {
				rules, err := rule.Cross([]string{"4/2s"}, []string{rule.Leaky}, burst)
				require.NoError(t, err)
				at := instants(seed, time.Now())
				want := waited(t, rules[0], at)
				require.Equal(t, want, verdicts(t, rules[0], at), "seed %d, burst %d", seed, burst)
				require.Contains(t, want, false, "seed %d: somebody is denied", seed)
				require.Contains(t, want, true)
			})
		}
	}
}

// waited sends requests at these instants to a leaky bucket's Run, each from a goroutine of its own.
func waited(t *testing.T, r rule.Rule, at []time.Time) []bool {
	t.Helper()
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer l.Close()
	strategy, ask, err := r.On(l)
	require.NoError(t, err)
	ask.Key = "caller"
	out := make([]bool, len(at))
	for i, when := range at {
		time.Sleep(time.Until(when))
		synctest.Wait() // those whose turn it was have left
		go func() {
			res, err := strategy.Run(context.Background(), &ask)
			if assert.NoError(t, err) {
				out[i] = res.Allowed()
			}
		}()
		synctest.Wait() // it has joined the queue or been sent away
	}
	time.Sleep(time.Hour) // the queue runs dry
	synctest.Wait()
	return out
}

// The other strategies are asked as they are: what a judge says is what Run says.
func TestJudgeAsksTheStrategy(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 59, 0, time.UTC)
	rules, err := rule.Cross([]string{"4/2s", "3/1s,4/3s"}, []string{rule.Fixed, rule.Sliding, rule.Log, rule.Token}, 2)
	require.NoError(t, err)
	require.Len(t, rules, 5)
	said := map[string]bool{}
	for _, r := range rules {
		for seed := range uint64(5) {
			at := instants(seed, start)
			now := start
			l, err := weir.New(weir.Config{Now: func() time.Time { return now }})
			require.NoError(t, err)
			strategy, ask, err := r.On(l)
			require.NoError(t, err)
			ask.Key = "caller"
			want := make([]bool, len(at))
			for i, when := range at {
				now = when
				res, err := strategy.Run(context.Background(), &ask)
				require.NoError(t, err)
				want[i] = res.Allowed()
			}
			require.NoError(t, l.Close())
			require.Equal(t, want, verdicts(t, r, at), "%s, seed %d", r, seed)
			said[fmt.Sprint(want)] = true
		}
	}
	assert.Len(t, said, 5*5, "the strategies differ, so none was taken for another")
}
