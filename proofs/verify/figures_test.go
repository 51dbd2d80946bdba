package verify

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The report of the benchmarks has the measured bytes of a bucket; other pages and comments repeat
// them.
func TestBytesOfABucketAreThoseMeasured(t *testing.T) {
	bytes := numbers(t, "../benchmarks/RESULTS.md", `(?m)^\| weir \| (\d+) \| \d+ \|$`, 1)[0]
	for _, copied := range []struct {
		file, pattern string
		times         int
	}{
		{"../../limiter.go", `A bucket takes about (\d+) bytes`, 1},
		{"../../adapters/caddylimit/caddylimit.go", `about (\d+) bytes each`, 1},
		{"../../docs/production.md", `buckets: 1,048,576 of (\d+) bytes`, 1},
		{"../fleet/RESULTS.md", `A caller takes (\d+) bytes, `, 1},
		{"../../docs/strategies.md", "(?m)^\\| `(?:FixedWindow|SlidingWindow|TokenBucket|Counter)\\(" +
			`[^|]*\|[^|]*\| (\d+) \|`, 4},
		{"../benchmarks/RESULTS.md", `(?m)^\| (?:FixedWindow|Calendar|SlidingWindow|TokenBucket|Counter) \| ` +
			`(\d+) \| \d+ \|$`, 5},
	} {
		for _, n := range numbers(t, copied.file, copied.pattern, copied.times) {
			assert.Equal(t, bytes, n, "%s: %s", copied.file, copied.pattern)
		}
	}
	total := numbers(t, "../../docs/production.md", `\| buckets: [^|]*\| (\d+) MB \|`, 1)[0]
	assert.Equal(t, fmt.Sprintf("%.0f", float64(1<<20*bytes)/1e6), strconv.Itoa(total))
}

// numbers returns what a pattern finds in a file, which is there so many times.
func numbers(t *testing.T, file, pattern string, times int) (found []int) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		found = append(found, n)
	}
	require.Len(t, found, times, "%s: %s", file, pattern)
	return found
}
