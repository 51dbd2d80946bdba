package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

// A checker type-checks packages and all that they import, from source, for any platform and any
// Go. The modules import a thousand packages: to compile these takes minutes for each platform, to
// check them seconds. It does not look into the functions of other projects;
// whatever else a compiler would reject, it finds.
type checker struct {
	own  string // a directory: functions of packages within are checked too
	fset *token.FileSet

	mu sync.Mutex
	// Guarded by mu; other projects' files, by name: most are the same on all platforms.
	files map[string]*ast.File
}

func newChecker(own string) *checker {
	return &checker{own: own + string(filepath.Separator), fset: token.NewFileSet(),
		files: map[string]*ast.File{}}
}

// check type-checks what the patterns match in dir, and the tests if tests is set. env is that of
// the go command.
func (c *checker) check(dir string, env []string, tests bool, patterns ...string) error {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles |
			packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax |
			packages.NeedTypesSizes | packages.NeedModule,
		Dir: dir, Env: append(os.Environ(), env...), Fset: c.fset, Tests: tests, ParseFile: c.parse,
	}, patterns...)
	if err != nil {
		return err
	}
	if len(loaded) == 0 {
		return fmt.Errorf("%s has no packages %v", dir, patterns)
	}
	var mistakes []error
	packages.Visit(loaded, nil, func(p *packages.Package) {
		mistakes = append(mistakes, c.mistakes(p)...)
	})
	return errors.Join(mistakes...)
}

// mistakes returns the errors of a package, but for those that come of removing bodies: imports
// that are not used.
func (c *checker) mistakes(p *packages.Package) (mistakes []error) {
	for _, err := range p.Errors {
		if err.Kind != packages.TypeError {
			mistakes = append(mistakes, err)
		}
	}
	for _, err := range p.TypeErrors {
		if !err.Soft || c.owns(c.fset.Position(err.Pos).Filename) {
			mistakes = append(mistakes, err)
		}
	}
	return mistakes
}

func (c *checker) owns(file string) bool { return strings.HasPrefix(file, c.own) }

// parse parses a file. Functions of other projects get a body that never returns, so that it needs
// no result.
func (c *checker) parse(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
	if c.owns(name) {
		return parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	}
	c.mu.Lock()
	file := c.files[name]
	c.mu.Unlock()
	if file != nil {
		return file, nil
	}
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return file, err
	}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
			f.Body = &ast.BlockStmt{List: []ast.Stmt{&ast.ForStmt{Body: &ast.BlockStmt{}}}}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files[name] = file
	return file, nil
}

// standalone type-checks every module, or those in these directories, with its tests, as if each
// stood alone: what it requires of other projects is in its own go.mod and go.sum, and of this
// project's modules it has what it requires. It continues after a failure.
func standalone(t *Tree, only ...string) error {
	return t.inCopy(func(_ string, copied *Tree) error {
		c := newChecker(copied.Dir)
		var failed []error
		for _, m := range t.Modules {
			if len(only) > 0 && !slices.Contains(only, m.Dir) {
				continue
			}
			fmt.Println("==", m.Dir)
			if err := copied.replace(m); err != nil {
				return err
			}
			env := []string{"GOWORK=off", "CGO_ENABLED=0"}
			if err := c.check(filepath.Join(copied.Dir, m.Dir), env, true, "./..."); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", m.Dir, err))
			}
		}
		return errors.Join(failed...)
	})
}

// elsewhere lists the platforms that modules do not build on, with the reason.
// docs/internals/architecture.md names them.
var elsewhere = map[string]map[string]string{
	"adapters/caddylimit": {"js/wasm": "Caddy requires bbolt and readline, which do not build there"},
	"cmd/weir":            {"js/wasm": "a tool of the command line needs signals"},
}

// platforms type-checks the published modules for each platform, such as linux/amd64. With
// WEIR_VERIFY=full it builds them, too, except the adapters, which finds what only a compiler does,
// such as a function that assembly lacks. It goes on after a mistake.
func platforms(t *Tree, names ...string) error {
	dir, err := filepath.Abs(t.Dir)
	if err != nil {
		return err
	}
	c := newChecker(dir)
	var failed []error
	for _, platform := range names {
		goos, goarch, _ := strings.Cut(platform, "/")
		env := []string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + goarch}
		fmt.Println("==", platform)
		for _, workspace := range workspaces {
			at, patterns := filepath.Join(dir, workspace), patternsOf(t, workspace, platform)
			err := c.check(at, env, false, patterns...)
			if err == nil && workspace != adapters && os.Getenv("WEIR_VERIFY") == "full" {
				_, err = command(at, env, "go", append([]string{"build"}, patterns...)...)
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", platform, err))
			}
		}
	}
	return errors.Join(failed...)
}

// patternsOf returns the patterns, in the directory of a workspace, of its modules that build on a
// platform.
func patternsOf(t *Tree, workspace, platform string) (patterns []string) {
	for _, m := range t.Published() {
		if m.Workspace != workspace {
			continue
		}
		if reason := elsewhere[m.Dir][platform]; reason != "" {
			fmt.Printf("%s: without %s: %s\n", platform, m.Dir, reason)
			continue
		}
		inside := strings.TrimPrefix(m.Dir, workspace+"/")
		patterns = append(patterns, "./"+path.Join(inside, "..."))
	}
	return patterns
}
