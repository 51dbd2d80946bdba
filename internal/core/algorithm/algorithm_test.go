package algorithm

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	second = int64(time.Second)
	minute = int64(time.Minute)
)

// step is a row of a table: at this time after the Unix epoch a request of this cost gets this
// verdict.
type step struct {
	name string
	at   time.Duration
	cost int64
	want Verdict
}

func admitted(total int64, expires time.Duration) Verdict {
	return Verdict{Allowed: true, Total: total, At: int64(expires)}
}

func denied(total int64, until time.Duration) Verdict {
	return Verdict{Total: total, At: int64(until)}
}

func deniedForever(total int64) Verdict { return Verdict{Total: total, At: Never} }

// play makes the requests of a table one after another. decide admits what passes.
func play(t *testing.T, p Params, steps []step, decide func(p Params, now int64) Verdict) {
	t.Helper()
	for _, s := range steps {
		p.Cost = s.cost
		require.Equal(t, s.want, decide(p, int64(s.at)), s.name)
	}
}

// requireExact checks the instant of a verdict on p at now. after decides on other requests after
// the decision, and counts none of them: a denial ends at the instant, and not 1 ns sooner, and so
// does all that was admitted.
func requireExact(
	t *testing.T, v Verdict, p Params, now int64, after func(p Params, now int64) Verdict,
) {
	t.Helper()
	if v.At == Never {
		require.True(t, p.ExceedsLimit())
		return
	}
	require.Greater(t, v.At, now)
	if v.Allowed {
		p.Limit, p.Cost = math.MaxInt64>>32, 1
		require.EqualValues(t, 1, after(p, v.At).Total, "something counts at the end")
		require.Greater(t, after(p, v.At-1).Total, int64(1), "nothing counts before the end")
		return
	}
	require.True(t, after(p, v.At).Allowed, "denied at the end")
	require.False(t, after(p, v.At-1).Allowed, "admitted before the end")
}

// saturate returns n, or the bound that it passed.
func saturate(n *big.Int) int64 {
	for _, bound := range []int64{math.MinInt64, math.MaxInt64} {
		if b := big.NewInt(bound); n.CmpAbs(b) >= 0 && n.Sign() == b.Sign() {
			return bound
		}
	}
	return n.Int64()
}

// requireExactStates checks the instants of random decisions of an algorithm with states of fixed
// size.
func requireExactStates(t *testing.T, a interface {
	Decide(s State, p Params, now int64) (Verdict, State)
}, next func(rnd *rand.Rand, p Params, now int64) (Params, int64)) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		s, p, now := None, Params{}, int64(0)
		for range 20 {
			p, now = next(rnd, p, now)
			v, after := a.Decide(s, p, now)
			if !v.Allowed {
				require.Equal(t, s, after, "a denial changes nothing")
			}
			s = after
			requireExact(t, v, p, now, func(p Params, now int64) Verdict {
				v, _ := a.Decide(s, p, now)
				return v
			})
		}
	}
}

// fewMs returns the next of random requests in a period of a few milliseconds.
func fewMs(rnd *rand.Rand, p Params, now int64) (Params, int64) {
	if p.Scale == 0 {
		p.Scale, p.Limit, now = 1+rnd.Int64N(5), rnd.Int64N(6), rnd.Int64N(20*msec)-10*msec
	}
	p.Cost = 1 + rnd.Int64N(4)
	return p, now + rnd.Int64N(2*msec)
}

func TestCountsFitAState(t *testing.T) {
	assert.Equal(t, State{0, math.MinInt64, math.MinInt64}, None)
	assert.Equal(t, int64(1<<48-2), int64(MaxCount), "a slot stores it plus one in 48 bits")
}

func TestVerdict(t *testing.T) {
	const most = math.MaxInt64
	for _, c := range []struct {
		name              string
		limit, cost, used int64
		want              Verdict
	}{
		{"the last one passes", 5, 1, 4, Verdict{Allowed: true, Total: 5, At: 9}},
		{"the next one does not", 5, 1, 5, Verdict{Total: 5, At: 9}},
		{"a cost that does not fit takes nothing", 5, 2, 4, Verdict{Total: 4, At: 9}},
		{"the whole limit at once passes", 5, 5, 0, Verdict{Allowed: true, Total: 5, At: 9}},
		{"a cost over the limit never passes", 5, 6, 0, Verdict{At: Never}},
		{"also if the limit is used", 5, 6, 5, Verdict{Total: 5, At: Never}},
		{"limit 0 admits nothing", 0, 1, 0, Verdict{At: Never}},
		{"more than the limit may be counted", 5, 1, most, Verdict{Total: most, At: 9}},
		{"the largest limit at once", most, most, 0, Verdict{Allowed: true, Total: most, At: 9}},
		{"the largest limit, used", most, 1, most, Verdict{Total: most, At: 9}},
		{"the largest cost over the limit", 0, most, most, Verdict{Total: most, At: Never}},
	} {
		assert.Equal(t, c.want, Params{Limit: c.limit, Cost: c.cost}.Verdict(c.used, 9), c.name)
	}
}

func TestWindowStart(t *testing.T) {
	for _, c := range []struct {
		name                string
		number, scale, want int64
	}{
		{"window 0 begins at the epoch", 0, 1000, 0},
		{"window 1 begins one scale later", 1, 1000, second},
		{"window -1 begins one scale before", -1, 1000, -second},
		{"windows of a minute", 28_333_333, 60_000, 1_699_999_980 * second},
		{"the last exact start", math.MaxInt64 / msec, 1, math.MaxInt64 / msec * msec},
		{"the start after it saturates", math.MaxInt64/msec + 1, 1, End},
		{"the first exact start", -math.MaxInt64 / msec, 1, -math.MaxInt64 / msec * msec},
		{"the start before it saturates after Never", -math.MaxInt64/msec - 1, 1, Never + 1},
		{"the largest number", math.MaxInt64, 1, End},
		{"the least number", math.MinInt64, 1, Never + 1},
	} {
		assert.Equal(t, c.want, WindowStart(c.number, c.scale), c.name)
	}
}

// A window that holds an instant begins before it or at it and ends after it, one scale later.
func TestWindowsHoldTheirInstants(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	instants := []int64{Never, Never + 1, -second - 1, -second, -1, 0, 1, second - 1, second, End - 1}
	for range 500 {
		instants = append(instants, rnd.Int64()-rnd.Int64())
	}
	for _, scale := range []int64{1, 7, 1000, 60_000, 365 * 24 * 3600 * 1000} {
		for _, now := range instants {
			length := big.NewInt(scale * msec)
			number := new(big.Int).Div(big.NewInt(now), length) // Euclidean: rounds down
			end := new(big.Int).Add(number, big.NewInt(1))
			end.Mul(end, length)
			n, start, until := Window(scale, now)
			require.Equal(t, number.Int64(), n, "of %d at %d", scale, now)
			require.Equal(t, saturate(new(big.Int).Mul(number, length)), start, "of %d at %d", scale, now)
			require.Equal(t, saturate(end), until, "of %d at %d", scale, now)
			require.Equal(t, saturate(end), new(FixedWindow).Ends(scale, now), "of %d at %d", scale, now)
			require.Equal(t, saturate(end), WindowStart(number.Int64()+1, scale), "of %d at %d", scale, now)
		}
	}
}

func TestStatesAreRestored(t *testing.T) {
	var log, sameLog Log
	log.Add(5, 2, "meta")
	sameLog.Restore(&log)
	assert.Equal(t, log, sameLog)
	listed, sameListed := Listed{log}, Listed{}
	sameListed.Restore(&listed)
	assert.Equal(t, listed, sameListed)
	counts, sameCounts := filled(NewTiers([]Tier{{9, 1000}}), Slice{4, 2}), Slices{}
	sameCounts.Restore(counts)
	assert.Equal(t, *counts, sameCounts)
}
