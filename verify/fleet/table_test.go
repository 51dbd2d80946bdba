package fleet_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/verify/fleet"
)

// scenario is one part of the tables of docs/scaling.md.
type scenario struct {
	name   string
	change func(*fleet.Fleet)
}

var scenarios = []scenario{
	{"6 callers alike", func(f *fleet.Fleet) { f.Callers, f.Skew = 6, 0 }},
	{"skewed callers", func(*fleet.Fleet) {}},
	{"skewed, an instance replaced each second", func(f *fleet.Fleet) { f.Churn = time.Second }},
	{"skewed, an outage of 2 s", outage},
	{"skewed, replaced, and the outage", func(f *fleet.Fleet) { outage(f); f.Churn = time.Second }},
}

func outage(f *fleet.Fleet) { f.OutageFrom, f.OutageTo = 5*time.Second, 7*time.Second }

// large returns the fleet of the tables, in which the two busiest callers exceed their limit.
func large() fleet.Fleet {
	return fleet.Fleet{
		Instances: 4, Limit: 8000, Window: 4 * time.Second, Callers: 1000, Skew: 1.5, Rate: 16_000,
		Length: 12 * time.Second, RoundTrip: time.Millisecond, Denials: true,
	}
}

// leases are the rows of a scenario. Those from 0 on also cache denials.
var leases = []int{-1, 0, 1, 3, 10, 30, 100, 300, 1000}

// TestScalingTables simulates the tables of docs/scaling.md, computes the sizing table from them,
// and writes them to the file named by SCALING_TABLES.
func TestScalingTables(t *testing.T) {
	name := os.Getenv("SCALING_TABLES")
	if name == "" {
		t.Skip("make scaling runs it")
	}
	var b strings.Builder
	header(&b, "lease")
	for _, s := range scenarios {
		for _, block := range leases {
			f := large()
			s.change(&f)
			f.Block, f.Denials = max(0, block), block >= 0
			size := fmt.Sprint(block)
			if block < 0 {
				size = "none"
			}
			row(t, &b, s.name, size, f)
		}
	}
	b.WriteString("\nThe same with a lease of 100, in fleets of other sizes:\n\n")
	header(&b, "instances")
	for _, s := range []scenario{scenarios[1], scenarios[3]} {
		for _, n := range []int{1, 4, 10, 100, 1000} {
			f := large()
			s.change(&f)
			f.Instances, f.Block = n, 100
			row(t, &b, s.name, fmt.Sprint(n), f)
		}
	}
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	page := replace(t, string(text), "simulated", b.String())
	page = replace(t, page, "computed", sizing(t, b.String()))
	require.NoError(t, os.WriteFile(name, []byte(page), 0o644))
}

func header(b *strings.Builder, of string) {
	fmt.Fprintf(b,
		"| | %s | commands a decision | commands/s, peak | decided locally | not given out, mean | at most | "+
			"over-admitted, at most | bound |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n", of)
}

// row simulates f, writes its row, and checks the bound as the other tests do.
func row(t *testing.T, b *strings.Builder, name, size string, f fleet.Fleet) {
	t.Helper()
	out := simulate(t, f)
	assert.LessOrEqual(t, f.Limit+out.Over, f.Bound(), "%s, %s", name, size)
	percent := func(part, of uint64) string { return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(of)) }
	fmt.Fprintf(b, "| %s | %s | %.3f | %d | %s | %.1f %% | %s | %s | %s |\n", name, size,
		float64(out.Commands)/float64(out.Decisions), out.Peak, percent(out.Local, out.Decisions),
		100*out.UnusedMean,
		percent(out.Unused, f.Limit), percent(out.Over, f.Limit), percent(f.Bound()-f.Limit, f.Limit))
}
