package pages

import (
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/docblocks"
	"github.com/weirgo/weir/weirtest"
)

// page is the page of the recipes.
const page = "../../docs/recipes.md"

// Every block of the page is in a file of this directory, or in the example of unit tests.
func TestRecipesAreTested(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	docblocks.Check(t, page, "# Recipes", append(files, "../unittest/resets_test.go")...)
}

// Every recipe has code.
func TestRecipesHaveCode(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, recipe := range strings.Split(string(text), "\n## ")[1:] {
		name, _, _ := strings.Cut(recipe, "\n")
		assert.Contains(t, recipe, "```go\n", name)
	}
}

// newLimiter returns a limiter on a clock that stands still, so that an Example prints the same at
// any time.
func newLimiter() *weir.Limiter {
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}
