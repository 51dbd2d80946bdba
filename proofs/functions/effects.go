package main

import (
	"go/ast"
	"go/token"
)

// The effects in initializers of if and switch statements: statements there that change something
// that exists before. A declaration by := has none.
type effects struct {
	lines    int      // of all files
	assigned []string // assignments by =, and by += and the like
	unseen   []string // those of them whose condition mentions nothing that was assigned
	called   []string // calls, ++ and --
}

// perMyriad returns how many effects there are in 10,000 lines.
func (e *effects) perMyriad() float64 {
	return 1e4 * float64(len(e.assigned)+len(e.called)) / float64(e.lines)
}

// effectsOf returns the effects in initializers of files that are not generated.
func effectsOf(all []goFile) *effects {
	e := new(effects)
	for _, s := range all {
		if ast.IsGenerated(s.file) {
			continue
		}
		e.lines += s.lines()
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt:
				e.add(s, n.Init, n.Cond)
			case *ast.SwitchStmt:
				var cond ast.Node = n.Body
				if n.Tag != nil {
					cond = n.Tag
				}
				e.add(s, n.Init, cond)
			}
			return true
		})
	}
	return e
}

func (e *effects) add(s goFile, init ast.Stmt, cond ast.Node) {
	switch init := init.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt:
		e.called = append(e.called, s.shown(init))
	case *ast.AssignStmt:
		if init.Tok == token.DEFINE {
			return
		}
		e.assigned = append(e.assigned, s.shown(init))
		if !s.mentions(cond, init.Lhs) {
			e.unseen = append(e.unseen, s.shown(init))
		}
	}
}
