package weir

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// handClock is a Config.Now that is set by hand and counts its readings.
type handClock struct{ ns, readings atomic.Int64 }

func (c *handClock) now() time.Time {
	c.readings.Add(1)
	return time.Unix(0, c.ns.Load()).UTC()
}

func (c *handClock) setMs(ms int64) { c.ns.Store(ms * msec) }

// newTestLimiter returns a limiter on a handClock that starts at the epoch. The limiter is closed
// with the test.
func newTestLimiter(t testing.TB, cfg Config) (*Limiter, *handClock) {
	t.Helper()
	c := new(handClock)
	cfg.Now = c.now
	l, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l, c
}

// readers returns the calls in a source file that read the clock, and those that use the wall time.
func readers(t *testing.T, name string, src any) (clock, wall []string) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		at := fset.Position(sel.Pos()).String() + " " + sel.Sel.Name
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
			switch sel.Sel.Name {
			case "Now", "Since", "Until":
				clock = append(clock, at)
			}
			return true
		}
		if strings.HasPrefix(sel.Sel.Name, "Unix") {
			wall = append(wall, at)
		}
		return true
	})
	return clock, wall
}

// A decision that reads the wall clock elsewhere would follow its steps.
func TestOnlyTheClockReadsTime(t *testing.T) {
	names, err := fs.Glob(os.DirFS("."), "*.go")
	require.NoError(t, err)
	seen := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		seen++
		clock, wall := readers(t, name, nil)
		if name != "clock.go" {
			assert.Empty(t, wall, "a wall time is taken apart outside clock.go")
		}
		// The janitor times its sweeps, and Wait sleeps in real time whatever the strategy's clock is.
		if name != "clock.go" && name != "janitor.go" && name != "wait.go" {
			assert.Empty(t, clock, "the clock is read outside clock.go")
		}
	}
	require.Greater(t, seen, 8, "the sources of this package")

	clock, wall := readers(t, "control.go",
		"package p\nfunc f() int64 { return time.Now().UnixMilli() }")
	assert.Len(t, clock, 1, "the control reads the clock")
	assert.Len(t, wall, 1, "the control takes a wall time apart")
}

func TestClockIgnoresWallClockSteps(t *testing.T) {
	// Stepping the wall clock after New equals a wall clock that disagrees with the instant recorded
	// by New.
	for _, step := range []time.Duration{-time.Hour, -time.Millisecond, time.Hour,
		26 * 365 * 24 * time.Hour} {
		c := newClock(nil, 0)
		c.unix -= int64(step)
		before := c.unix
		got := c.read()
		assert.GreaterOrEqual(t, got, before, "step %v: the clock went back", step)
		assert.Less(t, got, before+int64(time.Minute), "step %v: the clock followed the wall", step)
		assert.Less(t, time.Until(c.time(got)).Abs(), time.Minute,
			"step %v: what is handed out is as far from time.Now as from the clock", step)
	}
}

func TestClockIsReadOnce(t *testing.T) {
	l, c := newTestLimiter(t, Config{})
	check := func(limit int64) int64 {
		before := c.readings.Load()
		_, err := l.CheckRate("id", 1000, limit)
		require.NoError(t, err)
		return c.readings.Load() - before
	}
	assert.EqualValues(t, 1, check(2), "a new bucket")
	assert.EqualValues(t, 1, check(2), "admitted")
	assert.EqualValues(t, 1, check(2), "denied")
	assert.EqualValues(t, 1, check(0), "never to pass")
}

func TestInstantSaturates(t *testing.T) {
	for _, c := range []struct {
		name string
		at   time.Time
		want int64
	}{
		{"the epoch is zero", time.Unix(0, 0), 0},
		{"a nanosecond before the epoch is negative", time.Unix(0, -1), -1},
		{"the zone does not matter", time.Unix(1, 0).In(time.FixedZone("", 3600)), 1e9},
		{"the first year is the least instant", time.Time{}, math.MinInt64},
		{"the year 1600 is the least instant", time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC),
			math.MinInt64},
		{"the year 1700 is counted", time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC), -8520336000e9},
		{"the year 2200 is counted", time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), 7258118400e9},
		{"the year 2300 is the last instant", time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC),
			maxInstant - 1},
		{"the end of int64 seconds is the last instant", time.Unix(math.MaxInt64/2, 0), maxInstant - 1},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, instant(c.at)) })
	}
}

func TestClockTimeIsTheInverseOfRead(t *testing.T) {
	hand := new(handClock)
	zone := time.FixedZone("somewhere", 5*3600)
	virtual := newClock(func() time.Time { return hand.now().In(zone) }, 0)
	monotonic := newClock(nil, 0)
	for _, ns := range []int64{0, -1, 1, -1e18, 1e18, 1795174273e9} {
		for _, c := range []*clock{&virtual, &monotonic} {
			got := c.time(ns)
			assert.Equal(t, ns, got.UnixNano())
			assert.Equal(t, ns, c.instantOf(got))
			assert.Equal(t, ns, c.instantOf(got.Round(0)),
				"without its monotonic reading, as from another store")
		}
		assert.Equal(t, zone, virtual.time(ns).Location(), "times are handed out in the zone of Now")
	}
}

// A reading that was published is not taken back, whether the janitor or a reading has published
// it.
func TestAdvanceNeverGoesBack(t *testing.T) {
	for _, sign := range []int64{1, -1} {
		c := newClock(nil, time.Second)
		ahead := c.unix + int64(time.Hour)
		c.coarse.Store(sign * ahead)
		assert.Equal(t, ahead, c.advance())
		assert.Equal(t, sign*ahead, c.coarse.Load())
	}
}
