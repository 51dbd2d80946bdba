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
	j, err := limitSpec(r, 1<<10, 1).open(nil, 2)
	require.NoError(t, err)
	defer j.close()
	out := make([]bool, len(at))
	for i, when := range at {
		denied := []bool{false}
		require.NoError(t, j.decide(question{caller: 1, ns: when.UnixNano(), counted: counted(i)}, denied))
		out[i] = !denied[0]
	}
	return out
}

// counted leaves one request in four uncounted.
func counted(i int) bool { return i%4 != 3 }

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

// The replay of a leaky bucket, in which nothing waits, says what Run says to callers that do wait.
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

// waited sends requests at these instants to a leaky bucket's Run, each from a goroutine of its
// own.
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
		if !counted(i) {
			out[i] = admits(t, strategy, &ask, r)
			continue
		}
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

// admits says if a leaky bucket would let a request wait that is not to be counted. Peek leaves the
// queue out.
func admits(t *testing.T, s weir.Strategy, ask *weir.Request, r rule.Rule) bool {
	t.Helper()
	res, err := s.(weir.Peeker).Peek(context.Background(), ask)
	require.NoError(t, err)
	return res.Allowed()
}

// A judge says what weir's strategy says, for every strategy and on either side of the Unix epoch.
func TestJudgesSayWhatWeirSays(t *testing.T) {
	rules, err := rule.Cross([]string{"4/2s", "1/1500ms", "0/1s", "3/1s,4/3s", "7/10s"},
		[]string{rule.Fixed, rule.Sliding, rule.Log, rule.Token}, 2)
	require.NoError(t, err)
	require.Len(t, rules, 17)
	for _, year := range []int{2026, 1950} {
		said := map[string]bool{}
		for _, r := range rules {
			for seed := range uint64(5) {
				at := instants(seed, time.Date(year, 1, 1, 0, 0, 59, 0, time.UTC))
				want := weirSays(t, r, at)
				require.Equal(t, want, verdicts(t, r, at), "%s, seed %d", r, seed)
				if r.Tiers[0].Limit == 4 {
					said[fmt.Sprint(want)] = true
				}
			}
		}
		assert.Len(t, said, 4*5, "the strategies differ, so none was taken for another")
	}
}

// weirSays asks weir's strategy about requests of one caller.
func weirSays(t *testing.T, r rule.Rule, at []time.Time) []bool {
	t.Helper()
	now := at[0]
	l, err := weir.New(weir.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	defer l.Close()
	strategy, ask, err := r.On(l)
	require.NoError(t, err)
	ask.Key = "caller"
	out := make([]bool, len(at))
	for i, when := range at {
		now = when
		run := strategy.Run
		if !counted(i) {
			run = strategy.(weir.Peeker).Peek
		}
		res, err := run(context.Background(), &ask)
		require.NoError(t, err)
		out[i] = res.Allowed()
	}
	return out
}

// A broken judge is found out: the test above can fail.
func TestJudgesAreFoundOut(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 59, 0, time.UTC)
	right, err := rule.Cross([]string{"4/2s"}, []string{rule.Fixed, rule.Sliding, rule.Log, rule.Token}, 2)
	require.NoError(t, err)
	for i, r := range right {
		other := right[(i+1)%len(right)]
		require.NotEqual(t, weirSays(t, r, instants(0, start)), verdicts(t, other, instants(0, start)),
			"%s for %s", other, r)
	}
}
