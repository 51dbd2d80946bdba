package verify

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Errors, panics and log messages keep what docs/CONTRIBUTING.md says of them, as far as their text
// shows it.
func TestMessagesHaveOneStyle(t *testing.T) {
	var files []*ast.File
	var flags []string
	fset := token.NewFileSet()
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		skipped := []string{"examples", "proofs", "tools", "testdata"}
		if err == nil && d.IsDir() && path != "../.." &&
			(strings.HasPrefix(d.Name(), ".") || slices.Contains(skipped, d.Name())) {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err == nil {
			files, flags = append(files, file), append(flags, flagsOf(file)...)
		}
		return err
	}))
	require.Greater(t, len(flags), 30, "flags of the programs that have a hyphen")
	bare := withoutHyphens(flags)
	total := 0
	for _, file := range files {
		inside := strings.Contains(fset.File(file.Pos()).Name(), "/internal/")
		pkg := file.Name.Name
		for _, m := range messagesOf(file) {
			total++
			for _, wrong := range m.wrong(pkg, !inside && pkg != "main", bare) {
				assert.Fail(t, wrong, "%v: %q", fset.Position(m.at), m.text)
			}
		}
	}
	assert.Greater(t, total, 400, "messages that were found")
}

func TestMessagesHaveOneStyleControl(t *testing.T) {
	bare := withoutHyphens([]string{"most-keys", "max-keys"})
	for code, want := range map[string]int{
		`var ErrKey = errors.New("p: bad key")`:                     0,
		`var ErrKey = errors.New("bad key")`:                        1, // of which package?
		`var ErrKey = errors.New("p: bad key.")`:                    1,
		`func f() error { return errors.New("bad key") }`:           0, // may be wrapped
		`func f() error { return errors.New("Bad key") }`:           1,
		`func f() error { return errors.New("MaxKeys is 0") }`:      0,
		`func f() error { return errors.New("CORS is set") }`:       0,
		`func f() error { return fmt.Errorf("p: no " + "key") }`:    1, // has no verb
		`func f() error { return fmt.Errorf("p: key %q", "k") }`:    0,
		`func f() error { return fmt.Errorf("max-keys is %d", 0) }`: 1,
		`func f() error { return fmt.Errorf("--max-keys: %d", 0) }`: 0,
		`func f() { panic("no key") }`:                              1,
		`func f() { panic(fmt.Sprintf("p: %d keys", 2)) }`:          0,
		`func f() { panic(name + ": no key") }`:                     0,
		`func f(err error) { panic(err) }`:                          0,
		`func f() { log.Warn("Too late!", "error", nil) }`:          2,
		`func f() { log.Warn("too late", "error", nil) }`:           0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+code, 0)
		require.NoError(t, err)
		var wrong []string
		for _, m := range messagesOf(file) {
			wrong = append(wrong, m.wrong("p", true, bare)...)
		}
		assert.Len(t, wrong, want, code)
	}
}

// message is the text of an error, of a panic or of a log record.
type message struct {
	at   token.Pos
	by   string // the function that is given the text
	text string // what is no literal is %v
	own  bool   // it must begin with the name of its package
}

// unprefixed are the sentinels that do not begin with the name of their package.
var unprefixed = []string{
	// It is only returned behind a rule's path.
	"the rule limits requests in flight, and this decision does not see their " +
		"end; a Decider, Engine.Hold and weir proxy do",
}

// withoutHyphens matches a text that names one of the flags without its hyphens.
func withoutHyphens(flags []string) *regexp.Regexp {
	return regexp.MustCompile(`(^|[^-\w])(` + strings.Join(flags, "|") + `)($|[^-\w])`)
}

// wrong returns what breaks the style. A flag that bare matches lacks its hyphens.
func (m message) wrong(pkg string, published bool, bare *regexp.Regexp) (wrong []string) {
	if m.text == "" || strings.ContainsAny(m.text[len(m.text)-1:], ".!\n ") {
		wrong = append(wrong, "the end of a message")
	}
	first, _, _ := strings.Cut(m.text, " ")
	if first != "" && 'A' <= first[0] && first[0] <= 'Z' && strings.ToLower(first[1:]) == first[1:] {
		wrong = append(wrong, "a capital letter at the beginning")
	}
	if m.by == "Errorf" && !strings.Contains(m.text, "%") {
		wrong = append(wrong, "an Errorf that formats nothing: use errors.New")
	}
	prefixed := strings.HasPrefix(m.text, pkg+": ") || strings.HasPrefix(m.text, "%")
	if published && m.own && !prefixed && !slices.Contains(unprefixed, m.text) {
		wrong = append(wrong, "a message that does not name its package")
	}
	if m.by == "Errorf" || m.by == "New" {
		if found := bare.FindStringSubmatch(m.text); found != nil {
			wrong = append(wrong, "a flag without its hyphens: "+found[2])
		}
	}
	return wrong
}

// messagesOf returns the messages of a file that are literals, or begin with one.
func messagesOf(file *ast.File) (all []message) {
	sentinels := map[ast.Expr]bool{}
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, spec := range g.Specs {
				for i, value := range spec.(*ast.ValueSpec).Values {
					sentinels[value] = spec.(*ast.ValueSpec).Names[i].IsExported()
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		by, arg := speaker(call), call.Args[0]
		if by == "" {
			return true
		}
		if inner, ok := arg.(*ast.CallExpr); ok && by == "panic" && len(inner.Args) > 0 {
			arg = inner.Args[0] // of fmt.Sprintf
		}
		if text, ok := textOf(arg); ok {
			all = append(all, message{n.Pos(), by, text, by == "panic" || sentinels[call]})
		}
		return true
	})
	return all
}

// speaker returns the name of the function that is called, if it is given a message.
func speaker(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		if f.Name == "panic" {
			return f.Name
		}
	case *ast.SelectorExpr:
		x, _ := f.X.(*ast.Ident)
		pkg := x != nil && (x.Name == "errors" && f.Sel.Name == "New" ||
			x.Name == "fmt" && f.Sel.Name == "Errorf")
		if pkg || slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, f.Sel.Name) {
			return f.Sel.Name
		}
	}
	return ""
}

// textOf returns the text of a literal, or of a sum with one.
func textOf(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		left, isLeft := textOf(e.X)
		right, isRight := textOf(e.Y)
		if e.Op == token.ADD && (isLeft || isRight) {
			if !isLeft {
				left = "%v"
			}
			if !isRight {
				right = "%v"
			}
			return left + right, true
		}
	}
	return "", false
}

// flagsOf returns the flags that a file declares whose names have a hyphen.
func flagsOf(file *ast.File) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 3 {
			return true
		}
		if f, ok := call.Fun.(*ast.SelectorExpr); ok && strings.Contains(f.Sel.Name, "Var") {
			if name, ok := textOf(call.Args[1]); ok && strings.Contains(name, "-") {
				names = append(names, name)
			}
		}
		return true
	})
	return names
}
