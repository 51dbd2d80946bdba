package verify

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tellTale returns which algorithm's arithmetic an expression belongs to, or "".
func tellTale(n ast.Node) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok {
			return ""
		}
		switch x, _ := f.X.(*ast.Ident); {
		case x == nil:
		case x.Name == "bits" && f.Sel.Name == "Div64" && !isConstant(n.Args[2]):
			return "the estimate of a sliding window: a count times a part of a period"
		}
	case *ast.BinaryExpr:
		if n.Op == token.QUO && isLimit(n.Y) {
			return "the spacing of a token bucket: a period divided by a limit"
		}
	}
	return ""
}

func isConstant(e ast.Expr) bool {
	_, ok := e.(*ast.BasicLit)
	return ok
}

// isLimit reports whether an expression is a limit, perhaps converted or bounded.
func isLimit(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return strings.EqualFold(e.Name, "limit")
	case *ast.SelectorExpr:
		return strings.EqualFold(e.Sel.Name, "limit")
	case *ast.ParenExpr:
		return isLimit(e.X)
	case *ast.CallExpr:
		for _, arg := range e.Args {
			if isLimit(arg) {
				return true
			}
		}
	}
	return false
}

// apart are oracles, which share no code with what they check: models, and the conformance suite.
// The modules of adapters are users of the published packages.
var apart = []string{"proofs/verify", "proofs/fleet", "internal/testkit/verbtest",
	"weirtest", "adapters"}

// Each algorithm's arithmetic exists once: what is typical of it is in internal/core/algorithm
// alone.
func TestArithmeticOfEachAlgorithmExistsOnce(t *testing.T) {
	found := map[string]bool{}
	fset := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(apart, name) || d.Name() == "testdata" ||
			path != "../.." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			what := tellTale(n)
			switch {
			case what == "":
			case filepath.ToSlash(filepath.Dir(name)) == "internal/core/algorithm":
				found[what] = true
			default:
				assert.Fail(t, "a second copy", "%v: %s", fset.Position(n.Pos()), what)
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	assert.Len(t, found, 2, "internal/core/algorithm has what is looked for")
}

func TestCopiesOfArithmeticAreFound(t *testing.T) {
	for source, want := range map[string]bool{
		"scale * msec / limit":                true,
		"period / time.Duration(r.Limit)":     true,
		"(ns + limit - 1) / max(limit, 1)":    true,
		"bits.Div64(hi, lo, uint64(scaleMs))": true,
		"bits.Div64(hi, lo, 1e9)":             false,
		"limit / 2":                           false,
		"arith.FloorDiv(now, scale)":          false,
	} {
		e, err := parser.ParseExpr(source)
		require.NoError(t, err)
		found := false
		ast.Inspect(e, func(n ast.Node) bool {
			found = found || n != nil && tellTale(n) != ""
			return true
		})
		assert.Equal(t, want, found, source)
	}
}
