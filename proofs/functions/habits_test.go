package main

import (
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mostAway are the most methods of each package that may stand in another file than their type; of
// all other packages none may. They are what they are today, and fall with each package that is
// mended. They are meant to fall to 5 % of all methods.
var mostAway = map[string]int{
	".":                                   34,
	"cmd/weir":                            6,
	"cmd/weir/internal/analyse/accesslog": 2,  // by format
	"cmd/weir/internal/analyse/replay":    15, // the passes of a run
	"internal/core/slots":                 3,  // Check is for tests
}

// The most effects in initializers, in the whole repository: those whose condition does not mention
// what was assigned, and all of them in 10,000 lines.
const (
	mostUnseen  = 0
	mostEffects = 4.4
)

func TestMethodsStandInTheFileOfTheirType(t *testing.T) {
	packages := homesOf(ofTree(t))
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		away := packages[dir].away
		assert.LessOrEqual(t, len(away), mostAway[dir], "%s:\n%s", dir, strings.Join(away, "\n"))
	}
	for dir := range mostAway {
		assert.Contains(t, packages, dir, "a package that is gone")
	}
}

func TestTypesReachFewNames(t *testing.T) {
	assert.Empty(t, widest(reachesOf(ofTree(t)), mostNames))
}

func TestInitializersHaveFewEffects(t *testing.T) {
	e := effectsOf(ofTree(t))
	assert.LessOrEqual(t, len(e.unseen), mostUnseen, "not in the condition:\n%s", strings.Join(e.unseen, "\n"))
	assert.LessOrEqual(t, e.perMyriad(), mostEffects, "in 10,000 lines:\n%s",
		strings.Join(slices.Concat(e.assigned, e.called), "\n"))
}

// ofTree returns the files of this tree.
func ofTree(t *testing.T) []goFile {
	root, err := rootDir()
	require.NoError(t, err)
	files, err := goFiles(root)
	require.NoError(t, err)
	return files
}

// parsed returns files of the given sources, by their paths.
func parsed(t *testing.T, sources map[string]string) (files []goFile) {
	places := token.NewFileSet()
	for _, path := range slices.Sorted(maps.Keys(sources)) {
		file, err := parser.ParseFile(places, path, sources[path], parser.ParseComments)
		require.NoError(t, err)
		files = append(files, goFile{path, file, places})
	}
	return files
}

func TestHomesAreTheFilesOfTypes(t *testing.T) {
	packages := homesOf(parsed(t, map[string]string{
		"p/a.go":        "package p\n\ntype (\n\ta struct{}\n\tpair[K, V any] struct{}\n)\n\nfunc (a) home() {}\n",
		"p/b.go":        "package p\n\nfunc (*a) away() {}\n\nfunc (p pair[K, V]) away() {}\n\nfunc none() {}\n",
		"q/b.go":        "package q\n\ntype a int\n\nfunc (a) home() {}\n",
		"examples/a.go": "package main\n\nfunc (a) shown() {}\n",
	}))
	assert.Equal(t, map[string]*homes{
		"p": {3, []string{"p/b.go: (a).away, of a.go", "p/b.go: (pair).away, of a.go"}},
		"q": {1, nil},
	}, packages)
}

func TestReachIsOfWhatIsEmbedded(t *testing.T) {
	types := reachesOf(parsed(t, map[string]string{
		"p/a.go": "package p\n\nimport (\n\t\"io\"\n\n\tother \"github.com/weirgo/weir/q\"\n)\n\n" +
			"type a struct {\n\t*b\n\tother.C[int]\n\tio.Reader\n\tx, y int\n}\n\n" +
			"type b struct{ x, z int }\n\nfunc (*a) f() {}\n\nfunc (b) g() {}\n\ntype set interface{ ~int | b }\n",
		"q/c.go": "package q\n\ntype C[T any] struct{ of T }\n\nfunc (c *C[T]) H() { type C struct{ none int } }\n",
	}))
	assert.Equal(t, map[string]int{"p/a": 10}, widest(types, 0), "b C Reader x y f z g of H")
	assert.Empty(t, widest(types, 10))
}

func TestEffectsAreOfInitializersAlone(t *testing.T) {
	const begin = "package p\n\nfunc f() {\n"
	for statement, want := range map[string]effects{
		"a = 1; if a > 0 {}":                    {},
		"if a := 1; a > 0 {}":                   {},
		"if a = 1; a > 0 {}":                    {assigned: []string{"a = 1"}},
		"if a, err = g(); err != nil {}":        {assigned: []string{"a, err = g()"}},
		"if a.n, _ = g(); ok {}":                {assigned: []string{"a.n, _ = g()"}, unseen: []string{"a.n, _ = g()"}},
		"if a += 1; b {}":                       {assigned: []string{"a += 1"}, unseen: []string{"a += 1"}},
		"if a--; a > 0 {}":                      {called: []string{"a--"}},
		"if g(); a {} else if h(); b {}":        {called: []string{"g()", "h()"}},
		"switch a = 1; a {}":                    {assigned: []string{"a = 1"}},
		"switch a = 1; {\ncase a > 0:\n}":       {assigned: []string{"a = 1"}},
		"switch x = 1; {\ncase b:\n}":           {assigned: []string{"x = 1"}, unseen: []string{"x = 1"}},
		"for a = 1; a < 2; a++ {}":              {},
		"x := func() { if g(); a {} }; _ = x()": {called: []string{"g()"}},
	} {
		source := begin + statement + "\n}\n"
		got := effectsOf(parsed(t, map[string]string{"p.go": source}))
		for _, list := range [][]string{got.assigned, got.unseen, got.called} {
			for i := range list {
				_, list[i], _ = strings.Cut(list[i], "4: ")
			}
		}
		want.lines = strings.Count(source, "\n")
		assert.Equal(t, want, *got, statement)
	}
	generated := "// Code generated by hand. DO NOT EDIT.\n\n" + begin + "if a--; a > 0 {}\n}\n"
	assert.Zero(t, *effectsOf(parsed(t, map[string]string{"p.go": generated})))
}
