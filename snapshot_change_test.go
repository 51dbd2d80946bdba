package weir

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/snapshot"
)

// restartNumbers are those of a limit: n in d, and the burst or the queue.
type restartNumbers struct {
	n     uint64
	d     time.Duration
	extra int
}

// changing are the kinds of limits, made of numbers.
var changing = map[string]func(*Limiter, restartNumbers) *Limit{
	"FixedWindow":   func(l *Limiter, is restartNumbers) *Limit { return l.FixedWindow().Limit(is.n, is.d) },
	"SlidingWindow": func(l *Limiter, is restartNumbers) *Limit { return l.SlidingWindow().Limit(is.n, is.d) },
	"SlidingLog":    func(l *Limiter, is restartNumbers) *Limit { return l.SlidingLog().Limit(is.n, is.d) },
	"Counter":       func(l *Limiter, is restartNumbers) *Limit { return l.Counter().Limit(is.n, is.d) },
	"List":          func(l *Limiter, is restartNumbers) *Limit { return l.List().Limit(is.n, is.d) },
	"TokenBucket": func(l *Limiter, is restartNumbers) *Limit {
		return l.TokenBucket(uint64(is.extra)).Limit(is.n, is.d)
	},
	"LeakyBucket": func(l *Limiter, is restartNumbers) *Limit {
		return l.LeakyBucket(is.extra).Limit(is.n, is.d)
	},
	"Tiers": func(l *Limiter, is restartNumbers) *Limit {
		t := l.Tiers(Tier{is.n, is.d}, Tier{3 * is.n, 2 * is.d})
		return t.Limit()
	},
	"Calendar": func(l *Limiter, is restartNumbers) *Limit { return l.Calendar(Day, time.UTC).Limit(is.n) },
}

// changes are numbers before a restart and after it.
var changes = [][2]restartNumbers{
	{{1, time.Hour, 0}, {3600, time.Hour, 0}},
	{{3600, time.Hour, 0}, {1, time.Hour, 0}},
	{{60, time.Minute, 0}, {3600, time.Hour, 0}},
	{{3600, time.Hour, 0}, {60, time.Minute, 0}},
	{{6, time.Minute, 0}, {6, time.Hour, 0}},
	{{6, time.Hour, 0}, {6, time.Minute, 0}},
	{{7, time.Minute, 0}, {11, time.Minute, 0}},
	{{6, time.Minute, 2}, {6, time.Minute, 20}},
	{{6, time.Minute, 20}, {6, time.Minute, 2}},
	{{6, time.Minute, 3}, {60, time.Hour, 7}},
	{{6, time.Minute, 3}, {6, time.Minute, 3}},
}

// later describes the answers of a limit to a caller from an instant on.
func later(t *testing.T, m *Limit, now *time.Time) (answers string) {
	start := *now
	defer func() { *now = start }()
	for _, after := range []time.Duration{0, time.Second, 9 * time.Second, time.Minute, time.Hour} {
		*now = start.Add(after)
		out, err := m.Peek(t.Context(), "k")
		require.NoError(t, err)
		answers += fmt.Sprintln(after, out.State, out.TotalRequests, out.ExpiresAt.Sub(start), m.Allow("k"))
	}
	return answers
}

// A change of a limit's numbers between Save and Load gives what it gives without a restart: of a
// limit with a name the counts are kept, of another one they are not.
func TestNumbersThatChangeOverARestart(t *testing.T) {
	for kind, of := range changing {
		for _, row := range changes {
			for _, name := range []string{"", "q"} {
				made := func(l *Limiter, is restartNumbers) *Limit {
					if name == "" {
						return of(l, is)
					}
					return of(l, is).Named(name)
				}
				was, now := manual(t)
				for range 4 {
					made(was, row[0]).Allow("k")
					*now = now.Add(300 * time.Millisecond)
				}
				restored, again := manual(t)
				*again = *now
				snapshot := saved(t, was)
				require.NoError(t, restored.Load(bytes.NewReader(snapshot)))
				require.NoError(t, restored.Load(bytes.NewReader(snapshot)), "a second Load changes nothing")
				assert.Equal(t, later(t, made(was, row[1]), now), later(t, made(restored, row[1]), again),
					"%s %q from %v to %v", kind, name, row[0], row[1])
			}
		}
	}
}

// A saved leaky bucket joins one of another rate in cost.
func TestLoadKeepsTheRateOfALeakyBucket(t *testing.T) {
	hour := func(limit uint64) *Request { return &Request{Key: "a", Limit: limit, Duration: time.Hour} }
	was, _ := newTestLimiter(t, Config{})
	MustRun(t, was.LeakyBucket(0), hour(1))
	snapshot := saved(t, was)
	for _, used := range []uint64{0, 1, 3} {
		l, _ := newTestLimiter(t, Config{})
		if used > 0 {
			r := hour(3600)
			r.Cost = used
			MustRun(t, l.LeakyBucket(0), r)
		}
		require.NoError(t, l.Load(bytes.NewReader(snapshot)))
		for _, limit := range []uint64{3600, 1, 36_000} {
			res := MustPeek(t, l.LeakyBucket(0), hour(limit))
			assert.Equal(t, max(1, used), res.TotalRequests, "%d used, at %d", used, limit)
		}
	}
}

// A leaky bucket that an older release has saved has no spacing: it gets that of the first request.
func TestLoadReadsLeakyBucketsWithoutASpacing(t *testing.T) {
	l, clock := newTestLimiter(t, Config{})
	clock.setMs(1_700_000_000_000)
	e := snapshot.Writer{Buf: []byte{queueRecord}}
	e.Text("a")
	e.Int(60_000)
	e.Text("")
	e.Int(clock.ns.Load() + 4*int64(time.Second))
	e.Buf = append(e.Buf, endRecord)
	e.Int(1)
	require.NoError(t, l.Load(bytes.NewReader(framed(e.Buf))))
	res := MustPeek(t, l.LeakyBucket(0), &Request{Key: "a", Limit: 60, Duration: time.Minute})
	assert.EqualValues(t, 4, res.TotalRequests)
	assert.Equal(t, 4*time.Second, res.ExpiresAt.Sub(clock.now()))
}
