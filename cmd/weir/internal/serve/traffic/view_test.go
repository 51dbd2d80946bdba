package traffic

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCallersNearEachOtherAreOneGroup(t *testing.T) {
	c := NewCallers(1000)
	send := func(addr string, n int, agent string) {
		for range n {
			c.Add(Request{Key: addr, Addr: netip.MustParseAddr(addr), Agent: agent, Path: "/login", At: begin})
		}
	}
	for i := range 20 { // they guess passwords
		send(fmt.Sprintf("192.0.2.%d", i), 10, "guesser")
	}
	send("192.0.2.21", 1, "a neighbor")
	send("192.0.2.200", 10, "apart from them")
	for i := range 50 { // nobody is near
		send(fmt.Sprintf("198.51.%d.7", i), 10, "a person")
	}
	for i := range 5 {
		send(fmt.Sprintf("2001:db8::%x:0:0:0:1", i), 3, "six")
	}
	v := c.View(Minute, begin)
	groups := v.Groups()
	require.Len(t, groups, 2)
	g := groups[0]
	assert.Equal(t, "192.0.2.0/27", g.Prefix.String())
	assert.Equal(t, []int{21, 1}, []int{g.Callers, g.Quiet})
	assert.EqualValues(t, 201, g.N)
	assert.InDelta(t, 2, g.Agents.Count(), 1)
	assert.Equal(t, 1, g.Paths.Count())
	assert.Equal(t, 5, groups[1].Callers)
	assert.Equal(t, "2001:db8::/61", groups[1].Prefix.String())
	assert.Empty(t, new(View).Groups())
}

// Whoever sends little and holds much of the upstream's time is foremost.
func TestTheForemostSendOrHoldTheMost(t *testing.T) {
	c := NewCallers(1000)
	for i := range 50 {
		for range 1 + i {
			c.Add(Request{Key: fmt.Sprint(i), At: begin})
			c.Served(fmt.Sprint(i), time.Millisecond, 200)
		}
	}
	c.Add(Request{Key: "holds", At: begin})
	c.Served("holds", time.Second, 200)
	v := c.View(Minute, begin)
	assert.Equal(t, "49", v.Callers[0].Key)
	foremost := v.Foremost(3)
	require.Len(t, foremost, 3)
	for i, want := range []string{"holds", "49", "48"} {
		assert.Equal(t, want, foremost[i].Key)
	}
	assert.Len(t, v.Foremost(100), 51)
	assert.Empty(t, new(View).Foremost(3))
}

func TestLatelyHoldsTheLastRequestsOfACaller(t *testing.T) {
	l := NewSamples()
	for i := range 20 {
		l.Add("a", Sample{Of: fmt.Sprint("GET /", i), Agent: "bot", At: begin})
	}
	all := l.Of("a")
	require.Len(t, all, samples)
	assert.Equal(t, Sample{Of: "GET /19", Agent: "bot", At: begin}, all[0])
	assert.Empty(t, l.Of("b"))
}
