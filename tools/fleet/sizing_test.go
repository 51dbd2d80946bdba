package fleet_test

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The measured constants of the sizing table and their sources.
const (
	bytesCaller      = 73      // BENCHMARKS.md, at a glance
	nsDecision       = 587     // BENCHMARKS.md, a million callers with equal load
	bytesLedger      = 280     // fallback.Config.MaxCallers
	bytesLease       = 300     // near.LeaseConfig.Keys
	bytesDenial      = 250     // near.DenialsConfig.Size
	usClient         = 28.8    // tools/benchmarks/redis/RESULTS.md, FixedWindow, admitted, client
	usServer         = 22.6    // the same, server
	usLeased         = 1.0     // the same, leases of 100, client
	bytesRedis       = 200     // docs/scaling.md, rounded up
	ledger           = 1 << 17 // fallback.DefaultMaxCallers
	leasesHeld       = 1 << 16 // near.DefaultKeys
	denialsHeld      = 1 << 14 // near.DefaultDenials
	busy             = 0.6     // share of a Redis server's one core that leaves room for peaks
	alone, routed    = "alone", "alone, callers routed to instances"
	plain, withLease = "Redis", "Redis, leases of 100 and denials"
	skewed           = withLease + ", skew 1.5"
	lessSkewed       = withLease + ", skew 1.0"
)

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
	var b strings.Builder
	b.WriteString(
		"| instances | callers | decisions/s | composition | memory of an instance | cores of the " +
			"fleet | " +
			"Redis commands/s | Redis cores | servers | Redis memory | how |\n" +
			"|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|---|\n")
	for _, s := range sizes {
		cells := []string{strconv.Itoa(s.instances), amount(s.callers), amount(s.decisions),
			s.composition}
		switch s.composition {
		case alone, routed:
			memory, cores := s.callers*bytesCaller/float64(s.instances), s.decisions*nsDecision/1e9
			cells = append(cells, bytes(memory), fmt.Sprintf("%.2f", cores), "–", "–", "–", "–", "computed")
		default:
			perDecision, how, client := 1.0, "computed", s.decisions*usClient
			// Limited by the default MaxBuckets.
			memory := min(s.callers, ledger)*bytesLedger + min(s.callers, 1<<20)*bytesCaller
			if s.composition != plain {
				perDecision = commandsADecision(t, load, s.instances, s.composition)
				how = fmt.Sprintf("computed; %.3f commands a decision simulated", perDecision)
				client = s.decisions * (usLeased + perDecision*usClient)
				memory += min(s.callers, leasesHeld)*bytesLease + min(s.callers, denialsHeld)*bytesDenial
			}
			commands := s.decisions * perDecision
			cores := commands * usServer / 1e6
			cells = append(cells, bytes(memory), fmt.Sprintf("%.2f", client/1e6), amount(commands),
				fmt.Sprintf("%.2f", cores), fmt.Sprint(math.Ceil(cores/busy)), bytes(s.callers*bytesRedis), how)
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

func bytes(n float64) string {
	for _, unit := range []string{"B", "KB", "MB"} {
		if n < 1000 {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.0f GB", max(1, n))
}

const document = "../../docs/scaling.md"

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

// The document's sizing table equals the one computed from its constants and simulated tables.
func TestSizingTableIsComputed(t *testing.T) {
	page, err := os.ReadFile(document)
	require.NoError(t, err)
	_, load, _ := part(t, string(page), "load")
	_, computed, _ := part(t, string(page), "computed")
	assert.Equal(t, sizing(t, load), strings.Trim(computed, "\n")+"\n")
}
