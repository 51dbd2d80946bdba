package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
)

// project is the path of the root module; the paths of all others of the project begin with it.
const project = "github.com/weirgo/weir"

// stdlib is the name by which scanners for vulnerabilities know Go's standard library.
const stdlib = "stdlib"

// module is a module that a program links, the program's own included.
type module struct {
	path, version string // the version may be unknown: ""
	sum           string // of go.sum; "" for the project's modules and the standard library
	dir           string // set by located
}

func (m module) own() bool { return m.path == project || strings.HasPrefix(m.path, project+"/") }

func (m module) compare(o module) int {
	return strings.Compare(m.path+"@"+m.version, o.path+"@"+o.version)
}

// program is what a program says of itself.
type program struct {
	sha256   []byte
	path     string // of its main package
	main     module
	modules  []module // the others, sorted
	settings map[string]string
}

// read reads a program of any platform.
func read(file string) (*program, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := buildinfo.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, io.NewSectionReader(f, 0, 1<<62)); err != nil {
		return nil, err
	}
	p := &program{sha256: hash.Sum(nil), path: info.Path, main: moduleOf(&info.Main, ""),
		settings: map[string]string{}}
	for _, d := range info.Deps {
		p.modules = append(p.modules, moduleOf(d, p.main.version))
	}
	p.modules = append(p.modules,
		module{path: stdlib, version: strings.TrimPrefix(info.GoVersion, "go")})
	slices.SortFunc(p.modules, module.compare)
	for _, s := range info.Settings {
		p.settings[s.Key] = s.Value
	}
	return p, nil
}

// moduleOf returns a module of a program. Modules of the workspace have the version given: they are
// of the same commit.
func moduleOf(m *debug.Module, workspace string) module {
	if m.Replace != nil && m.Replace.Sum != "" { // else it is a directory of the workspace
		m = m.Replace
	}
	version := m.Version
	if version == "(devel)" || m.Replace != nil {
		version = workspace
	}
	return module{path: m.Path, version: version, sum: m.Sum}
}

// located returns all modules of programs, each once, with their directories.
func located(programs []*program) (modules []module, err error) {
	for _, p := range programs {
		modules = append(append(modules, p.main), p.modules...)
	}
	slices.SortFunc(modules, module.compare)
	modules = slices.Compact(modules)
	root, err := goCommand("env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var others []string
	for i, m := range modules {
		switch {
		case m.own():
			modules[i].dir = "." // one licence for all
		case m.path == stdlib:
			modules[i].dir = strings.TrimSpace(string(root))
		default:
			others = append(others, m.path+"@"+m.version)
		}
	}
	if len(others) == 0 {
		return modules, nil
	}
	out, err := goCommand(append([]string{"mod", "download", "-json"}, others...)...)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var got struct{ Path, Version, Dir, Sum string }
		switch err := d.Decode(&got); {
		case errors.Is(err, io.EOF):
			return modules, nil
		case err != nil:
			return nil, err
		}
		i := slices.IndexFunc(modules, func(m module) bool {
			return m.path == got.Path && m.version == got.Version
		})
		if i < 0 || modules[i].sum != got.Sum {
			return nil, fmt.Errorf("%s@%s has the sum %s, which is not that of the program",
				got.Path, got.Version, got.Sum)
		}
		modules[i].dir = got.Dir
	}
}

func goCommand(args ...string) ([]byte, error) {
	cmd := exec.CommandContext(context.Background(), "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out, nil
}
