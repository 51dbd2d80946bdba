package pages

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/docblocks"
)

// The blocks of the pages for a first hour are in this file.
func TestPagesAreTested(t *testing.T) {
	docblocks.Check(t, "../../docs/strategies.md", "# Strategies", "first_hour_test.go")
}

// A search for what a newcomer asks finds a heading.
func TestQuestionsHaveHeadings(t *testing.T) {
	for page, questions := range map[string][]string{
		"strategies.md": {"choose a strategy", "call a strategy", "build a key"},
		"production.md": {"behind a load balancer", "two replicas", "restart forgets", "total memory",
			"number", "fail open or closed"},
	} {
		text, err := os.ReadFile("../../docs/" + page)
		require.NoError(t, err)
		headings := strings.ToLower(
			strings.Join(regexp.MustCompile(`(?m)^#+ .*$`).FindAllString(string(text), -1), "\n"),
		)
		for _, question := range questions {
			assert.Contains(t, headings, question, page)
		}
	}
}

func Example_buildAKey() {
	user, plan := "alice", "free"
	fmt.Printf("%q %q\n", weir.JoinKey("user", user), weir.JoinKey(plan, "org", "acme"))
	// Output: "4:user5:alice" "4:free3:org4:acme"
}

func Example_twoReplicas() {
	replicas := []*weir.Limiter{newLimiter(), newLimiter()}
	admitted := 0
	for range 100 {
		for _, limiter := range replicas {
			if limiter.SlidingWindow().Limit(10, time.Minute).Allow("10.0.0.7") {
				admitted++
			}
		}
	}
	fmt.Println(admitted, "of a limit of 10")
	// Output: 20 of a limit of 10
}

// What the page says of a restart: a Limiter forgets, and one that loads what was saved does not.
func TestWhatARestartForgets(t *testing.T) {
	admitted := func(limiter *weir.Limiter) (n int) {
		for range 10 {
			if limiter.SlidingWindow().Limit(3, time.Hour).Allow("a") {
				n++
			}
		}
		return n
	}
	before := newLimiter()
	assert.Equal(t, 3, admitted(before))
	var file bytes.Buffer
	require.NoError(t, before.Save(&file))
	assert.Equal(t, 3, admitted(newLimiter()))
	after := newLimiter()
	require.NoError(t, after.Load(&file))
	assert.Zero(t, admitted(after))
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unkept  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns those of a page's headings, as GitHub makes them.
func anchors(page string) (all []string) {
	for _, h := range heading.FindAllStringSubmatch(page, -1) {
		all = append(all, strings.ReplaceAll(unkept.ReplaceAllString(strings.ToLower(h[1]), ""), " ",
			"-"))
	}
	return all
}

// Every link of a page to a file of the repository, and to a heading there, leads somewhere.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range pagesOf(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], ":") || !strings.ContainsAny(m[1], "./#") ||
				strings.Contains(m[1], "(") {
				continue // another site, or code
			}
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			info, err := os.Stat(target)
			if !assert.NoError(t, err, "%s: %s", page, m[1]) || anchor == "" || info.IsDir() {
				continue
			}
			there, err := os.ReadFile(target)
			require.NoError(t, err)
			assert.Contains(t, anchors(string(there)), anchor, "%s: %s", page, m[1])
		}
	}
}

// What the page says of a clock that is set late: a Limiter on the wall clock ends its months where
// that says so, and one that was made before goes on as it began.
func TestAClockThatIsSetLate(t *testing.T) {
	wall := time.Date(1970, 1, 20, 0, 0, 0, 0, time.UTC) // a boot without a clock
	follows, err := weir.New(weir.Config{Now: func() time.Time { return wall }})
	require.NoError(t, err)
	defer follows.Close()
	ends := func() time.Time {
		out, err := follows.Calendar(weir.Month, time.UTC).Limit(3).Take(t.Context(), "acme", 1)
		require.NoError(t, err)
		require.True(t, out.Allowed())
		return out.ExpiresAt.UTC()
	}
	assert.Equal(t, time.Date(1970, 2, 1, 0, 0, 0, 0, time.UTC), ends())
	wall = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) // the first NTP step
	assert.Equal(t, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), ends())
}
