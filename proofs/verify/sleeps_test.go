package verify

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A sleep outside a bubble of testing/synctest takes real time and guesses how long something else
// takes: a comment in its line, or in the lines before it, says why.
func TestSleepsOutsideABubbleAreExplained(t *testing.T) {
	sources := map[string][]source{} // by directory
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "../.." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		dir := filepath.Dir(path)
		sources[dir] = append(sources[dir], source{path, string(text)})
		return err
	}))
	total := 0
	for _, files := range sources {
		if !slices.ContainsFunc(files, source.namesSleep) {
			continue // nothing to find
		}
		sleeps, unexplained := sleepsOf(t, files)
		total += sleeps
		assert.Empty(t, unexplained, "wait for a condition or in a bubble, or say why not")
	}
	assert.Greater(t, total, 100, "sleeps that were found")
}

func TestSleepsOutsideABubbleControl(t *testing.T) {
	const head = "package p\n"
	for name, row := range map[string]struct {
		code string
		want int
	}{
		"without a reason": {`func f() { time.Sleep(1) }`, 1},
		"with a reason":    {`func f() { time.Sleep(1) /* because */ }`, 0},
		"with a reason in the line before": {`func f() {
			// because
			time.Sleep(1)
		}`, 0},
		"a reason for what is before it": {`func f() {
			g() // because
			time.Sleep(1)
		}`, 1},
		"in a bubble":     {`func f() { synctest.Test(t, func() { time.Sleep(1) }) }`, 0},
		"beside a bubble": {`func f() { synctest.Test(t, func() {}); time.Sleep(1) }`, 1},
		"called in a bubble": {`func f() { synctest.Test(t, func() { g() }) }
			func g() { time.Sleep(1) }`, 0},
		"given to a bubble": {`func f() { synctest.Test(t, g) }; func g() { time.Sleep(1) }`, 0},
		"called in one and beside": {`func f() { synctest.Test(t, g); g() }
			func g() { time.Sleep(1) }`, 1},
		"called by nothing": {`func g() { time.Sleep(1) }`, 1},
		"given to what runs it in a bubble": {`func f() { g(func() { time.Sleep(1) }) }
			func g(h func()) { synctest.Test(t, func() { h() }) }`, 0},
		"given to what runs it in a bubble, from outside the package": {`func f() { p.g(func() { time.Sleep(1) }) }
			func g(h func()) { synctest.Test(t, func() { h() }) }`, 0},
		"given to what also runs it beside": {`func f() { g(func() { time.Sleep(1) }) }
			func g(h func()) { synctest.Test(t, func() { h() }); h() }`, 1},
		"a local function": {`func f() {
			g := func() { time.Sleep(1) }
			synctest.Test(t, func() { g() })
		}`, 0},
	} {
		sleeps, unexplained := sleepsOf(t, []source{{"control.go", head + row.code}})
		assert.Equal(t, 1, sleeps, name)
		assert.Len(t, unexplained, row.want, name)
	}
}

type source struct{ path, text string }

func (s source) namesSleep() bool { return strings.Contains(s.text, "time.Sleep") }

// sleepsOf returns how many times the files of a package sleep, and where without a bubble or a
// reason.
func sleepsOf(t *testing.T, files []source) (sleeps int, unexplained []string) {
	p := sleeper{
		fset: token.NewFileSet(), functions: map[string][]ast.Node{},
		arguments: map[string][]ast.Node{}, params: map[string][]*ast.Ident{},
		mentions: map[string][]token.Pos{}, explained: map[string]bool{},
	}
	for _, f := range files {
		file, err := parser.ParseFile(p.fset, f.path, f.text, parser.ParseComments)
		require.NoError(t, err)
		p.explain(file.Comments, strings.Split(f.text, "\n"))
		p.read(file)
	}
	p.growBubbles()
	for _, at := range p.sleeps {
		if line := p.line(at, 0); !p.inBubble(at) && !p.explained[line] {
			unexplained = append(unexplained, line)
		}
	}
	return len(p.sleeps), unexplained
}

// sleeper is a package that sleeps. It is read without types: what has one name is one thing.
type sleeper struct {
	fset      *token.FileSet
	sleeps    []token.Pos
	bubbles   []ast.Node
	functions map[string][]ast.Node
	arguments map[string][]ast.Node   // by the name of the function that is called
	params    map[string][]*ast.Ident // of functions, those that are functions
	mentions  map[string][]token.Pos  // of names, without their declarations
	explained map[string]bool         // by line
}

// line returns the file and the line of p, or of the line that is n after it.
func (s *sleeper) line(p token.Pos, n int) string {
	at := s.fset.Position(p)
	return fmt.Sprintf("%s:%d", at.Filename, at.Line+n)
}

// explain notes the lines that have a comment, or one before them that shares its line with no
// code.
func (s *sleeper) explain(comments []*ast.CommentGroup, lines []string) {
	for _, c := range comments {
		s.explained[s.line(c.Pos(), 0)] = true
		at := s.fset.Position(c.Pos())
		if strings.TrimSpace(lines[at.Line-1][:at.Column-1]) == "" {
			s.explained[s.line(c.End(), 1)] = true
		}
	}
}

func (s *sleeper) read(file *ast.File) {
	declared := map[*ast.Ident]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			declared[n.Name] = true
			s.function(n.Name.Name, n, n.Type, declared)
		case *ast.AssignStmt:
			name, _ := n.Lhs[0].(*ast.Ident)
			if lit, ok := n.Rhs[0].(*ast.FuncLit); ok && name != nil && len(n.Lhs) == 1 {
				declared[name] = true
				s.function(name.Name, lit, lit.Type, declared)
			}
		case *ast.CallExpr:
			s.call(n)
		case *ast.Ident:
			if !declared[n] {
				s.mentions[n.Name] = append(s.mentions[n.Name], n.Pos())
			}
		}
		return true
	})
}

// function notes a function and those of its parameters that are functions.
func (s *sleeper) function(
	name string, node ast.Node, t *ast.FuncType, declared map[*ast.Ident]bool,
) {
	s.functions[name] = append(s.functions[name], node)
	for _, field := range t.Params.List {
		if _, ok := field.Type.(*ast.FuncType); !ok {
			continue
		}
		for _, param := range field.Names {
			declared[param] = true
			s.params[name] = append(s.params[name], param)
		}
	}
}

func (s *sleeper) call(c *ast.CallExpr) {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		for _, arg := range c.Args {
			s.arguments[f.Name] = append(s.arguments[f.Name], arg)
		}
	case *ast.SelectorExpr:
		switch x, _ := f.X.(*ast.Ident); {
		case x == nil:
		case x.Name == "synctest" && f.Sel.Name == "Test":
			s.bubbles = append(s.bubbles, c.Args[1])
		case x.Name == "time" && f.Sel.Name == "Sleep":
			s.sleeps = append(s.sleeps, c.Pos())
		default: // perhaps a function of the package whose tests are outside of it
			for _, arg := range c.Args {
				s.arguments[f.Sel.Name] = append(s.arguments[f.Sel.Name], arg)
			}
		}
	}
}

// growBubbles adds the functions that are mentioned in bubbles only, and what is given to a
// function that uses its parameter in bubbles only.
func (s *sleeper) growBubbles() {
	for grown := true; grown; {
		grown = false
		for name, bodies := range s.functions {
			if s.onlyInBubbles(name, nil) {
				s.bubbles = append(s.bubbles, bodies...)
				delete(s.functions, name)
				grown = true
			}
		}
		for name, params := range s.params {
			if len(s.functions[name]) == 1 && s.onlyInBubbles(params[0].Name, s.functions[name][0]) {
				s.bubbles = append(s.bubbles, s.arguments[name]...)
				delete(s.params, name)
				grown = true
			}
		}
	}
}

// onlyInBubbles reports whether a name is mentioned, and in bubbles only: anywhere, or in a
// function.
func (s *sleeper) onlyInBubbles(name string, in ast.Node) bool {
	n := 0
	for _, p := range s.mentions[name] {
		if in != nil && !within(in, p) {
			continue
		}
		if n++; !s.inBubble(p) {
			return false
		}
	}
	return n > 0
}

func (s *sleeper) inBubble(p token.Pos) bool {
	return slices.ContainsFunc(s.bubbles, func(b ast.Node) bool { return within(b, p) })
}

func within(n ast.Node, p token.Pos) bool { return n.Pos() <= p && p < n.End() }
