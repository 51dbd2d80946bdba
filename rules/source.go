package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// File is a file of rules.
type File struct {
	Name string // for messages
	Data []byte // the YAML
}

// source holds the files of rules as they were read, and problems of reading them.
type source struct {
	problems
	files []File
	fsys  fs.FS
	envoy bool            // warn of files that Envoy's service would read
	seen  map[string]bool // names of files
	// of reading them, in bytes: a file and an entry of a directory count as many
	work int
}

// The work of opening a file, and of passing an entry of a directory, in bytes that take as long to
// read.
const (
	fileWork  = 8 << 10
	entryWork = 512
)

// version returns a hash of the names and contents of the files, and of the problems.
func (s *source) version() string {
	h := sha256.New()
	for _, f := range s.files {
		fmt.Fprintf(h, "%d:%s%d:", len(f.Name), f.Name, len(f.Data))
		h.Write(f.Data)
	}
	for _, p := range s.list {
		text := p.Error()
		fmt.Fprintf(h, "!%d:%s", len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// path reads a file, or a directory and its subdirectories.
func (s *source) path(name string) {
	info, err := fs.Stat(s.fsys, name)
	if err != nil {
		s.errorf(position{file: name}, "%s", cause(err))
		return
	}
	if !info.IsDir() {
		s.file(name)
		return
	}
	found := false
	err = fs.WalkDir(s.fsys, name, func(p string, d fs.DirEntry, err error) error {
		s.work += entryWork
		switch {
		case err != nil:
			s.errorf(position{file: p}, "%s", cause(err))
		case p != name && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
		case !d.IsDir():
			found = s.entry(p, d) || found
		}
		return nil
	})
	if err != nil {
		s.errorf(position{file: name}, "%s", cause(err))
	}
	if !found {
		s.warnf(position{file: name}, "no *.yaml or *.yml file in this directory")
	}
}

// entry reads a directory entry if it is a rules file, and reports whether it is one.
func (s *source) entry(name string, d fs.DirEntry) bool {
	if ext := path.Ext(name); ext != ".yaml" && ext != ".yml" {
		if s.envoy {
			s.warnf(position{file: name},
				"not portable: Envoy's service reads every file, whatever its name")
		}
		return false
	}
	if d.Type()&fs.ModeSymlink != 0 {
		if info, err := fs.Stat(s.fsys, name); err == nil && info.IsDir() {
			s.errorf(position{file: name}, "is a symbolic link to a directory, which is not followed")
			return true
		}
	}
	s.file(name)
	return true
}

func (s *source) file(name string) {
	if s.seen[name] {
		return
	}
	s.seen[name] = true
	data, err := fs.ReadFile(s.fsys, name)
	s.work += fileWork + len(data)
	if err != nil {
		s.errorf(position{file: name}, "%s", cause(err))
		return
	}
	s.files = append(s.files, File{name, data})
}

// pause returns the time until Watch reads the files again. It follows from their size, not from
// how long reading them took: on a busy machine that is mostly the time of other programs, and
// changes would wait.
func (s *source) pause() time.Duration {
	return max(lookEvery, time.Duration(s.work)*(lookEvery/lookWork))
}

// cause returns err without the operation and the path of a PathError.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// osFS is the file system of the operating system. Unlike os.DirFS it accepts names such as
// "../rules".
type osFS struct{}

func (osFS) Open(name string) (fs.File, error)          { return os.Open(name) }
func (osFS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (osFS) ReadFile(name string) ([]byte, error)       { return os.ReadFile(name) }

// lookEvery is how often Watch reads the files. A change is in force after at most two looks.
const lookEvery = 200 * time.Millisecond

// lookWork is how much Watch reads in lookEvery, a few milliseconds of work. It reads more less
// often.
const lookWork = 1_000_000
