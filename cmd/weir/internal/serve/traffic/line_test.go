package traffic

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Of an upstream at which everybody waits, who costs the most is found as well as in calm.
func TestWhoCostsTheMostIsFoundBehindALine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var l line
	share := func(wait func(i int) time.Duration) float64 {
		var loud, all time.Duration
		for i := range 4000 {
			cost := time.Duration(20+r.IntN(40)) * time.Millisecond
			if i%30 == 0 {
				cost = time.Second
			}
			l.note(wait(i) + cost)
			own := l.own(wait(i) + cost)
			if all += own; i%30 == 0 {
				loud += own
			}
		}
		return float64(loud) / float64(all)
	}
	true1 := 1. / (1 + 29*.04)
	assert.InDelta(t, true1, share(func(int) time.Duration { return 0 }), .15)
	growing := func(i int) time.Duration { return time.Duration(i) * time.Second / 2000 }
	assert.InDelta(t, true1, share(growing), .15)
	assert.InDelta(t, true1, share(func(int) time.Duration { return 8 * time.Second }), .15)
	assert.InDelta(t, true1, share(func(int) time.Duration { return 0 }), .15, "calm again")

	// Some that do not stand in line, such as files of a cache, change nothing.
	cached := func(i int) time.Duration { return 8 * time.Second * time.Duration(min(1, (i+1)%12)) }
	assert.Greater(t, share(cached), .3)
}

// What is given up takes as long as a client has patience, and says nothing of the line.
func TestWhatIsGivenUpSaysNothingOfTheLine(t *testing.T) {
	c := NewCallers(100)
	c.Add(Request{Key: "loud", At: begin})
	times := func(n int, took time.Duration, status int) {
		for range n {
			c.Served("others", took, status)
		}
	}
	times(32, 10*time.Millisecond, 200)
	times(32, 8*time.Second, 200)
	times(100, 5*time.Second, 0)
	c.Served("loud", 9*time.Second, 200)
	v := c.View(Minute, begin)
	assert.InDelta(t, 1, v.Callers[0].Upstream.Seconds(), .02)
}

// A refused connection, or an upstream that fails at once, takes no time and says nothing of how
// long others take while nobody waits.
func TestErrorsSayNothingOfTheLine(t *testing.T) {
	c := NewCallers(100)
	c.Add(Request{Key: "loud", At: begin})
	for range 32 {
		c.Served("others", 300*time.Microsecond, 502)
	}
	for range 320 {
		c.Served("loud", 10*time.Millisecond, 200)
	}
	v := c.View(Minute, begin)
	assert.InDelta(t, 3.2, v.Callers[0].Upstream.Seconds(), .1)
}
