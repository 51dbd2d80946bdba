package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// arrow is from a file that uses what another one defines.
type arrow struct{ from, to string }

// arrowsOf returns the arrows between the files of a package, without its tests, with how often
// each is drawn. What is used are constants, variables, types, functions, methods and fields.
func arrowsOf(dir, path string) (map[arrow]int, error) {
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	exports, err := output("go", "list", "-C", dir, "-export", "-deps", "-f",
		"{{.ImportPath}} {{.Export}}", ".")
	if err != nil {
		return nil, err
	}
	export := map[string]string{}
	for line := range strings.Lines(exports) {
		of, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		export[of] = file
	}
	open := func(of string) (io.ReadCloser, error) { return os.Open(export[of]) }
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", open)}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := conf.Check(path, fset, files, info)
	if err != nil {
		return nil, err
	}
	arrows := map[arrow]int{}
	in := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	for id, of := range info.Uses {
		if of.Pkg() != pkg || !of.Pos().IsValid() {
			continue
		}
		if from, to := in(id.Pos()), in(of.Pos()); from != to {
			arrows[arrow{from, to}]++
		}
	}
	return arrows, nil
}

// bestOrder returns the files so that few arrows run back, to a file before the one they are of,
// and those that do. It moves one file at a time where that helps, and behind others where it does
// no harm, from the order by how much is used of each, so the result is a bound: a better order may
// exist.
func bestOrder(arrows map[arrow]int) (order []string, back []arrow) {
	used := map[string]int{}
	for a := range arrows {
		used[a.from] -= 1
		used[a.to] += 1
	}
	for file := range used {
		order = append(order, file)
	}
	slices.SortFunc(order, func(a, b string) int {
		if used[a] != used[b] {
			return used[b] - used[a]
		}
		return strings.Compare(a, b)
	})
	// Moving f over g turns the arrows between the two.
	gain := func(f, g string) int { // of f to before g, which was before it
		n := 0
		if arrows[arrow{g, f}] > 0 {
			n++
		}
		if arrows[arrow{f, g}] > 0 {
			n--
		}
		return n
	}
	for range order {
		for _, f := range slices.Clone(order) {
			at := slices.Index(order, f)
			to, most, sum := at, 0, 0
			for i := at - 1; i >= 0; i-- {
				sum += gain(f, order[i])
				if sum > most {
					to, most = i, sum
				}
			}
			sum = 0
			for i := at + 1; i < len(order); i++ {
				sum -= gain(f, order[i])
				if sum >= most {
					to, most = i, sum
				}
			}
			if to != at {
				order = slices.Insert(slices.Delete(order, at, at+1), to, f)
			}
		}
	}
	for a := range arrows {
		if slices.Index(order, a.to) > slices.Index(order, a.from) {
			back = append(back, a)
		}
	}
	slices.SortFunc(back, func(a, b arrow) int { return strings.Compare(a.from+a.to, b.from+b.to) })
	return order, back
}
