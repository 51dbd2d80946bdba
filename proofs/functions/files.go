package main

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
)

// A goFile is a Go file of the repository that is no test.
type goFile struct {
	path   string // from the root of the repository, with slashes
	file   *ast.File
	places *token.FileSet
}

// goFiles returns those below a directory, without the data of tests.
func goFiles(root string) (all []goFile, err error) {
	places := token.NewFileSet()
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (name[0] == '.' || name == "testdata" || name == "vendor"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(places, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		path, err = filepath.Rel(root, path)
		all = append(all, goFile{filepath.ToSlash(path), file, places})
		return err
	})
	return all, err
}

// line returns the line on which a node begins.
func (s goFile) line(n ast.Node) int {
	return s.places.Position(n.Pos()).Line
}

// lines returns how many lines the file has.
func (s goFile) lines() int {
	return s.places.File(s.file.FileStart).LineCount()
}

// mentions reports whether the text of a condition has that of an operand.
func (s goFile) mentions(cond ast.Node, operands []ast.Expr) bool {
	text := s.text(cond)
	for _, o := range operands {
		if name := s.text(o); name != "_" && strings.Contains(text, name) {
			return true
		}
	}
	return false
}

// shown returns a statement with its place.
func (s goFile) shown(n ast.Node) string {
	return fmt.Sprintf("%s:%d: %s", s.path, s.line(n), s.text(n))
}

func (s goFile) text(n ast.Node) string {
	var b strings.Builder
	_ = format.Node(&b, s.places, n) // a strings.Builder does not fail
	return b.String()
}
