package verify

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// arrival is one request of a trace.
type arrival struct {
	at time.Time
	id string
}

// disagreement counts the decisions of the sliding window that differ from those of the exact log,
// given what the window has admitted.
type disagreement struct {
	asked, over, under int // decisions; admitted where the log denies, and the reverse
	// The most cost over the limit that a caller was admitted in any span of one Duration.
	worst float64
}

func (d disagreement) String() string {
	share := func(n int) float64 { return 100 * float64(n) / float64(d.asked) }
	return fmt.Sprintf(
		"%d decisions, %.2f %% wrongly admitted, %.2f %% wrongly denied, at most %.2f x limit in one span",
		d.asked, share(d.over), share(d.under), d.worst)
}

// compare runs a trace through the sliding window. A sliding log is charged what the window admits.
func compare(t *testing.T, trace []arrival, limit uint64, span time.Duration) disagreement {
	var now time.Time
	limiter, err := weir.New(weir.Config{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	ctx, window, log := context.Background(), limiter.SlidingWindow(), limiter.SlidingLog()
	var d disagreement
	for i, a := range trace {
		now = a.at
		r := &weir.Request{Key: a.id, Limit: limit, Duration: span}
		exact, err := ops.Peek(ctx, log, r)
		if err != nil {
			t.Fatal(err)
		}
		estimate, err := window.Run(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		d.asked++
		switch {
		case estimate.Allowed() && !exact.Allowed():
			d.over++
		case !estimate.Allowed() && exact.Allowed():
			d.under++
		}
		if estimate.Allowed() {
			if err := ops.Charge(ctx, log, r); err != nil {
				t.Fatal(err)
			}
			used := exact.TotalRequests
			if !exact.Allowed() {
				used++
			}
			d.worst = max(d.worst, float64(used)/float64(limit))
		}
		if i%10_000 == 0 {
			limiter.Sweep()
		}
	}
	return d
}

// TestSlidingWindowErrorOnBursts checks the figures of SlidingWindow's doc comment on synthetic
// traffic.
func TestSlidingWindowErrorOnBursts(t *testing.T) {
	const limit, span = 100, time.Minute
	start := time.Unix(1_700_000_040, 0) // the start of a minute
	length := time.Duration(slow.N(1, 4, 4)) * time.Hour
	rnd := rand.New(rand.NewPCG(1, 2))
	steady := func(perSpan float64) (trace []arrival) {
		for at := start; at.Before(start.Add(length)); {
			trace = append(trace, arrival{at, "a"})
			at = at.Add(time.Duration(rnd.ExpFloat64() * float64(span) / perSpan))
		}
		return trace
	}
	bursts := func() (trace []arrival) {
		for at := start; at.Before(start.Add(length)); at = at.Add(time.Duration(rnd.Int64N(int64(2 * span)))) {
			for i := range 20 + rnd.IntN(80) {
				trace = append(trace, arrival{at.Add(time.Duration(i) * 10 * time.Millisecond), "a"})
			}
		}
		slices.SortFunc(trace, func(a, b arrival) int { return a.at.Compare(b.at) })
		return trace
	}
	// The whole limit arrives at the end of one window, followed by requests in every millisecond of
	// the next: the sliding window assumes that the former were evenly spread.
	adversary := func() (trace []arrival) {
		for range limit {
			trace = append(trace, arrival{start.Add(span - time.Millisecond), "a"})
		}
		for at := span; at < 2*span; at += time.Millisecond {
			trace = append(trace, arrival{start.Add(at), "a"})
		}
		return trace
	}
	for _, c := range []struct {
		name       string
		trace      []arrival
		over, span float64 // at most: the fraction wrongly admitted, and the most in one span
	}{
		{"Poisson at 0.9 of the limit", steady(0.9 * limit), 0.06, 1.15},
		{"Poisson at twice the limit", steady(2 * limit), 0.05, 1.10},
		{"random bursts of 20 to 100", bursts(), 0.07, 1.75},
		{"adversary", adversary(), 0.01, 2},
	} {
		d := compare(t, c.trace, limit, span)
		t.Logf("%-28s %v", c.name, d)
		if got := float64(d.over) / float64(d.asked); got > c.over {
			t.Errorf("%s: %.4f wrongly admitted, stated at most %.4f", c.name, got, c.over)
		}
		if d.worst > c.span {
			t.Errorf("%s: %.3f x limit in one span, stated at most %.3f", c.name, d.worst, c.span)
		}
		if c.name == "adversary" && d.worst < 1.98 {
			t.Errorf("the adversary reached %.3f x limit: the worst case is not the one stated", d.worst)
		}
	}
}

// TestSlidingWindowErrorOnLog measures an access log in Apache's format at the path in
// WEIR_ACCESS_LOG.
func TestSlidingWindowErrorOnLog(t *testing.T) {
	path := os.Getenv("WEIR_ACCESS_LOG")
	if path == "" {
		t.Skip("WEIR_ACCESS_LOG names no log")
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	line := regexp.MustCompile(`^(\S+) \S+ \S+ \[([^]]+)\]`)
	var trace []arrival
	for s := bufio.NewScanner(f); s.Scan(); {
		m := line.FindStringSubmatch(s.Text())
		if m == nil {
			continue
		}
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
		if err != nil {
			t.Fatal(err)
		}
		trace = append(trace, arrival{at, m[1]})
	}
	slices.SortStableFunc(trace, func(a, b arrival) int { return a.at.Compare(b.at) })
	for _, c := range []struct {
		limit uint64
		span  time.Duration
	}{{5, time.Minute}, {10, time.Minute}, {20, time.Minute}, {20, time.Hour}, {50, time.Hour},
		{5, 10 * time.Second}} {
		t.Logf("%d in %v: %v", c.limit, c.span, compare(t, trace, c.limit, c.span))
	}
}
