package main

import (
	"bytes"
	"encoding/json"
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

// A packer packs the published modules of a tree at one version into a module proxy.
type packer struct {
	*Tree
	proxy   string // a directory
	version string
	packed  map[string]sums // of the modules that are packed, by path
}

// pack sets the version that the modules require of each other, and packs the published ones at
// that version into a module proxy in the directory proxy.
func pack(t *Tree, proxy, version string) error {
	p := packer{t, proxy, version, map[string]sums{}}
	for _, m := range t.Modules {
		if err := p.require(m); err != nil {
			return err
		}
		if !m.Published {
			continue
		}
		s, err := p.packModule(m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		p.packed[m.Path] = s
	}
	return nil
}

// require has m require the version of the project's other modules.
func (p *packer) require(m *Module) error {
	file, err := p.modFile(m.Dir)
	if err != nil {
		return err
	}
	if m.Published && len(file.Replace) > 0 {
		return fmt.Errorf("%s: a published module has no replace directive: go install refuses it",
			m.Path)
	}
	for _, path := range m.Requires {
		if _, ok := p.packed[path]; m.Published && !ok {
			return fmt.Errorf("%s requires %s, which is not published", m.Path, path)
		}
		if err := file.AddRequire(path, p.version); err != nil {
			return err
		}
	}
	if err := p.writeModFile(m.Dir, file); err != nil {
		return err
	}
	others, _, err := p.readSums(m)
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(p.requiredBy(m))) {
		others = append(others, path+" "+p.version+" "+p.packed[path].zip,
			path+" "+p.version+"/go.mod "+p.packed[path].mod)
	}
	return p.writeSums(m, others)
}

// packModule writes the files of a module to the proxy, as the go command would make them from
// the repository: a nested module without a licence has the root's.
func (p *packer) packModule(m *Module) (sums, error) {
	v := module.Version{Path: m.Path, Version: p.version}
	files, err := p.moduleFiles(m.Dir)
	if err != nil {
		return sums{}, err
	}
	escaped, err := module.EscapePath(v.Path)
	if err != nil {
		return sums{}, err
	}
	base := filepath.Join(p.proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return sums{}, err
	}
	base = filepath.Join(base, v.Version)
	var archive bytes.Buffer
	if err := modzip.Create(&archive, v, files); err != nil {
		return sums{}, err
	}
	mod, err := os.ReadFile(filepath.Join(p.Dir, m.Dir, "go.mod"))
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

func (p *packer) moduleFiles(dir string) ([]modzip.File, error) {
	names, err := p.files()
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
			files = append(files, file{inside, filepath.Join(p.Dir, name)})
			licensed = licensed || inside == "LICENSE"
		}
	}
	if !licensed {
		files = append(files, file{"LICENSE", filepath.Join(p.Dir, "LICENSE")})
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
