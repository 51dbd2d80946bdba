package fleet_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/proofs/fleet"
)

// simulate runs a fleet in a bubble.
func simulate(t *testing.T, f fleet.Fleet) (out fleet.Outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		out, err = f.Run(1)
		require.NoError(t, err)
		time.Sleep(time.Minute) // for late answers, which nobody waits for any more
	})
	return out
}

// small returns a fleet whose busiest callers exceed their limit.
func small() fleet.Fleet {
	return fleet.Fleet{
		Instances: 4, Limit: 400, Window: time.Second, Callers: 20, Skew: 1.2, Rate: 4000,
		Length: 3 * time.Second, RoundTrip: time.Millisecond, Denials: true,
	}
}

// Without an outage no limit is exceeded, and at most one block of each instance stays unused,
// while instances come and go, whatever the costs of requests that wait for one another.
func TestBoundsOfLeases(t *testing.T) {
	slow.Test(t)
	for _, cost := range []uint64{1, 20} {
		for _, churn := range []time.Duration{0, 300 * time.Millisecond} {
			before := 0.5 // 0.7 with cached denials alone
			for _, block := range []int{10, 100} {
				t.Run(fmt.Sprint("costs to ", cost, ", churn ", churn, ", block ", block), func(t *testing.T) {
					f := small()
					f.Cost, f.Churn, f.Block = cost, churn, block*int(cost+1)/2
					if cost > 1 { // many wait at once
						f.Rate, f.RoundTrip, f.Limit = 4*f.Rate, 5*time.Millisecond, 4*f.Limit*(cost+1)/2
					}
					out := simulate(t, f)
					t.Logf("%+v", out)
					require.Greater(t, out.Exhausted, 3, "callers exceeded their limits")
					assert.Zero(t, out.Over)
					assert.LessOrEqual(t, out.Unused, f.MaxUnused())
					if churn == 0 {
						assert.GreaterOrEqual(t, out.Early, 0.95)
					}
					commands := float64(out.Commands) / float64(out.Decisions)
					assert.Less(t, commands, before, "larger leases spare round trips")
					before = commands
				})
			}
		}
	}
}

// What leases of each strategy save on three instances with skewed callers, and how many requests
// are denied that are admitted without leases. docs/machines.md has the figures of the log of the
// longest form.
func TestLeasesOfEachStrategy(t *testing.T) {
	slow.Test(t)
	for name, of := range map[string]func(*weir.Limiter) weir.Counter{
		"FixedWindow":   func(l *weir.Limiter) weir.Counter { return l.FixedWindow() },
		"SlidingWindow": func(l *weir.Limiter) weir.Counter { return l.SlidingWindow() },
		"TokenBucket":   func(l *weir.Limiter) weir.Counter { return l.TokenBucket(0) },
	} {
		f := large()
		f.Instances, f.Strategy, f.Length = 3, of, time.Duration(slow.N(0, 4, 12))*time.Second
		without := simulate(t, f)
		for _, block := range []int{10, 100} {
			f.Block = block
			out := simulate(t, f)
			saved := 1 - float64(out.Commands)/float64(without.Commands)
			denied := (float64(without.Admitted) - float64(out.Admitted)) / float64(without.Decisions)
			t.Logf("%s, lease of %d: %.1f %% of %d calls saved, %.2f %% of %d requests wrongly denied", name,
				block,
				100*saved, without.Commands, 100*denied, without.Decisions)
			assert.Greater(t, saved, 0.35)
			assert.Less(t, denied, 0.001)
		}
	}
}

// During an outage at most the bound documented for fallback.New is admitted, with leases and
// without, while instances come and go.
func TestBoundsOfAnOutage(t *testing.T) {
	slow.Test(t)
	for _, instances := range []int{1, 4} {
		for _, block := range []int{0, 100} {
			t.Run(fmt.Sprint(instances, " instances, block ", block), func(t *testing.T) {
				f := small()
				f.Instances, f.Block = instances, block
				if instances > 1 {
					f.Churn = 300 * time.Millisecond
				}
				f.OutageFrom, f.OutageTo = 700*time.Millisecond, 2300*time.Millisecond
				out := simulate(t, f)
				t.Logf("%+v", out)
				assert.LessOrEqual(t, f.Limit+out.Over, f.Bound())
				assert.Less(t, out.Commands, out.Decisions*3/4, "Redis was down for half of the time")
				assert.Greater(t, out.Admitted, uint64(0))
			})
		}
	}
}

// The negative control: if each instance uses the whole limit, the simulation detects that the
// bound is exceeded.
func TestBoundRejectsInstancesThatDoNotShare(t *testing.T) {
	slow.Test(t)
	f := small()
	f.OutageFrom, f.OutageTo, f.Configured = 700*time.Millisecond, 2300*time.Millisecond, 1
	assert.Greater(t, f.Limit+simulate(t, f).Over, f.Bound())
}

// A sample of the callers costs as many commands for a decision as all of them, within 5 %. Fewer
// callers, the control, do not.
func TestSampleEqualsTheWhole(t *testing.T) {
	slow.Test(t)
	f := fleet.Fleet{
		Instances: 3, Block: 20, Denials: true, Limit: 500, Window: time.Second, Length: time.Second,
		Callers: 100_000, Skew: 1, Rate: 30_000, RoundTrip: time.Millisecond,
	}
	each := func(f fleet.Fleet) float64 {
		out := simulate(t, f)
		return float64(out.Commands) / float64(out.Decisions)
	}
	whole := each(f)
	f.Sample = 500
	assert.InEpsilon(t, whole, each(f), 0.05)
	f.Callers, f.Sample = 1000, 0
	assert.Greater(t, math.Abs(each(f)-whole), 0.05*whole, "fewer callers are others")
}

// Calls wait for a Redis that is busy, and one that is too busy decides little.
func TestRedisQueues(t *testing.T) {
	slow.Test(t)
	f := small()
	f.Denials, f.Service = false, 200*time.Microsecond // 5,000 commands a second
	out := simulate(t, f)
	assert.Zero(t, out.Local, "at four fifths of its capacity")
	f.Service = 400 * time.Microsecond
	out = simulate(t, f)
	assert.Greater(t, out.Local, out.Decisions/2)
}
