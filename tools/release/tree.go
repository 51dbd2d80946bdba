package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A Tree is a copy of the repository's files: the checkout itself, or a copy of it.
type Tree struct {
	Dir     string
	Modules []*Module // each after those that it requires
}

// A Module is one module of a workspace.
type Module struct {
	Path      string
	Dir       string // below the tree's, with slashes; "." for the root module
	Workspace string // that uses it
	Requires  []string
	Published bool // not marked "// not published" in its go.mod
}

// workspaces are the directories of the go.work files. Contrib has one of its own, so that the
// frameworks and their dependencies select no versions for the other modules.
var workspaces = []string{".", adapters}

const adapters = "adapters"

// Open reads the modules of the workspaces in dir.
func Open(dir string) (*Tree, error) {
	t := &Tree{Dir: dir}
	waiting := map[string]*Module{}
	for _, workspace := range workspaces {
		if err := t.use(waiting, workspace); err != nil {
			return nil, err
		}
	}
	for _, m := range waiting {
		m.Requires = slices.DeleteFunc(m.Requires, func(path string) bool { return waiting[path] == nil })
	}
	return t, t.sort(waiting)
}

// use adds the modules of a workspace.
func (t *Tree) use(modules map[string]*Module, workspace string) error {
	data, err := os.ReadFile(filepath.Join(t.Dir, workspace, "go.work"))
	if err != nil {
		return err
	}
	work, err := modfile.ParseWork(path.Join(workspace, "go.work"), data, nil)
	if err != nil {
		return err
	}
	for _, use := range work.Use {
		m, err := t.module(path.Join(workspace, filepath.ToSlash(use.Path)))
		if err != nil {
			return err
		}
		m.Workspace = workspace
		modules[m.Path] = m
	}
	return nil
}

func (t *Tree) module(dir string) (*Module, error) {
	file, err := t.modFile(dir)
	if err != nil {
		return nil, err
	}
	m := &Module{Path: file.Module.Mod.Path, Dir: dir, Published: true}
	for _, comment := range file.Module.Syntax.Suffix {
		m.Published = m.Published && comment.Token != "// not published"
	}
	for _, r := range file.Require {
		m.Requires = append(m.Requires, r.Mod.Path)
	}
	return m, nil
}

// sort appends the modules that wait to t.Modules, those that others require first.
func (t *Tree) sort(waiting map[string]*Module) error {
	for len(waiting) > 0 {
		ready := slices.DeleteFunc(slices.Sorted(maps.Keys(waiting)), func(path string) bool {
			return slices.ContainsFunc(waiting[path].Requires, func(r string) bool {
				return waiting[r] != nil
			})
		})
		if len(ready) == 0 {
			return fmt.Errorf("modules require each other: %v", slices.Sorted(maps.Keys(waiting)))
		}
		for _, path := range ready {
			t.Modules = append(t.Modules, waiting[path])
			delete(waiting, path)
		}
	}
	return nil
}

// Published returns the modules that have releases.
func (t *Tree) Published() []*Module {
	return slices.DeleteFunc(slices.Clone(t.Modules), func(m *Module) bool { return !m.Published })
}

// Copy copies the files that git tracks or would track to dst.
func (t *Tree) Copy(dst string) (*Tree, error) {
	files, err := t.files()
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		if err := copyFile(filepath.Join(t.Dir, name), filepath.Join(dst, name)); err != nil {
			return nil, err
		}
	}
	if _, err := command(dst, nil, "git", "init", "-q"); err != nil { // for files
		return nil, err
	}
	return Open(dst)
}

// inCopy calls do with a copy of t, and with the directory that it is in, which is removed then.
func (t *Tree) inCopy(do func(dir string, copied *Tree) error) (err error) {
	dir, err := os.MkdirTemp("", "weir-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	copied, err := t.Copy(filepath.Join(dir, "weir"))
	if err != nil {
		return err
	}
	return do(dir, copied)
}

// files lists the files that git tracks or would track and that exist.
func (t *Tree) files() ([]string, error) {
	out, err := command(t.Dir, nil, "git", "ls-files", "-z", "--cached", "--others",
		"--exclude-standard")
	if err != nil {
		return nil, err
	}
	names := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	return slices.DeleteFunc(names, func(name string) bool {
		info, err := os.Lstat(filepath.Join(t.Dir, name))
		return err != nil || !info.Mode().IsRegular()
	}), nil
}

func (t *Tree) modFile(dir string) (*modfile.File, error) {
	name := filepath.Join(t.Dir, dir, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, data, nil)
}

func (t *Tree) writeModFile(dir string, file *modfile.File) error {
	data, err := file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.Dir, dir, "go.mod"), data, 0o644)
}

// replace has m find the project's modules that it requires in the tree.
func (t *Tree) replace(m *Module) error {
	file, err := t.modFile(m.Dir)
	if err != nil {
		return err
	}
	required := t.requiredBy(m)
	for _, other := range t.Modules {
		if !required[other.Path] {
			continue
		}
		at, err := filepath.Abs(filepath.Join(t.Dir, other.Dir))
		if err != nil {
			return err
		}
		if err := file.AddReplace(other.Path, "", at, ""); err != nil {
			return err
		}
	}
	return t.writeModFile(m.Dir, file)
}

// lastRelease returns the newest tag of the root module, or "".
func (t *Tree) lastRelease() (string, error) {
	tags, err := t.git("tag", "--list", "v*", "--sort", "-version:refname")
	last, _, _ := strings.Cut(tags, "\n")
	return last, err
}

// moduleOf returns the directory of the module that a file belongs to.
func (t *Tree) moduleOf(name string) string {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		for _, m := range t.Modules {
			if m.Dir == dir {
				return dir
			}
		}
	}
	return "."
}

// version returns the version that the modules require of each other.
func (t *Tree) version() (string, error) {
	for _, m := range t.Published() {
		file, err := t.modFile(m.Dir)
		if err != nil {
			return "", err
		}
		for _, r := range file.Require {
			if slices.Contains(m.Requires, r.Mod.Path) {
				return r.Mod.Version, nil
			}
		}
	}
	return "", errors.New("no module requires another")
}

// readSums returns the lines of m's go.sum: those of other projects' modules, and of this
// project's.
func (t *Tree) readSums(m *Module) (others, own []string, err error) {
	data, err := os.ReadFile(filepath.Join(t.Dir, m.Dir, "go.sum"))
	if err != nil && !os.IsNotExist(err) {
		return nil, nil, err
	}
	for line := range strings.Lines(string(data)) {
		path, _, _ := strings.Cut(line, " ")
		if slices.ContainsFunc(t.Modules, func(m *Module) bool { return m.Path == path }) {
			own = append(own, strings.TrimSpace(line))
		} else {
			others = append(others, strings.TrimSpace(line))
		}
	}
	return others, own, nil
}

func (t *Tree) writeSums(m *Module, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	slices.SortStableFunc(lines, func(a, b string) int { // by path, as the go command does
		a, _, _ = strings.Cut(a, " ")
		b, _, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	name := filepath.Join(t.Dir, m.Dir, "go.sum")
	return os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// requiredBy returns the paths of the project's modules that m requires, directly or not.
func (t *Tree) requiredBy(m *Module) map[string]bool {
	all := map[string]bool{}
	for _, path := range m.Requires {
		all[path] = true
		i := slices.IndexFunc(t.Modules, func(m *Module) bool { return m.Path == path })
		maps.Copy(all, t.requiredBy(t.Modules[i]))
	}
	return all
}

func (t *Tree) git(args ...string) (string, error) {
	out, err := command(t.Dir, nil, "git", args...)
	return strings.TrimSpace(string(out)), err
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode()&fs.ModePerm)
}

// command runs a program in dir, with env added to the environment, and returns what it prints.
func command(dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, &stderr)
	}
	return out, nil
}
