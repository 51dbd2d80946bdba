package httplimit_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocsShowTheExample compares the CostFunc in docs/http.md with the one of its Example.
func TestDocsShowTheExample(t *testing.T) {
	page, err := os.ReadFile("../docs/http.md")
	require.NoError(t, err)
	code, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	shown := regexp.MustCompile("(?s)```go\n(CostFunc: .*?)```").FindSubmatch(page)
	require.NotNil(t, shown)
	assert.Contains(t, strings.ReplaceAll(string(code), "\n\t\t", "\n"), string(shown[1]))
}
