package replay

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAFollowerDoubtsItsCallers follows a log of balancers line by line, and one of which most
// lines cannot be read.
func TestAFollowerDoubtsItsCallers(t *testing.T) {
	for name, row := range map[string]struct{ line, doubt string }{
		"balancers": {`{"time":%d,"remote_addr":"10.0.0.%d","x_forwarded":"203.0.113.%d"}`, "give --trust"},
		"unread":    {`{"time":%d,"remote_addr":"203.0.113.%d%d"}` + "\nno JSON", "lines could not be read"},
		"clients":   {`{"time":%d,"remote_addr":"203.0.113.%d%d"}`, ""},
	} {
		f, err := NewFollower(config(t, []string{"a.log"}, "5/10s"))
		require.NoError(t, err)
		for i := range 240 {
			require.NoError(t, f.Add(fmt.Appendf(nil, row.line+"\n", 1774447920+i/3, i%2, i%12)))
		}
		for range 2 { // the screen asks for it again and again
			got := f.Result()
			if row.doubt == "" {
				assert.Empty(t, got.Doubts, name)
			} else if assert.Len(t, got.Doubts, 1, name) {
				assert.Contains(t, got.Doubts[0], row.doubt)
			}
			assert.Equal(t, row.doubt != "", got.Doubtful)
		}
		f.Close()
	}
}

// TestAFollowerEqualsAReplay gives a Follower a log in pieces, and compares the result with that of
// a replay of the whole. The times are in order, finer than seconds, and no two are equal: a replay
// sorts the requests of one instant, and the order tells whether one that does not count is denied.
func TestAFollowerEqualsAReplay(t *testing.T) {
	var lines []string
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 3000 {
		at = at.Add(time.Duration(1+rand.IntN(400)) * time.Millisecond)
		lines = append(lines, fmt.Sprintf(`{"time":%q,"level":"INFO","msg":"request","client":"192.0.2.%d","method":"GET",`+
			`"host":"h","path":"/","status":%d,"bytes":1,"ms":0}`+"\n",
			at.Format("2006-01-02T15:04:05.000Z07:00"), rand.IntN(9)*rand.IntN(9), 200+201*rand.IntN(2)))
		if rand.IntN(50) == 0 {
			lines = append(lines, "no JSON\n")
		}
	}
	file := writeText(t, "a.log", strings.Join(lines, ""))
	for _, by := range []string{"limits", "limits, by status", "rules"} {
		cfg := config(t, []string{file}, "5/10s:sliding", "5/10s:fixed", "5/10s:log", "5/10s:token", "5/10s:leaky",
			"3/1s,9/1m", "50/hour@UTC")
		cfg.Force = true
		switch by {
		case "rules":
			cfg.Rules, cfg.RuleSets = nil, []*RuleSet{ruleSet(t, ruleText)}
		case "limits, by status":
			cfg.Filter.CountIf = &Statuses{Text: "401", Match: func(status int) bool { return status == 401 }}
		}
		want := ran(t, cfg)
		f, err := NewFollower(cfg)
		require.NoError(t, err)
		for rest := lines; len(rest) > 0; {
			n := min(1+rand.IntN(40), len(rest))
			require.NoError(t, f.Add([]byte(strings.Join(rest[:n], ""))))
			rest = rest[n:]
		}
		got := f.Result()
		f.Close()
		addsUp(t, got)
		assert.Equal(t, want.Unreadable, got.Unreadable)
		assert.Equal(t, want.Doubts, got.Doubts)
		assert.Equal(t, []uint64{want.Lines, want.Requests, want.Uncounted, uint64(want.Callers)},
			[]uint64{got.Lines, got.Requests, got.Uncounted, uint64(got.Callers)})
		assert.Equal(t, []time.Time{want.First, want.Last}, []time.Time{got.First, got.Last})
		require.Len(t, got.Rules, len(want.Rules))
		for i := range want.Rules {
			assert.Equal(t, want.Rules[i], got.Rules[i])
		}
	}
}

// A line with a time in the future counts with the one before, and holds up none after it.
func TestAFollowerIgnoresTheFuture(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, first := range []time.Time{now, now.AddDate(10, 0, 0)} {
		f, err := NewFollower(config(t, []string{"a.log"}, "2/1m"))
		require.NoError(t, err)
		f.now = func() time.Time { return now.Add(time.Minute) }
		for _, at := range []time.Time{first, now.AddDate(10, 0, 0), now.Add(2 * time.Minute),
			now.Add(4 * time.Minute), now.Add(6 * time.Minute)} {
			require.NoError(t, f.Add([]byte(fmt.Sprintf(`192.0.2.1 - - [%s] "GET / HTTP/1.1" 200 5`+"\n",
				at.Format("02/Jan/2006:15:04:05 -0700")))))
		}
		got := f.Result()
		f.Close()
		assert.EqualValues(t, 5, got.Requests)
		assert.Zero(t, got.Rules[0].Denied)
		assert.Equal(t, now.Add(6*time.Minute), got.Last)
		ahead := uint64(1)
		if first.After(now) {
			ahead++
		}
		assert.Equal(t, &Moved{Ahead: ahead}, got.Moved)
	}
}

// The last minute has what was written in it, by caller and by second, and what was written before
// leaves it as time passes.
func TestAFollowerHasTheLastMinute(t *testing.T) {
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	now := begin
	f, err := NewFollower(config(t, []string{"a.log"}, "2/1m:fixed"))
	require.NoError(t, err)
	defer f.Close()
	f.now = func() time.Time { return now }
	seen := map[int][]time.Duration{} // by caller
	rnd := rand.New(rand.NewPCG(1, 2))
	for at := time.Duration(0); at < 5*time.Minute; at += time.Duration(rnd.IntN(3000)) * time.Millisecond {
		caller, status := rnd.IntN(3), 200+300*rnd.IntN(2)
		now = begin.Add(at)
		require.NoError(t, f.Add([]byte(fmt.Sprintf(`{"msec":"%d.%03d","remote_addr":"192.0.2.%d","status":%d}`+"\n",
			now.Unix(), now.Nanosecond()/1e6, caller, status))))
		seen[caller] = append(seen[caller], at)
		got := f.Result().Minute
		want, callers := uint64(0), 0
		for c, all := range seen {
			n := uint64(0)
			for _, one := range all {
				if begin.Add(one).Unix() > now.Unix()-60 {
					n++
				}
			}
			if n > 0 {
				callers++
			}
			want += n
			for _, b := range got.Busiest {
				if b.Name == fmt.Sprintf("192.0.2.%d", c) {
					assert.Equal(t, n, b.Requests)
				}
			}
		}
		require.Equal(t, []uint64{want, uint64(callers)}, []uint64{got.Requests, uint64(got.Callers)}, at)
		require.Len(t, got.Busiest, callers)
		assert.GreaterOrEqual(t, got.Busiest[0].Requests, got.Busiest[callers-1].Requests)
	}
	m := f.Result().Minute
	assert.Positive(t, m.Failed)
	assert.Positive(t, m.Denied)
	now = now.Add(30 * time.Second)
	assert.Less(t, f.Result().Minute.Requests, m.Requests)
	now = now.Add(31 * time.Second)
	assert.Zero(t, f.Result().Minute.Requests, "nothing was written since")
}

// A line that is older than one before counts at its time, and is counted as late.
func TestAFollowerCountsWhatIsLate(t *testing.T) {
	f, err := NewFollower(config(t, []string{"a.log"}, "1/1m:fixed"))
	require.NoError(t, err)
	defer f.Close()
	for _, second := range []int{50, 70, 58, 70, 40, 130} {
		require.NoError(t, f.Add([]byte(fmt.Sprintf(`192.0.2.1 - - [%s] "GET / HTTP/1.1" 200 5`+"\n",
			time.Unix(int64(second), 0).UTC().Format("02/Jan/2006:15:04:05 -0700")))))
	}
	got := f.Result()
	assert.Equal(t, &Moved{Late: 2, LateBy: 30 * time.Second}, got.Moved)
	assert.EqualValues(t, 3, got.Rules[0].Denied, "of the minute that the two were moved into")
	f.moved.Late++
	assert.EqualValues(t, 2, got.Moved.Late, "the result is a copy")
}
