package fleet_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The constants of the sizing table and their sources.
const (
	bytesLedger      = 390     // fallback.Config.MaxCallers
	bytesLease       = 300     // near.LeaseConfig.Keys
	bytesDenial      = 250     // near.DenialsConfig.Size
	bytesRedis       = 200     // RESULTS.md, rounded up
	ledger           = 1 << 17 // fallback.DefaultMaxCallers
	leasesHeld       = 1 << 16 // near.DefaultKeys
	denialsHeld      = 1 << 14 // near.DefaultDenials
	busy             = 0.6     // share of a Redis server's one core that leaves room for peaks
	alone, routed    = "alone", "alone, callers routed to instances"
	plain, withLease = "Redis", "Redis, leases of 100 and denials"
	skewed           = withLease + ", skew 1.5"
	lessSkewed       = withLease + ", skew 1.0"
)

// costs are those that reports of measurements hold.
type costs struct {
	bytesCaller, nsDecision      float64 // of a Limiter, with a million callers alike
	usClient, usServer, usLeased float64 // CPU of a decision on Redis, and of one from a lease of 100
}

// measured reads the costs from the reports of the benchmarks, in process and with Redis.
func measured(t *testing.T) (c costs) {
	t.Helper()
	row := func(report, heading, begins string) []string {
		text, err := os.ReadFile("../../" + report)
		require.NoError(t, err)
		_, text, _ = bytes.Cut(text, []byte(heading))
		_, text, ok := bytes.Cut(text, []byte("\n| "+begins+" | "))
		require.True(t, ok, "%s: no row %q after %q", report, begins, heading)
		line, _, _ := strings.Cut(string(text), " |\n")
		return strings.Split(line, " | ")
	}
	number := func(cell string) float64 {
		n, err := strconv.ParseFloat(cell, 64)
		require.NoError(t, err)
		return n
	}
	c.bytesCaller = number(row("proofs/benchmarks/RESULTS.md", "\n## Memory\n", "weir")[0])
	c.nsDecision = number(row("proofs/benchmarks/RESULTS.md", "\n## One limit per id\n", "weir")[5])
	cpu := func(begins string) (client, server float64) {
		cell := row("proofs/benchmarks/redis/RESULTS.md", "\n| admitted |", begins)[2]
		of, on, ok := strings.Cut(cell, " + ")
		require.True(t, ok, cell)
		return number(of), number(on)
	}
	c.usClient, c.usServer = cpu("FixedWindow")
	c.usLeased, _ = cpu("FixedWindow, leases of 100")
	return c
}

// text is the part of the page that names the costs.
func (c costs) text() string {
	return fmt.Sprintf(`- A caller takes %.0f bytes, and a decision among a million callers who ask
  evenly %.0f ns of a core ([proofs/benchmarks](../benchmarks/RESULTS.md)).
- A decision on Redis takes %.1f µs of the client's CPU and %.1f µs of the server's; one from a
  lease of 100 takes %.1f µs of the client's
  ([proofs/benchmarks/redis](../benchmarks/redis/RESULTS.md)).
`, c.bytesCaller, c.nsDecision, c.usClient, c.usServer, c.usLeased)
}

// size is one row of the sizing table.
type size struct {
	instances   int
	callers     float64
	decisions   float64 // per second
	composition string
}

var sizes = []size{
	{1, 1e6, 1e5, alone},
	{1, 1e7, 1e6, alone},
	{10, 1e6, 1e4, plain},
	{10, 1e7, 1e5, plain},
	{10, 1e7, 1e5, skewed},
	{10, 1e7, 1e5, lessSkewed},
	{100, 1e8, 1e6, plain},
	{100, 1e8, 1e6, skewed},
	{100, 1e8, 1e6, lessSkewed},
	{1000, 1e9, 1e7, plain},
	{1000, 1e9, 1e7, lessSkewed},
	{1000, 1e9, 1e7, routed},
}

// sizing computes the table from the constants and from the commands for each decision in the table
// of constant load.
func sizing(t *testing.T, load string) string {
	t.Helper()
	c := measured(t)
	var b strings.Builder
	b.WriteString(
		"| instances | callers | decisions/s | composition | memory of an instance " +
			"| cores of the fleet | Redis commands/s | Redis cores | servers | Redis memory | how |\n" +
			"|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|---|\n")
	for _, s := range sizes {
		cells := []string{strconv.Itoa(s.instances), amount(s.callers), amount(s.decisions),
			s.composition}
		switch s.composition {
		case alone, routed:
			memory, cores := s.callers*c.bytesCaller/float64(s.instances), s.decisions*c.nsDecision/1e9
			cells = append(cells, inBytes(memory), fmt.Sprintf("%.2f", cores), "–", "–", "–", "–", "computed")
		default:
			perDecision, how, client := 1.0, "computed", s.decisions*c.usClient
			// Limited by the default MaxBuckets.
			memory := min(s.callers, ledger)*bytesLedger + min(s.callers, 1<<20)*c.bytesCaller
			if s.composition != plain {
				perDecision = commandsADecision(t, load, s.instances, s.composition)
				how = fmt.Sprintf("computed; %.3f commands a decision simulated", perDecision)
				client = s.decisions * (c.usLeased + perDecision*c.usClient)
				memory += min(s.callers, leasesHeld)*bytesLease + min(s.callers, denialsHeld)*bytesDenial
			}
			commands := s.decisions * perDecision
			cores := commands * c.usServer / 1e6
			cells = append(cells, inBytes(memory), fmt.Sprintf("%.2f", client/1e6), amount(commands),
				fmt.Sprintf("%.2f", cores), fmt.Sprint(math.Ceil(cores/busy)), inBytes(s.callers*bytesRedis), how)
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	return b.String()
}

// commandsADecision reads from the table of constant load how many commands a fleet with leases of
// 100 needs for each decision, with a million callers for each instance.
func commandsADecision(t *testing.T, load string, instances int, composition string) float64 {
	t.Helper()
	_, skew, _ := strings.Cut(composition, withLease+", ")
	_, row, ok := strings.Cut(load,
		fmt.Sprintf("| 10^6 callers for each instance, %s | %d | ", skew, instances))
	require.True(t, ok, "no row of %d instances and %s", instances, skew)
	n, err := strconv.ParseFloat(strings.Fields(row)[2], 64)
	require.NoError(t, err)
	return n
}

// amount formats a number as a power of ten or with two digits.
func amount(n float64) string {
	if e := math.Round(math.Log10(n)); math.Pow(10, e) == n {
		return fmt.Sprintf("10^%.0f", e)
	}
	e := math.Pow(10, math.Floor(math.Log10(n))-1)
	return fmt.Sprintf("%.0f", math.Round(n/e)*e)
}

func inBytes(n float64) string {
	for _, unit := range []string{"B", "KB", "MB"} {
		if n < 1000 {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.0f GB", max(1, n))
}

const document = "RESULTS.md"

// replace puts text between the marker lines of the named part of the page.
func replace(t *testing.T, page, name, text string) string {
	t.Helper()
	before, _, after := part(t, page, name)
	return before + "\n" + text + "\n" + after
}

// part splits the page at the named part. The text before and after includes the marker lines.
func part(t *testing.T, page, name string) (before, text, after string) {
	t.Helper()
	begin, end := "<!-- "+name+": make scaling -->\n", "<!-- end of "+name+" -->\n"
	before, rest, ok := strings.Cut(page, begin)
	require.True(t, ok, "no line %q", begin)
	text, after, ok = strings.Cut(rest, end)
	require.True(t, ok, "no line %q", end)
	return before + begin, text, end + after
}

var rewrite = flag.Bool("write", false, "write the sizing table to RESULTS.md")

// TestSizingTableIsComputed checks that the page has the costs of the reports, and the sizing table
// that follows from them and from the simulated tables. With -write it writes both.
func TestSizingTableIsComputed(t *testing.T) {
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	page := string(text)
	_, load, _ := part(t, page, "load")
	want := replace(t, replace(t, page, "measured", measured(t).text()), "computed", sizing(t, load))
	if *rewrite {
		require.NoError(t, os.WriteFile(document, []byte(want), 0o644))
		return
	}
	assert.Equal(t, want, page, "go test ./proofs/fleet -run Sizing -write computes it anew")
}
