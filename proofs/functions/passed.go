package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// reader reads coverage counters.
type reader struct {
	covdata string                // the program of that name
	root    string                // the directory of the root module
	files   map[string][]function // of each file that was read; see functions
}

// function is a function or a function literal, with the position of its body.
type function struct {
	name string
	from place
	to   place
}

func (f function) ofOneLine() bool { return f.from.line == f.to.line }

type place struct{ line, column int }

func (p place) before(q place) bool {
	return p.line < q.line || p.line == q.line && p.column < q.column
}

// passed returns the functions of weir whose counters in dir are not 0, in the order of the source.
// Those of one line are words, not steps, and are left out.
func (r reader) passed(dir string) ([]string, error) {
	profile := filepath.Join(dir, "profile")
	if _, err := output(r.covdata, "textfmt", "-i", dir, "-o", profile); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	_, blocks, _ := strings.Cut(string(text), "\n") // after the mode
	var names []string
	for block := range strings.Lines(blocks) {
		name, err := r.function(block)
		if err != nil {
			return nil, err
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// function returns the function of a line of a coverage profile, or "" if it did not run, is none
// of weir's, or is of one line.
func (r reader) function(block string) (string, error) {
	path, rest, _ := strings.Cut(strings.TrimPrefix(block, module+"/"), ":")
	var from, to place
	var statements, count int
	if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &from.line, &from.column, &to.line, &to.column,
		&statements, &count); err != nil {
		return "", fmt.Errorf("%q: %w", block, err)
	}
	if count == 0 || strings.HasPrefix(path, "proofs/") {
		return "", nil
	}
	all := r.files[path]
	if all == nil {
		src, err := os.ReadFile(filepath.Join(r.root, path))
		if err != nil {
			return "", err
		}
		all, err = functions(path, src)
		if err != nil {
			return "", err
		}
		r.files[path] = all
	}
	var in function
	for _, f := range all { // the innermost is the last
		if !from.before(f.from) && from.before(f.to) {
			in = f
		}
	}
	switch {
	case in.name == "":
		return "", fmt.Errorf("%q is in no function", block)
	case in.ofOneLine():
		return "", nil
	}
	return in.name, nil
}

// functions returns the functions of a file, a literal after the function that holds it.
func functions(path string, src []byte) ([]function, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var all []function
	at := func(p token.Pos) place { return place{fset.Position(p).Line, fset.Position(p).Column} }
	add := func(name string, body *ast.BlockStmt) {
		from := at(body.Pos())
		all = append(all, function{fmt.Sprintf("%s:%d %s", path, from.line, name), from, at(body.End())})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			name := n.Name.Name
			if n.Recv != nil {
				name = "(" + types.ExprString(n.Recv.List[0].Type) + ")." + name
			}
			if n.Body != nil {
				add(name, n.Body)
			}
		case *ast.FuncLit:
			add("func", n.Body)
		}
		return true
	})
	return all, nil
}
