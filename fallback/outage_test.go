package fallback_test

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// bound is the formula of New's doc comment.
func bound(limit, n uint64) uint64 { return limit + (n-1)*((limit+n-1)/n) }

const window = time.Minute

// outageTotals adds up the results of episodes.
type outageTotals struct {
	windows     int
	over, worst uint64 // admitted over the limit: in total, and in the worst window
	overBound   int    // windows over the bound
	outages     int
	lost        uint64 // counts that the server lost and the first instance to return did not have
}

func (a *outageTotals) add(b outageTotals) {
	a.windows, a.over, a.worst = a.windows+b.windows, a.over+b.over, max(a.worst, b.worst)
	a.overBound, a.outages, a.lost = a.overBound+b.overBound, a.outages+b.outages, a.lost+b.lost
}

const (
	fleetSize  = 3
	fleetLimit = 300
)

// memory tracks what each instance knows about a server that may lose its counts.
type memory struct {
	lastTotal [fleetSize]uint64 // the total of the last reply
	sawOutage [fleetSize]bool   // whether the instance saw the outage
	forgotten uint64            // lost by the server, with no request since
}

// first returns how much the server's loss adds to the bound when instance i is the first to call
// it again and its reply has the given total.
func (m *memory) first(i int, total uint64) (lost uint64) {
	if m.forgotten > 0 {
		known := m.lastTotal[i]
		if !m.sawOutage[i] {
			known = 0
		}
		lost, m.forgotten = m.forgotten-min(m.forgotten, known), 0
	}
	m.lastTotal[i], m.sawOutage[i] = total, false
	return lost
}

// episode runs one window of requests, twice the limit, on three instances at random, while the
// server fails and recovers at random. If forgets is set, the server recovers without its counts.
func episode(t *testing.T, seed uint64, forgets bool, to front) outageTotals {
	rng := rand.New(rand.NewPCG(seed, 38))
	f := newFleet(t, fleetSize, fixedWindow, fallback.Config{MinCalls: 3, Stall: -1}, to)
	r := weir.Request{Key: "a", Limit: fleetLimit, Duration: window}
	out := outageTotals{windows: 1}
	var m memory
	var admitted, counted uint64
	down := false
	for range 2 * fleetLimit {
		f.clock.Advance(window / (2*fleetLimit + 1))
		if rng.IntN(60) == 0 {
			switch down = !down; {
			case down:
				out.outages++
				f.server.fails(errDown)
			case forgets:
				f.server.restart()
				m.forgotten, counted = max(m.forgotten, counted), 0
			default:
				f.server.fails(nil)
			}
		}
		i := rng.IntN(fleetSize)
		res, by := ask(t, f.instances[i], r)
		for f.instances[i].Stats().State == fallback.HalfOpen { // the probe takes real time
			runtime.Gosched()
		}
		if res.Allowed() {
			admitted++
		}
		if by == weir.FromPrimary {
			out.lost += m.first(i, res.TotalRequests)
			counted = res.TotalRequests
		} else if down {
			m.sawOutage[i] = true
		}
	}
	out.over = admitted - min(admitted, fleetLimit)
	out.worst = out.over
	if admitted > bound(fleetLimit, fleetSize)+out.lost {
		out.overBound = 1
	}
	return out
}

func episodes(t *testing.T, n int, forgets bool, to front) (all outageTotals) {
	for seed := range uint64(n) {
		all.add(episode(t, seed, forgets, to))
	}
	return all
}

// The figures of New and of docs/machines.md: three instances of a limit of 100.
func TestOutageByAnExample(t *testing.T) {
	big, never := hundred, hundred
	big.Cost, never.Cost = 61, 101 // one is denied with the count, the other charges debts alone
	outage := func(counted int, know func(i *fallback.Fallback)) (each []uint64) {
		f := newFleet(t, 3, fixedWindow, tripAtOnce, whole)
		for range counted {
			ask(t, f.instances[0], hundred)
		}
		for _, i := range f.instances {
			know(i)
		}
		f.server.fails(errDown)
		for _, i := range f.instances {
			each = append(each, most(t, i, hundred))
		}
		f.heal(t)
		for _, i := range f.instances {
			ask(t, i, never)
		}
		admitted := uint64(counted)
		for _, n := range each {
			admitted += n
		}
		assert.Equal(t, admitted, total(t, f.server, hundred))
		return each
	}
	assert.Equal(t, []uint64{20, 20, 20}, outage(40, func(i *fallback.Fallback) { ask(t, i, big) }))
	assert.Equal(t, []uint64{0, 34, 34}, outage(100, func(*fallback.Fallback) {}),
		"the others have seen nothing")
}

// No window of many episodes exceeds the bound, and the excess over the limit is at most a tenth of
// that without reconciliation.
func TestOutagesAreBounded(t *testing.T) {
	t.Parallel()
	n := slow.N(4, 20, 1000)
	with, without := episodes(t, n, false, whole), episodes(t, n, false, bareFront)
	t.Logf("limit %d, bound %d; %d windows, %d outages", fleetLimit, bound(fleetLimit, fleetSize),
		with.windows, with.outages)
	t.Logf("with reconciliation: %d over the limit in total, %d in the worst window; without: %d, %d",
		with.over, with.worst, without.over, without.worst)
	require.Greater(t, with.outages, 3*n)
	assert.Zero(t, with.overBound)
	assert.GreaterOrEqual(t, without.over, 10*max(1, with.over))
}

// The same holds for a server that restarts without its counts.
func TestEmptiedServerIsBounded(t *testing.T) {
	t.Parallel()
	n := slow.N(10, 20, 1000)
	with, without := episodes(t, n, true, whole), episodes(t, n, true, bareFront)
	t.Logf(
		"%d outages; with reconciliation: %d over the limit in total, %d in the worst window, %d "+
			"lost; without: "+
			"%d, %d",
		with.outages, with.over, with.worst, with.lost, without.over, without.worst)
	assert.Zero(t, with.overBound)
	assert.GreaterOrEqual(t, without.over, 10*max(1, with.over))
	assert.NotZero(t, without.overBound, "the control: without reconciliation the bound is exceeded")
}

// What local admits in a sliding window counts in the next one too: it is charged if primary
// returns then.
func TestDebtsOfASlidingWindowAreOwedInTheNextOne(t *testing.T) {
	f := newFleet(t, 1, func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() }, tripAtOnce,
		chargingFront)
	f.clock.Set(f.clock.Now().Truncate(time.Minute).Add(50 * time.Second))
	r := weir.Request{Key: "a", Limit: 100, Duration: time.Minute, Cost: 40}
	f.server.fails(errDown)
	res, _ := ask(t, f.instances[0], r)
	require.True(t, res.Allowed())
	f.clock.Advance(25 * time.Second) // a quarter of the next window
	f.heal(t)
	r.Cost = 1
	ask(t, f.instances[0], r)
	assert.EqualValues(t, 40, f.instances[0].Stats().Reconciled)
}
