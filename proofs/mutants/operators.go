package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// mutant is a source file with one fault: a range of its bytes is replaced.
type mutant struct {
	pkg      *pkg
	id       string // file:function:operator:digest of the change, independent of the line
	operator string
	file     string
	line     int
	from, to int // offsets
	with     string
	change   string  // the line before and after, for people
	suites   []suite // nil: those of the tester
}

func (m mutant) String() string { return fmt.Sprintf("%s (line %d) %s", m.id, m.line, m.change) }

// apply returns the mutated source.
func (m mutant) apply(src []byte) []byte {
	return slices.Concat(src[:m.from], []byte(m.with), src[m.to:])
}

// generator makes the mutants of one file.
type generator struct {
	fset     *token.FileSet
	name     string
	src      []byte
	pure     bool // make the mutants of value too
	function string
	seen     map[string]int
	mutants  []mutant
}

// generate makes the mutants of a file. pure adds those of value: few enough to test them all only
// in a small package.
func generate(fset *token.FileSet, name string, src []byte, file *ast.File, pure bool) []mutant {
	g := &generator{fset: fset, name: name, src: src, pure: pure, seen: map[string]int{}}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			g.function = functionName(d)
		case *ast.GenDecl:
			if d.Tok != token.CONST && d.Tok != token.VAR {
				continue
			}
			g.function = d.Tok.String()
		}
		ast.Inspect(decl, g.visit)
	}
	return g.mutants
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	switch x := t.(type) {
	case *ast.IndexExpr:
		t = x.X
	case *ast.IndexListExpr:
		t = x.X
	}
	return fmt.Sprint(t, ".", d.Name.Name)
}

func (g *generator) offset(p token.Pos) int { return g.fset.Position(p).Offset }

func (g *generator) text(n ast.Node) string {
	return string(g.src[g.offset(n.Pos()):g.offset(n.End())])
}

// add makes a mutant in which the source from one position to another is replaced.
func (g *generator) add(operator string, from, to token.Pos, with string) {
	m := mutant{operator: operator, file: g.name, line: g.fset.Position(from).Line,
		from: g.offset(from),
		to:   g.offset(to), with: with}
	start, end := m.from, m.to
	for start > 0 && g.src[start-1] != '\n' {
		start--
	}
	for end < len(g.src) && g.src[end] != '\n' {
		end++
	}
	before := string(g.src[start:end])
	after := string(g.src[start:m.from]) + with + string(g.src[m.to:end])
	short := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	m.change = short(before) + " => " + short(after)
	h := fnv.New32a()
	key := fmt.Sprint(g.function, operator, m.change)
	g.seen[key]++
	fmt.Fprint(h, key, g.seen[key])
	m.id = fmt.Sprintf("%s:%s:%s:%06x", g.name, g.function, operator, h.Sum32()&0xffffff)
	g.mutants = append(g.mutants, m)
}

func (g *generator) visit(n ast.Node) bool {
	if g.pure {
		g.value(n)
	}
	switch n := n.(type) {
	case *ast.BinaryExpr:
		g.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			g.add("negation", n.OpPos, n.X.Pos(), "")
		}
	case *ast.BasicLit:
		g.constant(n)
	case *ast.CallExpr:
		g.call(n)
	case *ast.IfStmt:
		g.add("negation", n.Cond.Pos(), n.Cond.End(), "!("+g.text(n.Cond)+")")
	case *ast.BlockStmt:
		g.statements(n.List)
	case *ast.CaseClause:
		g.statements(n.Body)
	case *ast.CommClause:
		g.statements(n.Body)
	}
	return true
}

var operators = map[token.Token]struct{ name, to string }{
	token.LSS:  {"comparison", "<="},
	token.LEQ:  {"comparison", "<"},
	token.GTR:  {"comparison", ">="},
	token.GEQ:  {"comparison", ">"},
	token.EQL:  {"comparison", "!="},
	token.NEQ:  {"comparison", "=="},
	token.LAND: {"logic", "||"},
	token.LOR:  {"logic", "&&"},
	token.ADD:  {"arithmetic", "-"},
	token.SUB:  {"arithmetic", "+"},
	token.MUL:  {"arithmetic", "/"},
	token.QUO:  {"arithmetic", "*"},
}

func (g *generator) binary(n *ast.BinaryExpr) {
	if op, ok := operators[n.Op]; ok {
		g.add(op.name, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), op.to)
	}
}

var valueOperators = map[token.Token]string{
	token.SHL:     ">>",
	token.SHR:     "<<",
	token.REM:     "/",
	token.AND:     "|",
	token.OR:      "&",
	token.XOR:     "|",
	token.AND_NOT: "&",
}

// saturating are the functions of package arith that are operators.
var saturating = map[string]string{"Add": "Sub", "Sub": "Add", "Mul": "Add"}

// value makes mutants of values: of the operators left out by binary, of saturating arithmetic, and
// one more of each number that is returned, assigned or given to a field. Those that are no numbers
// do not compile.
func (g *generator) value(n ast.Node) {
	var values []ast.Expr
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if to, ok := valueOperators[n.Op]; ok {
			g.add("bits", n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to)
		}
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && x.Name == "arith" && saturating[n.Sel.Name] != "" {
			g.add("saturating", n.Sel.Pos(), n.Sel.End(), saturating[n.Sel.Name])
		}
	case *ast.ReturnStmt:
		values = n.Results
	case *ast.AssignStmt:
		values = n.Rhs
	case *ast.KeyValueExpr:
		values = []ast.Expr{n.Value}
	}
	for _, v := range values {
		if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.INT {
			continue // constant has made it
		}
		g.add("offset", v.Pos(), v.End(), "("+g.text(v)+") + 1")
	}
}

// constant makes mutants of an integer: one more, one less, and 0.
func (g *generator) constant(n *ast.BasicLit) {
	v, err := strconv.ParseUint(n.Value, 0, 63)
	if n.Kind != token.INT || err != nil {
		return
	}
	g.add("constant", n.Pos(), n.End(), strconv.FormatUint(v+1, 10))
	if v > 0 {
		g.add("constant", n.Pos(), n.End(), strconv.FormatUint(v-1, 10))
	}
	if v > 1 {
		g.add("constant", n.Pos(), n.End(), "0")
	}
}

// call swaps min and max, and the last two arguments of a compare-and-swap.
func (g *generator) call(n *ast.CallExpr) {
	name := calledName(n)
	switch {
	case name == "min":
		g.add("minmax", n.Fun.Pos(), n.Fun.End(), "max")
	case name == "max":
		g.add("minmax", n.Fun.Pos(), n.Fun.End(), "min")
	case strings.HasPrefix(name, "CompareAndSwap") && len(n.Args) >= 2:
		before, after := n.Args[len(n.Args)-2], n.Args[len(n.Args)-1]
		g.add("swap", before.Pos(), after.End(), g.text(after)+", "+g.text(before))
	}
}

func calledName(n *ast.CallExpr) string {
	switch f := n.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// statements drops each statement of a list, and swaps neighbors that store.
func (g *generator) statements(list []ast.Stmt) {
	for i, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
			g.add("dropped", s.Pos(), s.End(), "")
		case *ast.AssignStmt:
			if s.Tok == token.ADD_ASSIGN {
				g.add("arithmetic", s.TokPos, s.TokPos+2, "-=")
			}
			if s.Tok == token.SUB_ASSIGN {
				g.add("arithmetic", s.TokPos, s.TokPos+2, "+=")
			}
			if s.Tok != token.DEFINE {
				g.add("dropped", s.Pos(), s.End(), "")
			}
		case *ast.DeferStmt:
			g.add("defer", s.Pos(), s.End(), "")
		case *ast.ReturnStmt, *ast.BranchStmt:
			g.add("exit", s.Pos(), s.End(), "")
		}
		if i > 0 && stores(list[i-1]) && stores(s) {
			between := string(g.src[g.offset(list[i-1].End()):g.offset(s.Pos())])
			g.add("order", list[i-1].Pos(), s.End(), g.text(s)+between+g.text(list[i-1]))
		}
	}
}

// stores reports whether a statement publishes something to readers without a lock: their order
// matters.
func stores(s ast.Stmt) bool {
	x, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := x.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	name := calledName(call)
	return name == "lower" || strings.HasPrefix(name, "Store") || strings.HasPrefix(name, "Swap") ||
		strings.HasPrefix(name, "CompareAndSwap")
}
