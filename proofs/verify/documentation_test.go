package verify

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

// The table in the package's comment says what can be asked of which strategy.
func TestTheDocumentationSaysWhatAStrategyCanDo(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	tiers := limiter.Tiers(weir.Tier{Limit: 1, Duration: time.Second})
	text, err := os.ReadFile("../../doc.go")
	require.NoError(t, err)
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(strings.TrimPrefix(line, "//\t")); strings.HasPrefix(line, "//\t") &&
			len(words) > 1 {
			rows[words[0]] = words[1:]
		}
	}

	can := map[string][]string{}
	for _, s := range []struct { // in the order of a row
		name string
		weir.Counter
	}{
		{"FixedWindow", limiter.FixedWindow()}, {"Calendar", limiter.Calendar(weir.Month, time.UTC)},
		{"SlidingWindow", limiter.SlidingWindow()}, {"SlidingLog", limiter.SlidingLog()},
		{"TokenBucket", limiter.TokenBucket(0)}, {"LeakyBucket", limiter.LeakyBucket(0)},
		{"Tiers", tiers}, {"Counter", limiter.Counter()}, {"List", limiter.List()},
		{"InFlight", limiter.InFlight()},
	} {
		name, verbs := s.name, s.About().Verbs
		for _, v := range []weir.Verb{weir.OpTake, weir.OpPeek, weir.OpReturn, weir.OpCharge, weir.OpReset,
			weir.OpResetPrefix, weir.OpCatchUp} {
			assert.True(t, verbs.Has(v), "%s, %v", name, v)
		}
		for verb, v := range map[string]weir.Verb{"OpHits": weir.OpHits, "OpHold": weir.OpHold,
			"OpForecast": weir.OpForecast} {
			if verbs.Has(v) {
				can[verb] = append(can[verb], name)
			}
		}
	}
	for verb, names := range can {
		assert.Equal(t, rows[verb], names, verb)
	}
	assert.Len(t, can, 3)
}

// The package's comment names each exported type, and each once in a list of its own: the index of
// a page sorts by the alphabet, which puts About first.
func TestTheDocumentationSaysWhoNeedsAType(t *testing.T) {
	types, who, stores := map[string]bool{}, map[string]int{}, map[string]bool{}
	files, err := filepath.Glob("../../*.go")
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.TYPE &&
				!strings.HasSuffix(name, "_test.go") {
				for _, spec := range d.Specs {
					if name := spec.(*ast.TypeSpec).Name; name.IsExported() {
						types[name.Name] = true
					}
				}
			}
		}
	}
	text, err := os.ReadFile("../../doc.go")
	require.NoError(t, err)
	_, lists, _ := strings.Cut(string(text), "// # Types, by who needs them")
	lists, rest, _ := strings.Cut(lists, "// # What can be asked of a Strategy")
	_, authors, _ := strings.Cut(rest, "// # For authors of stores and middlewares")
	link := regexp.MustCompile(`\[(\w+)\]`)
	for _, m := range link.FindAllStringSubmatch(lists, -1) {
		who[m[1]]++
	}
	for _, m := range link.FindAllStringSubmatch(authors, -1) {
		stores[m[1]] = true
	}
	for name := range types {
		n := who[name]
		if stores[name] {
			n++
		}
		assert.Equal(t, 1, n, name)
	}
	assert.Greater(t, len(types), 30)
}
