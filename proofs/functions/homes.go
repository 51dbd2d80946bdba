package main

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// The methods of a package, and those of them that stand in another file than their type.
type homes struct {
	methods int
	away    []string // "file.go: (type).method, of other.go"
}

// homesOf returns the methods of each package, by its directory. Methods of examples do not count:
// an example shows a program as its page tells it.
func homesOf(all []goFile) map[string]*homes {
	files := map[string]string{} // of types, by directory and name
	for _, s := range all {
		for _, decl := range s.file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range gen.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					files[path.Join(path.Dir(s.path), t.Name.Name)] = path.Base(s.path)
				}
			}
		}
	}
	packages := map[string]*homes{}
	for _, s := range all {
		dir, name := path.Split(s.path)
		if slices.Contains(strings.Split(dir, "/"), "examples") {
			continue
		}
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			of := receiver(f.Recv.List[0].Type)
			home := files[path.Join(dir, of)]
			p := packages[path.Clean(dir)]
			if p == nil {
				p = new(homes)
				packages[path.Clean(dir)] = p
			}
			p.methods++
			if home != name {
				p.away = append(p.away, fmt.Sprintf("%s: (%s).%s, of %s", s.path, of, f.Name.Name, home))
			}
		}
	}
	return packages
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
