package weirtest_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/weirtest"
)

func TestClockStandsStillUntilItIsMoved(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		what string
		move func(*weirtest.Clock)
		want time.Time
	}{
		{"it reads what it was made with", func(*weirtest.Clock) {}, start},
		{"it advances", func(c *weirtest.Clock) { c.Advance(time.Second) }, start.Add(time.Second)},
		{"it steps back", func(c *weirtest.Clock) { c.Advance(-time.Second) }, start.Add(-time.Second)},
		{"it is set ahead", func(c *weirtest.Clock) {
			c.Set(start.AddDate(1, 0, 0))
		}, start.AddDate(1, 0, 0)},
		{"it is set to before the epoch", func(c *weirtest.Clock) {
			c.Set(time.Unix(-1, 0))
		}, time.Unix(-1, 0)},
		{"it is set to the zero time", func(c *weirtest.Clock) { c.Set(time.Time{}) }, time.Time{}},
	} {
		c := weirtest.NewClock(start)
		step.move(c)
		assert.Equal(t, step.want, c.Now(), step.what)
		assert.Equal(t, step.want, c.Now(), step.what)
	}
}

func TestZeroClockStartsWhereABubbleDoes(t *testing.T) {
	midnight := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	var read, advanced, set weirtest.Clock
	advanced.Advance(time.Minute)
	set.Set(midnight.Add(time.Hour))
	assert.Equal(t, midnight, read.Now())
	assert.Equal(t, midnight.Add(time.Minute), advanced.Now())
	assert.Equal(t, midnight.Add(time.Hour), set.Now())
}

func TestClockCarriesNoMonotonicReading(t *testing.T) {
	c := weirtest.NewClock(time.Now())
	assert.Equal(t, c.Now().Round(0), c.Now(), "Sub would otherwise not see a Set")
	c.Set(time.Now())
	assert.Equal(t, c.Now().Round(0), c.Now())
}

func TestClockIsSafeForConcurrentUse(t *testing.T) {
	var c weirtest.Clock
	start := c.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				c.Advance(time.Second)
				c.Now()
			}
		})
	}
	all.Wait()
	assert.Equal(t, 8000*time.Second, c.Now().Sub(start), "no Advance may be lost")
}
