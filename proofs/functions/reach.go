package main

import (
	"go/ast"
	"path"
	"strconv"
	"strings"
)

// mostNames are the most names that a type should reach.
const mostNames = 60

// reach is the names that a receiver of a type reaches: its fields and methods, and those of the
// types that it embeds.
type reach struct {
	own   map[string]bool
	embed []string // types, as in reachesOf
}

// reachesOf returns the reach of each struct and interface, by its directory and name, such as
// "limits/Attempt". Of what a type embeds of another module only the name counts.
func reachesOf(all []goFile) map[string]*reach {
	types := map[string]*reach{}
	at := func(dir, name string) *reach {
		key := path.Join(dir, name)
		if types[key] == nil {
			types[key] = &reach{own: map[string]bool{}}
		}
		return types[key]
	}
	for _, s := range all {
		dir, imported := path.Dir(s.path), importsOf(s.file)
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					at(dir, receiver(n.Recv.List[0].Type)).own[n.Name.Name] = true
				}
				return false // its types are its own
			case *ast.TypeSpec:
				at(dir, n.Name.Name).add(n.Type, dir, imported)
			}
			return true
		})
	}
	return types
}

// importsOf returns the directories of the packages that a file imports, by their names.
func importsOf(file *ast.File) map[string]string {
	of := map[string]string{}
	for _, spec := range file.Imports {
		name, _ := strconv.Unquote(spec.Path.Value) // the parser has read it
		dir := name
		if rest, ok := strings.CutPrefix(name, module); ok {
			dir = path.Clean("." + rest)
		}
		name = path.Base(name)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		of[name] = dir
	}
	return of
}

// add adds the fields, or the methods of an interface, of a type in dir.
func (r *reach) add(of ast.Expr, dir string, imported map[string]string) {
	var fields *ast.FieldList
	switch of := of.(type) {
	case *ast.StructType:
		fields = of.Fields
	case *ast.InterfaceType:
		fields = of.Methods
	default:
		return
	}
	for _, f := range fields.List {
		for _, name := range f.Names {
			r.own[name.Name] = true
		}
		if len(f.Names) > 0 {
			continue
		}
		from, name := embedded(f.Type, dir, imported)
		if name != "" { // else a constraint
			r.own[name] = true
			r.embed = append(r.embed, path.Join(from, name))
		}
	}
}

// embedded returns the directory and the name of a type that one in dir embeds.
func embedded(e ast.Expr, dir string, imported map[string]string) (from, name string) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return embedded(e.X, dir, imported)
	case *ast.IndexExpr:
		return embedded(e.X, dir, imported)
	case *ast.IndexListExpr:
		return embedded(e.X, dir, imported)
	case *ast.SelectorExpr:
		return imported[receiver(e.X)], e.Sel.Name
	}
	return dir, receiver(e)
}

// names adds to all the names that a receiver of a type reaches.
func names(types map[string]*reach, of string, all map[string]bool) {
	r := types[of]
	if r == nil {
		return
	}
	for name := range r.own {
		all[name] = true
	}
	for _, e := range r.embed {
		if e != of {
			names(types, e, all)
		}
	}
}

// widest returns how many names the types reach that embed others, if they are more than most.
func widest(types map[string]*reach, most int) map[string]int {
	wide := map[string]int{}
	for of, r := range types {
		all := map[string]bool{}
		names(types, of, all)
		if len(r.embed) > 0 && len(all) > most {
			wide[of] = len(all)
		}
	}
	return wide
}
