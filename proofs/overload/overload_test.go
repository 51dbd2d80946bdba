package overload_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
	guard "github.com/weirgo/weir/overload"
	"github.com/weirgo/weir/proofs/overload"
)

// broken returns what is wrong with an outcome of s.
func broken(s overload.Scenario, o overload.Outcome) (wrong []string) {
	least := func(what string, have, want float64) {
		if have < want {
			wrong = append(wrong, fmt.Sprintf("%s %.3f, want %.3f or more", what, have, want))
		}
	}
	b := s.Fill().Bars
	least("good", o.Good, b.Good)
	least("critical", o.Critical, b.Critical)
	least("others", o.Others, b.Others)
	if b.Refused > 0 {
		least("less refused", -o.Refused, -b.Refused)
	}
	least("less time until back", -o.Back, -b.Back)
	return wrong
}

// TestTheGuardReachesItsBars simulates all scenarios.
func TestTheGuardReachesItsBars(t *testing.T) {
	seeds, each := slow.N(1, 1, 3), slow.N(9, 5, 1)
	if os.Getenv("OVERLOAD_TABLE") != "" {
		seeds, each = 3, 1
	}
	for i, s := range overload.Scenarios() {
		if i%each != 0 {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			for seed := uint64(1); seed <= uint64(seeds); seed++ {
				o := overload.Run(s, overload.NewGuarded(guard.Config{}), seed)
				assert.Empty(t, broken(s, o), "seed %d: %+v", seed, o)
			}
		})
	}
}

// TestBarsRejectOtherLimiters is the control of TestTheGuardReachesItsBars: each of the rivals
// fails in some scenario, and so does a guard without parts and shares.
func TestBarsRejectOtherLimiters(t *testing.T) {
	for _, r := range overload.Rivals() {
		if r.Name == "weir" {
			continue
		}
		var wrong []string
		for _, s := range overload.Scenarios() {
			switch s.Name {
			case "dependency +180 ms", "caller 100x":
				if len(wrong) == 0 {
					wrong = broken(s, r.Run(t, s, 1))
				}
			}
		}
		t.Log(r.Name, wrong)
		assert.NotEmpty(t, wrong, r.Name)
	}
}

func TestTheLimitDoesNotDrift(t *testing.T) {
	slow.Test(t)
	lasts := float64(slow.N(0, 100, 600))
	for name, cfg := range map[string]guard.Config{"learnt": {}, "given": {Goal: 50e6}} {
		s := overload.Scenario{Workers: 32, Mean: .02, Delay: .005, Patience: 1, Load: .7, Peak: 1.3,
			From: 30, To: 30 + lasts, Length: 30 + lasts}
		means := func(from, to float64) float64 {
			cut := s
			cut.To, cut.Length = to, to
			l := &meanLimit{Guarded: overload.NewGuarded(cfg), from: from}
			overload.Run(cut, l, 1)
			return l.sum / l.n
		}
		first, last := means(40, 100), means(lasts-30, lasts+30)
		t.Log(name, first, last)
		assert.InDelta(t, 1, last/first, .2, name)
	}
}

// meanLimit adds up the limits of a guard.
type meanLimit struct {
	*overload.Guarded
	from, sum, n float64
}

// Leave implements overload.Limiter.
func (l *meanLimit) Leave(now float64, r *overload.Request, took float64) {
	l.Guarded.Leave(now, r, took)
	if now >= l.from {
		l.sum, l.n = l.sum+float64(l.Guard.Stats().Limit), l.n+1
	}
}

func TestRunsOfOneSeedAreEqual(t *testing.T) {
	s := overload.Scenarios()[5]
	first := overload.Run(s, overload.NewGuarded(guard.Config{}), 7)
	assert.Equal(t, first, overload.Run(s, overload.NewGuarded(guard.Config{}), 7))
	assert.NotEqual(t, first, overload.Run(s, overload.NewGuarded(guard.Config{}), 8))
}

const begin, end = "<!-- simulated: make overload -->\n", "<!-- end of simulated -->\n"

// TestOverloadTable writes the table of RESULTS.md, in make overload.
func TestOverloadTable(t *testing.T) {
	if os.Getenv("OVERLOAD_TABLE") == "" {
		t.Skip("make overload runs it")
	}
	const name = "RESULTS.md"
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	require.True(t, ok && closed, "the marks of the table")
	page = []byte(before + begin + table(t) + end + after)
	require.NoError(t, os.WriteFile(name, page, 0o644))
}

// seeds of the table, and of the column on how many reach the bars
const seeds, more = 3, 24

func table(t *testing.T) string {
	var b strings.Builder
	rivals := overload.Rivals()
	b.WriteString("\nGoodput:\n\n|")
	for _, r := range rivals {
		b.WriteString(" | " + r.Name)
	}
	b.WriteString(" |\n|---" + strings.Repeat("|--:", len(rivals)) + "|\n")
	var own strings.Builder
	own.WriteString("\nOf weir, the worst of the seeds:\n\n| | good | critical | 19 others | refused | " +
		"back after, s | p99, ms | reach the bars |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, s := range overload.Scenarios() {
		b.WriteString("| " + s.Name)
		for _, r := range rivals {
			sum, worst := 0., overload.Outcome{Good: 9, Critical: 1, Others: 1}
			for seed := range uint64(seeds) {
				o := r.Run(t, s, seed+1)
				sum += o.Good / seeds
				worst = overload.Outcome{Good: min(worst.Good, o.Good), Critical: min(worst.Critical, o.Critical),
					Others: min(worst.Others, o.Others), Refused: max(worst.Refused, o.Refused),
					Back: max(worst.Back, o.Back), P99: max(worst.P99, o.P99)}
			}
			fmt.Fprintf(&b, " | %.2f", sum)
			if r.Name == "weir" {
				fmt.Fprintf(&own, "| %s | %.3f | %.3f | %.3f | %.2f %% | %.1f | %.0f | %d of %d |\n", s.Name,
					worst.Good, worst.Critical, worst.Others, 100*worst.Refused, worst.Back, worst.P99,
					inBars(t, r, s), more)
			}
		}
		b.WriteString(" |\n")
	}
	return b.String() + own.String() + "\n"
}

// inBars returns how many seeds reach the bars.
func inBars(t *testing.T, r overload.Rival, s overload.Scenario) (n int) {
	for seed := range uint64(more) {
		if len(broken(s, r.Run(t, s, seed+1))) == 0 {
			n++
		}
	}
	return n
}
