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
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/internal/testkit/ops"
)

// verdicts returns a decider's decisions on one caller's requests at the given instants.
func verdicts(t *testing.T, r rule.Rule, at []time.Time) []bool {
	t.Helper()
	j, err := limitSpec(r, 1<<10, 1).open(nil, 2)
	require.NoError(t, err)
	defer j.close()
	out := make([]bool, len(at))
	for i, when := range at {
		denied, h := []bool{false}, hit{caller: 1, ns: when.UnixNano()}
		if !counted(i) {
			h.marks = uncounted
		}
		require.NoError(t, j.decide(h, denied))
		out[i] = !denied[0]
	}
	return out
}

// counted reports whether request i counts: three in four do.
func counted(i int) bool { return i%4 != 3 }

// instants returns random times of requests: in bursts, and a few microseconds around every round
// number.
func instants(seed uint64, start time.Time) []time.Time {
	rnd := rand.New(rand.NewPCG(seed, 4))
	out := make([]time.Time, 120)
	at := start
	for i := range out {
		if rnd.IntN(3) == 0 {
			at = at.Add(time.Duration(rnd.IntN(2500))*time.Millisecond +
				time.Duration(1+rnd.IntN(999))*time.Microsecond)
		}
		out[i] = at
	}
	return out
}

// TestLeakyBucketIsReplayedAsItRuns checks that the decider of a leaky bucket, in which nothing
// waits, admits the same requests as Run, where callers wait.
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

// waited sends requests at these instants through a leaky bucket's Run, each in its own goroutine.
func waited(t *testing.T, r rule.Rule, at []time.Time) []bool {
	t.Helper()
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer l.Close()
	strategy, err := rule.On(r, l)
	require.NoError(t, err)
	ask := r.Request()
	ask.Key = "caller"
	out := make([]bool, len(at))
	for i, when := range at {
		time.Sleep(time.Until(when))
		synctest.Wait() // requests whose turn has come have left the queue
		if !counted(i) {
			out[i] = admits(t, strategy, &ask)
			continue
		}
		go func() {
			res, err := strategy.Run(context.Background(), &ask)
			if assert.NoError(t, err) {
				out[i] = res.Allowed()
			}
		}()
		synctest.Wait() // the request is queued or denied
	}
	time.Sleep(time.Hour) // empty the queue
	synctest.Wait()
	return out
}

// admits reports whether a leaky bucket would admit a request that does not count, which would
// wait. Peek ignores the queue.
func admits(t *testing.T, s weir.Strategy, ask *weir.Request) bool {
	t.Helper()
	res, err := ops.Peek(context.Background(), s, ask)
	require.NoError(t, err)
	return res.Allowed()
}

// TestDecidersEqualWeir compares deciders with weir's strategies: all strategies, before and
// after the Unix epoch.
func TestDecidersEqualWeir(t *testing.T) {
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
		assert.Len(t, said, 4*5, "every strategy decides differently")
	}
}

// Days of 23 and 25 hours, and windows of half an hour, as in weir's strategy.
func TestCalendarDeciderEqualsWeir(t *testing.T) {
	for text, start := range map[string]time.Time{
		"3/hour@Australia/Lord_Howe":        time.Date(2026, 10, 3, 0, 0, 0, 0, time.UTC),
		"20/day@America/Sao_Paulo":          time.Date(2018, 11, 2, 0, 0, 0, 0, time.UTC),
		"20/day:6h@Europe/Berlin":           time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		"30/month:31:6h30m@Europe/Berlin":   time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		"100/week:7@Pacific/Apia":           time.Date(2011, 12, 1, 0, 0, 0, 0, time.UTC),
		"30/month:31@Europe/Berlin":         time.Date(1950, 1, 1, 0, 0, 0, 0, time.UTC),
		"n=1000/year:229@Asia/Kathmandu":    time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		"0/month@UTC":                       time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		"9223372036854775807/month:2@Japan": time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		r, err := rule.Parse(text, rule.Defaults{Strategy: rule.Default})
		require.NoError(t, err)
		random := rand.New(rand.NewPCG(1, 2))
		at := make([]time.Time, 2000)
		for i := range at {
			start = start.Add(time.Duration(random.Int64N(int64(r.Tiers[0].Duration) / 20)))
			at[i] = start
		}
		want := weirSays(t, r, at)
		require.Equal(t, want, verdicts(t, r, at), text)
		if n := r.Tiers[0].Limit; n > 0 && n < 100 {
			assert.Contains(t, want, true)
			assert.Contains(t, want, false)
		}
	}
}

// weirSays returns the decisions of weir's strategy on one caller's requests, of which three in
// four count.
func weirSays(t *testing.T, r rule.Rule, at []time.Time) []bool {
	t.Helper()
	var requests []request
	for _, when := range at {
		requests = append(requests, request{at: when, ip: "caller"})
	}
	return strategySays(t, r, requests, counted)
}

// strategySays returns the decisions of weir's strategy on requests.
func strategySays(
	t *testing.T, r rule.Rule, requests []request, counted func(i int) bool,
) (allowed []bool) {
	t.Helper()
	var now time.Time
	l, err := weir.New(weir.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	defer l.Close()
	strategy, err := rule.On(r, l)
	require.NoError(t, err)
	ask := r.Request()
	for i, one := range requests {
		now, ask.Key = one.at, one.ip
		run := strategy.Run
		if !counted(i) {
			run = func(ctx context.Context, r *weir.Request) (*weir.Result, error) { return ops.Peek(ctx, strategy, r) }
		}
		res, err := run(context.Background(), &ask)
		require.NoError(t, err)
		allowed = append(allowed, res.Allowed())
	}
	return allowed
}

// TestDecidersThatDifferAreRejected checks that the test above fails for a broken decider.
func TestDecidersThatDifferAreRejected(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 59, 0, time.UTC)
	right, err := rule.Cross([]string{"4/2s"},
		[]string{rule.Fixed, rule.Sliding, rule.Log, rule.Token}, 2)
	require.NoError(t, err)
	for i, r := range right {
		other := right[(i+1)%len(right)]
		require.NotEqual(t, weirSays(t, r, instants(0, start)), verdicts(t, other, instants(0, start)),
			"%s for %s", other, r)
	}
}
