package fleet_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/proofs/fleet"
)

// scenario is one part of the tables of RESULTS.md.
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

// TestScalingTables simulates the tables of RESULTS.md, computes the sizing table from them, and
// writes all if SCALING_TABLES is set.
func TestScalingTables(t *testing.T) {
	if os.Getenv("SCALING_TABLES") == "" {
		t.Skip("make scaling runs it")
	}
	write := func(t *testing.T, name, part, text string) {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(name, []byte(replace(t, string(page), part, text)), 0o644))
	}
	t.Run("one fleet", func(t *testing.T) { write(t, document, "simulated", oneFleet(t)) })
	t.Run("load", func(t *testing.T) { write(t, document, "load", constantLoad(t)) })
	page, err := os.ReadFile(document)
	require.NoError(t, err)
	_, load, _ := part(t, string(page), "load")
	write(t, document, "measured", measured(t).text())
	write(t, document, "computed", sizing(t, load))
}

// oneFleet returns what leases and outages do in one fleet, and an outage in fleets of other sizes.
func oneFleet(t *testing.T) string {
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
	b.WriteString(
		"\nThe outage with a lease of 100, in fleets of other sizes that have the same 16,000 " +
			"requests a second:\n\n",
	)
	header(&b, "instances")
	for _, n := range []int{1, 4, 10, 100, 1000} {
		f := large()
		outage(&f)
		f.Instances, f.Block = n, 100
		row(t, &b, "skewed, an outage of 2 s", fmt.Sprint(n), f)
	}
	return b.String()
}

// load is what each instance has to decide, whatever their number.
type load struct {
	name        string
	skew        float64
	perInstance int // callers; 0: 1,000 in all, whose limits grow with the fleet
}

var loads = []load{
	{"1,000 callers in all, skew 1.5", 1.5, 0},
	{"10^6 callers for each instance, skew 1.5", 1.5, 1e6},
	{"10^6 callers for each instance, skew 1.0", 1.0, 1e6},
}

const rateOfEach = 10_000 // decisions a second of an instance

// fleet returns n instances under the load, with leases of 100 and cached denials.
func (l load) fleet(n int) fleet.Fleet {
	f := fleet.Fleet{
		Instances: n, Limit: 5000, Window: 4 * time.Second, Callers: l.perInstance * n, Skew: l.skew,
		Rate: float64(rateOfEach * n), Length: 4 * time.Second, RoundTrip: time.Millisecond,
		Denials: true,
		Block:   100, Sample: 20_000,
	}
	if l.perInstance == 0 {
		f.Callers, f.Limit = 1000, 5000*uint64(n)
	}
	return f
}

// constantLoad returns the table of fleets in which each instance has the same load.
func constantLoad(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| | instances | decisions/s | commands a decision | commands/s | Redis cores | " +
		"busiest key, commands/s | " +
		"of the server that has it |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	usServer := measured(t).usServer
	for _, l := range loads {
		for _, n := range []int{1, 10, 100, 1000} {
			f := l.fleet(n)
			if f.Skew > 1 && n == 1000 {
				continue // 40 million decisions of a few callers
			}
			out := simulate(t, f)
			assert.Zero(t, out.Over)
			each, seconds := float64(out.Commands)/float64(out.Decisions), f.Length.Seconds()
			hot := float64(out.Hot) / seconds
			t.Logf("%s, %d instances: %+v", l.name, n, out)
			fmt.Fprintf(&b, "| %s | %d | %s | %.3f | %s | %.2f | %s | %.1f %% |\n", l.name, n,
				amount(float64(rateOfEach*n)), each, amount(each*float64(rateOfEach*n)),
				each*float64(rateOfEach*n)*usServer/1e6, amount(hot), 100*hot*usServer/1e6)
		}
	}
	fmt.Fprintf(&b, "\nTen instances without leases, on one Redis that takes %.1f µs for a command "+
		"and has others wait:\n\n", usServer)
	queue(t, &b, usServer)
	return b.String()
}

// queue writes what a server that is too busy means for those that wait for it.
func queue(t *testing.T, b *strings.Builder, usServer float64) {
	b.WriteString("| decisions/s | load of the server | decided locally |\n|--:|--:|--:|\n")
	for _, load := range []float64{0.6, 0.9, 1.1, 1.5} {
		f := large()
		f.Instances, f.Denials, f.Service = 10, false, time.Duration(usServer*1000)
		f.Rate = load * 1e6 / usServer
		out := simulate(t, f)
		fmt.Fprintf(b, "| %.0f | %.0f %% | %.1f %% |\n", f.Rate, 100*load,
			100*float64(out.Local)/float64(out.Decisions))
	}
}

func header(b *strings.Builder, of string) {
	fmt.Fprintf(b,
		"| | %s | commands a decision | commands/s, peak | decided locally | not given out, mean | at "+
			"most | "+
			"over-admitted, at most | bound |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n", of)
}

// row simulates f, writes its row, and checks the bound as the other tests do.
func row(t *testing.T, b *strings.Builder, name, size string, f fleet.Fleet) {
	t.Helper()
	out := simulate(t, f)
	assert.LessOrEqual(t, f.Limit+out.Over, f.Bound(), "%s, %s", name, size)
	percent := func(part, of uint64) string {
		return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(of))
	}
	fmt.Fprintf(b, "| %s | %s | %.3f | %d | %s | %.1f %% | %s | %s | %s |\n", name, size,
		float64(out.Commands)/float64(out.Decisions), out.Peak, percent(out.Local, out.Decisions),
		100*out.UnusedMean,
		percent(out.Unused, f.Limit), percent(out.Over, f.Limit), percent(f.Bound()-f.Limit, f.Limit))
}
