package overload_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/overload"
)

// fuzzed is a guard with what must be true of it.
type fuzzed struct {
	*overload.Guard
	t        *testing.T
	limiter  *weir.Limiter
	most     int
	now      time.Time
	places   []fuzzedPlace
	refused  uint64
	unshared uint64
	closed   bool
}

type fuzzedPlace struct {
	*overload.Place
	held bool // counted for a caller
}

// newFuzzed returns one of a Config that a byte selects.
func newFuzzed(t *testing.T, b byte) *fuzzed {
	g := &fuzzed{t: t, now: time.Unix(1e9, 0)}
	clock := func() time.Time { return g.now }
	cfg := overload.Config{Most: []int{0, 1, 3, 40}[b&3], Now: clock}
	if b&4 != 0 {
		cfg.Goal, cfg.Share = 20*time.Millisecond, .5
	}
	if b&8 != 0 {
		cfg.Parts = [3]float64{.1, .1, 1}
	}
	g.most = cfg.Most
	if g.most == 0 {
		g.most = 1 << 20
	}
	g.limiter = limiterOf(t, weir.Config{Now: clock, MaxBuckets: 1 + int(b>>4)})
	var err error
	g.Guard, err = overload.New(g.limiter, cfg)
	require.NoError(t, err)
	return g
}

func (g *fuzzed) enter(caller string, c overload.Class) {
	p, err := g.Enter(ctx, caller, c)
	unshared := g.Stats().Unshared
	switch full := (*overload.FullError)(nil); {
	case g.closed:
		require.ErrorIs(g.t, err, weir.ErrClosed)
	case err != nil:
		require.ErrorAs(g.t, err, &full)
		require.Equal(g.t, c, full.Class)
		require.GreaterOrEqual(g.t, full.InFlight, full.Most)
		require.LessOrEqual(g.t, time.Second, full.RetryAfter)
		require.LessOrEqual(g.t, full.RetryAfter, 31*time.Second)
		g.refused++
	default:
		g.places = append(g.places, fuzzedPlace{p, caller != "" && unshared == g.unshared})
	}
	g.unshared = unshared
}

// end ends a place by the number in a byte, by Leave or by Drop, and once more.
func (g *fuzzed) end(b byte, first, again func(p *overload.Place)) {
	if len(g.places) == 0 {
		return
	}
	i := int(b) % len(g.places)
	first(g.places[i].Place)
	again(g.places[i].Place)
	g.places = append(g.places[:i], g.places[i+1:]...)
}

// step does as two bytes say.
func (g *fuzzed) step(do, b byte) {
	leave, drop := (*overload.Place).Leave, (*overload.Place).Drop
	switch do % 16 {
	case 0:
		g.end(b, drop, leave)
	case 1, 2, 3, 4, 5:
		g.end(b, leave, drop)
	case 6:
		g.now = g.now.Add(time.Duration(b) * time.Second)
	case 7:
		g.now = g.now.Add(-time.Duration(b) * time.Millisecond)
	case 8:
		g.now = g.now.Add(time.Duration(b) * time.Millisecond)
	case 9:
		if b == 0 {
			require.NoError(g.t, g.limiter.Close())
			g.closed = true
		}
	default:
		g.enter([]string{"", "ann", "bob", "eve", "joe"}[b/3%5], overload.Class(b%3)-1)
	}
}

// check fails if a place was lost or the counts do not sum up.
func (g *fuzzed) check() {
	s := g.Stats()
	held, refused := 0, uint64(0)
	for _, p := range g.places {
		if p.held {
			held++
		}
	}
	for _, reasons := range s.Refused {
		for _, n := range reasons {
			refused += n
		}
	}
	require.Equal(g.t, len(g.places), s.InFlight)
	require.LessOrEqual(g.t, s.InFlight, g.most)
	require.EqualValues(g.t, held, g.limiter.Stats().Held)
	require.Equal(g.t, g.refused, refused)
	require.GreaterOrEqual(g.t, s.Limit, 1)
	require.LessOrEqual(g.t, s.Limit, g.most)
	assert.GreaterOrEqual(g.t, s.Latency, time.Duration(0))
	assert.GreaterOrEqual(g.t, s.Goal, time.Duration(0))
	assert.GreaterOrEqual(g.t, s.Throughput, 0.)
}

func FuzzGuard(f *testing.F) {
	f.Add([]byte{0xf0, 10, 1, 8, 20, 1, 0})
	f.Add([]byte{0x01, 10, 1, 10, 4, 0, 0, 10, 7, 9, 0, 10, 1})
	busy := []byte{0x17}
	for n := range byte(200) {
		busy = append(busy, 10, n, 11, n, 8, 1, 12, n, 1, n, 8, n%30, 2, n)
	}
	f.Add(busy)
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) == 0 || len(steps) > 1<<14 {
			return
		}
		g := newFuzzed(t, steps[0])
		for steps = steps[1:]; len(steps) > 1; steps = steps[2:] {
			g.step(steps[0], steps[1])
			g.check()
		}
		for len(g.places) > 0 {
			g.end(0, (*overload.Place).Leave, (*overload.Place).Leave)
		}
		g.check()
	})
}
