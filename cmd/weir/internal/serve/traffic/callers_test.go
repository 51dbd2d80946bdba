package traffic

import (
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var begin = time.Unix(1_700_000_000, 0)

func TestWindowsOfCallers(t *testing.T) {
	c := NewCallers(100)
	add := func(key string, at time.Duration, n int) {
		for range n {
			c.Add(Request{Key: key, At: begin.Add(at), Denied: key == "loud"})
		}
	}
	c.Served("unknown", time.Second, 200) // before the first request
	add("old", 0, 5)
	add("loud", 50*time.Minute, 3)
	add("quiet", 50*time.Minute+30*time.Second, 2)
	add("new", 50*time.Minute+55*time.Second, 1)
	for w, want := range map[Window]string{
		Minute: "loud=3 quiet=2 new=1", Hour: "old=5 loud=3 quiet=2 new=1",
		Start: "old=5 loud=3 quiet=2 new=1",
	} {
		v := c.View(w, begin.Add(50*time.Minute+55*time.Second))
		assert.Equal(t, want, names(v), w)
		assert.EqualValues(t, 3, v.Denied, w)
	}
	later := begin.Add(52 * time.Minute)
	assert.Empty(t, names(c.View(Minute, later)))
	assert.Equal(t, "old=5 loud=3 quiet=2 new=1", names(c.View(Hour, later)))
	later = begin.Add(3 * time.Hour)
	assert.Empty(t, names(c.View(Hour, later)))
	assert.Equal(t, "old=5 loud=3 quiet=2 new=1", names(c.View(Start, later)))
}

func names(v View) string {
	var all []string
	for _, c := range v.Callers {
		all = append(all, fmt.Sprintf("%s=%d", c.Key, c.N))
	}
	return strings.Join(all, " ")
}

func TestCountsOfACaller(t *testing.T) {
	c := NewCallers(100)
	at, addr := begin, netip.MustParseAddr("192.0.2.7")
	for i := range 40 {
		at = at.Add(time.Second)
		c.Add(Request{Key: "office", Addr: addr, Agent: strconv.Itoa(i % 30), Path: "/", At: at})
		c.Add(Request{Key: "scraper", Agent: "bot", Path: fmt.Sprint("/", i), Denied: i%2 == 0, At: at})
	}
	c.Served("office", time.Second, 200)
	c.Served("office", time.Second, 401)
	c.Served("office", time.Second, 502)
	c.Served("scraper", 5*time.Second, 503)
	c.Served("gone", 2*time.Second, 200)
	v := c.View(Minute, at)
	office, scraper := v.Of("office"), v.Of("scraper")
	assert.Equal(t, []uint64{40, 0, 1, 1}, []uint64{office.N, office.Denied, office.Turned, office.Failed})
	assert.Equal(t, 3*time.Second, office.Upstream)
	assert.Equal(t, addr, office.Addr)
	assert.Equal(t, at, office.Last)
	assert.InDelta(t, 30, office.Agents.Count(), 8)
	assert.Equal(t, 1, office.Paths.Count())
	assert.InDelta(t, 40, scraper.Paths.Count(), 11)
	assert.Equal(t, 1, scraper.Agents.Count())
	assert.EqualValues(t, 20, scraper.Denied)
	assert.EqualValues(t, 1, scraper.Failed)
	assert.Equal(t, 10*time.Second, v.Upstream)
	assert.Equal(t, Caller{Key: "nobody"}, v.Of("nobody"))
}

// A flood of callers neither takes memory without end nor hides who sends most.
func TestAFloodOfCallersIsBounded(t *testing.T) {
	c := NewCallers(1000)
	flood := func(from, n int) {
		for i := range n {
			at := begin.Add(time.Duration(from+i) * time.Millisecond)
			c.Add(Request{Key: strings.Repeat("k", 100) + strconv.Itoa(from+i), At: at})
			if i%100 == 0 {
				c.Add(Request{Key: "loud", At: at})
			}
		}
	}
	flood(0, 100_000)
	assert.Equal(t, "loud", c.View(Minute, begin.Add(100*time.Second)).Callers[0].Key)
	assert.LessOrEqual(t, len(c.View(Minute, begin.Add(100*time.Second)).Callers), 6000)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	flood(100_000, 100_000)
	require.Less(t, heap(), before+4<<20)
	runtime.KeepAlive(c)
}

func TestParseWindow(t *testing.T) {
	for _, w := range []Window{Minute, Hour, Start} {
		got, err := ParseWindow(w.String())
		require.NoError(t, err)
		assert.Equal(t, w, got)
	}
	got, err := ParseWindow("")
	require.NoError(t, err)
	assert.Equal(t, Start, got)
	_, err = ParseWindow("day")
	assert.EqualError(t, err, `window "day": want minute, hour or start`)
}

func BenchmarkAdd(b *testing.B) {
	c := NewCallers(1000)
	keys := make([]string, 1<<12)
	for i := range keys {
		keys[i] = fmt.Sprint("192.0.2.", i)
	}
	r := Request{Addr: netip.MustParseAddr("192.0.2.7"), At: begin,
		Agent: "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", Path: "/search/items"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Key = keys[i&(len(keys)>>(i&7)-1)] // a few come often
		c.Add(r)
	}
	assert.NotEmpty(b, c.View(Minute, begin).Callers)
}
