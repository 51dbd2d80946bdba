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
	"github.com/weirgo/weir/internal/slow"
)

// bound is the formula of New's doc comment.
func bound(limit, n uint64) uint64 { return limit + (n-1)*((limit+n-1)/n) }

const window = time.Minute

// toll is what episodes came to.
type toll struct {
	windows     int
	over, worst uint64 // admitted beyond the limit: in all, and in the worst window
	beyond      int    // windows beyond the bound
	outages     int
	lost        uint64 // what the server forgot and the first to ask did not know
}

func (a *toll) add(b toll) {
	a.windows, a.over, a.worst = a.windows+b.windows, a.over+b.over, max(a.worst, b.worst)
	a.beyond, a.outages, a.lost = a.beyond+b.beyond, a.outages+b.outages, a.lost+b.lost
}

const (
	fleetSize  = 3
	fleetLimit = 300
)

// memory is what each instance knows of a server that may forget.
type memory struct {
	told      [fleetSize]uint64 // the total of its last answer
	saw       [fleetSize]bool   // that the server was away
	forgotten uint64            // by the server, and nobody has asked since
}

// first is what the server's loss adds to the bound, when i has asked and been told total.
func (m *memory) first(i int, total uint64) (lost uint64) {
	if m.forgotten > 0 {
		known := m.told[i]
		if !m.saw[i] {
			known = 0
		}
		lost, m.forgotten = m.forgotten-min(m.forgotten, known), 0
	}
	m.told[i], m.saw[i] = total, false
	return lost
}

// episode is one window of demand, twice what the limit allows, on three instances at random, while
// the server goes and comes. A server that forgets comes back empty.
func episode(t *testing.T, seed uint64, forgets bool, to front) toll {
	rng := rand.New(rand.NewPCG(seed, 38))
	f := newFleet(t, fleetSize, fixedWindow, fallback.Config{MinCalls: 3, Stall: -1}, to)
	r := weir.Request{Key: "a", Limit: fleetLimit, Duration: window}
	out := toll{windows: 1}
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
		if by == fallback.FromPrimary {
			out.lost += m.first(i, res.TotalRequests)
			counted = res.TotalRequests
		} else if down {
			m.saw[i] = true
		}
	}
	out.over = admitted - min(admitted, fleetLimit)
	out.worst = out.over
	if admitted > bound(fleetLimit, fleetSize)+out.lost {
		out.beyond = 1
	}
	return out
}

func episodes(t *testing.T, n int, forgets bool, to front) (all toll) {
	for seed := range uint64(n) {
		all.add(episode(t, seed, forgets, to))
	}
	return all
}

// In many episodes no window is beyond the bound, and what is admitted is at least ten times closer
// to the limit than without the carry-over.
func TestOutagesAreBounded(t *testing.T) {
	t.Parallel()
	n := slow.N(4, 20, 1000)
	with, without := episodes(t, n, false, whole), episodes(t, n, false, bareFront)
	t.Logf("limit %d, bound %d; %d windows, %d outages", fleetLimit, bound(fleetLimit, fleetSize), with.windows, with.outages)
	t.Logf("with the carry-over: %d too many in all, %d at the worst; without it: %d, %d", with.over, with.worst, without.over, without.worst)
	require.Greater(t, with.outages, 3*n)
	assert.Zero(t, with.beyond)
	assert.GreaterOrEqual(t, without.over, 10*max(1, with.over))
}

// So it is with a server that comes back empty.
func TestEmptiedServerIsBounded(t *testing.T) {
	t.Parallel()
	n := slow.N(10, 20, 1000)
	with, without := episodes(t, n, true, whole), episodes(t, n, true, bareFront)
	t.Logf("%d outages; with: %d too many in all, %d at the worst, %d unknown to the first to ask; without: %d, %d",
		with.outages, with.over, with.worst, with.lost, without.over, without.worst)
	assert.Zero(t, with.beyond)
	assert.GreaterOrEqual(t, without.over, 10*max(1, with.over))
	assert.NotZero(t, without.beyond, "the control: nothing else keeps the bound")
}
