package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"
)

// sums are the lines of go.sum of one module.
type sums struct{ zip, mod string }

// Pack sets the version that the modules require of each other, and packs the published ones at
// that version into a module proxy in the directory proxy.
func (t *Tree) Pack(proxy, version string) error {
	packed := map[string]sums{}
	for _, m := range t.Modules {
		if err := t.require(m, version, packed); err != nil {
			return err
		}
		if !m.Published {
			continue
		}
		s, err := t.packModule(proxy, module.Version{Path: m.Path, Version: version}, m.Dir)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		packed[m.Path] = s
	}
	return nil
}

// require has m require version of the project's other modules, whose sums are given.
func (t *Tree) require(m *Module, version string, packed map[string]sums) error {
	file, err := t.modFile(m.Dir)
	if err != nil {
		return err
	}
	if m.Published && len(file.Replace) > 0 {
		return fmt.Errorf("%s: a published module has no replace directive: go install refuses it",
			m.Path)
	}
	for _, path := range m.Requires {
		if _, ok := packed[path]; m.Published && !ok {
			return fmt.Errorf("%s requires %s, which is not published", m.Path, path)
		}
		if err := file.AddRequire(path, version); err != nil {
			return err
		}
	}
	if err := t.writeModFile(m.Dir, file); err != nil {
		return err
	}
	others, _, err := t.readSums(m)
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(t.requiredBy(m))) {
		others = append(others, path+" "+version+" "+packed[path].zip,
			path+" "+version+"/go.mod "+packed[path].mod)
	}
	return t.writeSums(m, others)
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

// packModule writes the files of one version to the proxy, as the go command would make them from
// the repository: a nested module without a licence has the root's.
func (t *Tree) packModule(proxy string, v module.Version, dir string) (sums, error) {
	files, err := t.moduleFiles(dir)
	if err != nil {
		return sums{}, err
	}
	escaped, err := module.EscapePath(v.Path)
	if err != nil {
		return sums{}, err
	}
	base := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return sums{}, err
	}
	base = filepath.Join(base, v.Version)
	var archive bytes.Buffer
	if err := modzip.Create(&archive, v, files); err != nil {
		return sums{}, err
	}
	mod, err := os.ReadFile(filepath.Join(t.Dir, dir, "go.mod"))
	if err != nil {
		return sums{}, err
	}
	info, err := json.Marshal(map[string]any{"Version": v.Version,
		"Time": time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return sums{}, err
	}
	for suffix, data := range map[string][]byte{".zip": archive.Bytes(), ".mod": mod, ".info": info} {
		if err := os.WriteFile(base+suffix, data, 0o644); err != nil {
			return sums{}, err
		}
	}
	list := filepath.Join(filepath.Dir(base), "list")
	if err := os.WriteFile(list, []byte(v.Version+"\n"), 0o644); err != nil {
		return sums{}, err
	}
	return sumsOf(base+".zip", mod)
}

func (t *Tree) moduleFiles(dir string) ([]modzip.File, error) {
	names, err := t.files()
	if err != nil {
		return nil, err
	}
	var files []modzip.File
	licensed := false
	for _, name := range names {
		inside, ok := strings.CutPrefix(name, dir+"/")
		if dir == "." {
			inside, ok = name, true
		}
		if ok {
			files = append(files, file{inside, filepath.Join(t.Dir, name)})
			licensed = licensed || inside == "LICENSE"
		}
	}
	if !licensed {
		files = append(files, file{"LICENSE", filepath.Join(t.Dir, "LICENSE")})
	}
	return files, nil
}

// file is a file of a module, by its name in the module and on disk.
type file struct{ name, onDisk string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(f.onDisk) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.onDisk) }

func sumsOf(archive string, mod []byte) (s sums, err error) {
	s.zip, err = dirhash.HashZip(archive, dirhash.Hash1)
	if err != nil {
		return sums{}, err
	}
	s.mod, err = dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(mod)), nil
	})
	return s, err
}
