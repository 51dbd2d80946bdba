package weir_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

// optional returns the names of the optional interfaces of s, in the order of the package's
// comment.
func optional(s weir.Strategy) (names []string) {
	for _, i := range []reflect.Type{
		reflect.TypeFor[weir.Peeker](), reflect.TypeFor[weir.Refunder](),
		reflect.TypeFor[weir.Resetter](),
		reflect.TypeFor[weir.PrefixResetter](), reflect.TypeFor[weir.Seeder](),
		reflect.TypeFor[weir.Charger](),
		reflect.TypeFor[weir.Reconciler](), reflect.TypeFor[weir.Admitter](),
		reflect.TypeFor[weir.Holder](),
		reflect.TypeFor[weir.Named](), reflect.TypeFor[weir.Forecaster](),
	} {
		if reflect.TypeOf(s).Implements(i) {
			names = append(names, i.Name())
		}
	}
	return names
}

// The table in the package's comment says what implements what.
func TestTheDocumentationSaysWhatImplementsWhat(t *testing.T) {
	limiter := limiterAt(noon())
	defer limiter.Close()
	tiers := weir.MustTiers(t, limiter, weir.Tier{Limit: 1, Duration: time.Second})
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(strings.TrimPrefix(line, "//\t")); strings.HasPrefix(line, "//\t") &&
			len(words) > 1 {
			rows[words[0]] = words[1:]
		}
	}

	var forecasters, holders []string
	for _, s := range []weir.Strategy{
		limiter.FixedWindow(), limiter.Calendar(weir.Month, time.UTC), limiter.SlidingWindow(),
		limiter.SlidingLog(),
		limiter.TokenBucket(0), limiter.LeakyBucket(0), tiers, limiter.Counter(), limiter.List(),
		limiter.InFlight(),
	} {
		name, is := reflect.TypeOf(s).Elem().Name(), optional(s)
		if n := len(is) - 1; is[n] == "Forecaster" {
			forecasters, is = append(forecasters, name), is[:n]
		}
		if i := slices.Index(is, "Holder"); i >= 0 {
			holders, is = append(holders, name), slices.Delete(is, i, i+1)
		}
		assert.Equal(t, []string{"Peeker", "Refunder", "Resetter", "PrefixResetter", "Seeder", "Charger",
			"Admitter", "Named"}, is, name)
	}
	assert.Equal(t, rows["Forecaster"], forecasters)
	assert.Equal(t, rows["Holder"], holders)
	window := limiter.FixedWindow()
	assert.Equal(t, []string{"Named;"}, rows["Limit"][:1])
	assert.Equal(t, []string{"Named"}, optional(window.Limit(1, time.Second)))
}

// The package's comment names each exported type, and each once in a list of its own: the index of
// a page sorts by the alphabet, which puts Admitter first.
func TestTheDocumentationSaysWhoNeedsAType(t *testing.T) {
	types, who, stores := map[string]bool{}, map[string]int{}, map[string]bool{}
	files, err := filepath.Glob("*.go")
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
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, lists, _ := strings.Cut(string(text), "// # Types, by who needs them")
	lists, rest, _ := strings.Cut(lists, "// # What implements what")
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
	assert.Greater(t, len(types), 40)
}
