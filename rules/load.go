package rules

import (
	"context"
	"errors"
	"io/fs"
	"time"
)

// Loader reads rules files. The zero value is the default.
type Loader struct {
	// MergeDomains allows several documents for one domain. Their top lists are joined in the order
	// of the files. By default a repeated domain is a mistake.
	MergeDomains bool

	// Envoy adds warnings of rules that Envoy's own service would reject, ignore or interpret
	// differently.
	Envoy bool

	// Algorithm counts for the rules that name none, in documents that name none for theirs. InFlight
	// is none.
	Algorithm Algorithm
}

// Load reads the rules of files and directories in fsys. Without paths it reads all of fsys. It is
// [Loader.Load] of the default Loader.
func Load(fsys fs.FS, paths ...string) (*Set, error) { return (&Loader{}).Load(fsys, paths...) }

// LoadFiles is [Load] of files and directories of the operating system.
func LoadFiles(paths ...string) (*Set, error) { return (&Loader{}).LoadFiles(paths...) }

// Load reads the rules of files and directories in fsys. Without paths it reads all of fsys. In a
// directory and its subdirectories it reads the files *.yaml and *.yml, in the order of their
// names. It ignores entries whose names begin with a dot, since Kubernetes puts such entries beside
// the files of a ConfigMap. It reads every document of a file; each document belongs to one domain.
//
// It returns either a Set or an error that joins every [*Problem], as [errors.Join] does, in the
// order of files and lines. Warnings are not errors: see [Set.Warnings].
func (l *Loader) Load(fsys fs.FS, paths ...string) (*Set, error) {
	return loaded(l.Check(fsys, paths...))
}

// LoadFiles is [Loader.Load] of files and directories of the operating system.
func (l *Loader) LoadFiles(paths ...string) (*Set, error) { return l.Load(osFS{}, paths...) }

// CheckFiles is [Loader.Check] of files and directories of the operating system.
func (l *Loader) CheckFiles(paths ...string) (*Set, []*Problem) { return l.Check(osFS{}, paths...) }

// Check is like Load, but returns all problems, including warnings, in the order of files and
// lines. The Set is nil unless all of them are warnings.
func (l *Loader) Check(fsys fs.FS, paths ...string) (*Set, []*Problem) {
	return l.parse(l.read(fsys, paths))
}

// Parse is Load of files whose contents are known already, such as rules from a database.
func (l *Loader) Parse(files ...File) (*Set, error) {
	return loaded(l.parse(&source{files: files}))
}

// parse makes a Set from the files that were read.
func (l *Loader) parse(from *source) (*Set, []*Problem) {
	b := builder{loader: l, set: &Set{domains: make(map[string]*domain), version: from.version()}}
	b.list = from.list
	for _, f := range from.files {
		b.file(f)
	}
	b.finish()
	b.sort()
	if b.fatal() {
		return nil, b.list
	}
	b.set.warnings = b.list
	return b.set, b.list
}

// read reads the files of the paths, or all of fsys without any.
func (l *Loader) read(fsys fs.FS, paths []string) *source {
	s := &source{fsys: fsys, envoy: l.Envoy, seen: make(map[string]bool)}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	for _, p := range paths {
		s.path(p)
	}
	return s
}

// Watch calls onChange with the rules in files and directories, and again whenever they change,
// until ctx ends. If the rules have mistakes or cannot be read, it calls onChange with the error of
// [Loader.Load] instead, once; the caller then keeps its rules, since a later call brings correct
// ones. A typical onChange passes the Set to [Engine.Swap], unless [Set.Lost] has
// an error: no files are rules without a limit. Calls do not overlap.
//
// Watch reads the files every 200 ms, or less often if they are larger than a megabyte, with 8 KiB
// more for each. A new state counts once two successive reads find the same: so a file that is
// being written is not read half, and a change of several files is one, as long as the writer does
// not pause for longer. The names of the files do not matter: a symbolic link may be replaced, as
// Kubernetes does in a mounted ConfigMap, or a file renamed to another's name or written in place.
// Polling works on network file systems too, and keeps no file open.
func (l *Loader) Watch(ctx context.Context, paths []string, onChange func(set *Set, err error)) {
	var current, next string // versions
	for {
		from := l.read(osFS{}, paths)
		switch version := from.version(); version {
		case current:
			next = ""
		case next:
			current = version
			onChange(loaded(l.parse(from)))
		default:
			next = version
		}
		pause := time.NewTimer(from.pause())
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// loaded returns the Set, or the errors among the problems.
func loaded(set *Set, found []*Problem) (*Set, error) {
	if set != nil {
		return set, nil
	}
	var errs []error
	for _, p := range found {
		if !p.Warning {
			errs = append(errs, p)
		}
	}
	return nil, errors.Join(errs...)
}

// Watch loads the rules in files and directories, and again whenever they change, until ctx ends.
// It is [Loader.Watch] of the default Loader.
func Watch(ctx context.Context, paths []string, onChange func(set *Set, err error)) {
	(&Loader{}).Watch(ctx, paths, onChange)
}
