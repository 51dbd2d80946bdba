package rules

import (
	"errors"
	"io/fs"
	"slices"

	"go.yaml.in/yaml/v4"
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

// builder makes a Set from files.
type builder struct {
	problems
	loader *Loader
	set    *Set
}

func (b *builder) file(f File) {
	d := decoder{file: f.Name, envoy: b.loader.Envoy, steps: maxSteps(len(f.Data))}
	if b.loader.Algorithm != InFlight {
		d.usual = b.loader.Algorithm
	}
	b.documents(&d, f.Data)
	if d.steps < 0 {
		d.list = nil // the rest was not read
		d.errorf(position{f.Name, 1, 1},
			"error loading config file: aliases make it more than %d nodes long", maxSteps(len(f.Data)))
	}
	b.list = append(b.list, d.list...)
}

func (b *builder) documents(d *decoder, data []byte) {
	docs := d.documents(data)
	some := slices.ContainsFunc(docs, func(n yaml.Node) bool { return !isNull(root(&n)) })
	read := 0
	for i := range docs {
		n := root(&docs[i])
		if some && isNull(n) { // such as after a final ---
			continue
		}
		read++
		b.document(d, n, read)
	}
	if len(docs) == 0 && len(d.list) == 0 {
		d.errorf(position{d.file, 1, 1}, "config file cannot have empty domain")
	}
}

// root returns the top node of a document.
func root(doc *yaml.Node) *yaml.Node {
	if doc.Kind == yaml.DocumentNode && len(doc.Content) > 0 {
		return deref(doc.Content[0])
	}
	return doc
}

// document reads the n-th document of a file. A document with rate_limits and without descriptors
// adds to its domain, whatever their order.
func (b *builder) document(d *decoder, n *yaml.Node, number int) {
	doc, ok := d.document(n)
	if !ok {
		return
	}
	requestsOnly := doc.limits != nil && len(doc.descriptors) == 0
	if d.envoy {
		d.portable(&doc, number, requestsOnly)
	}
	to := b.set.domains[doc.name]
	switch {
	case to == nil:
		to = &domain{name: doc.name, at: doc.at, requestsOnly: requestsOnly}
		b.set.domains[doc.name] = to
		b.set.order = append(b.set.order, to)
	case doc.name == "": // reported
	case requestsOnly:
	case to.requestsOnly:
		to.at, to.requestsOnly = doc.at, false
	case !b.loader.MergeDomains:
		d.errorf(doc.at, "duplicate domain '%s' in config file; the first is in %s, line %d",
			doc.name, to.at.file, to.at.line)
		// Read it to report its mistakes, but not duplicates of the first one's descriptors.
		to = &domain{name: doc.name}
	}
	to.emptied = to.emptied || doc.emptied
	if doc.limits != nil {
		if to.limits != nil {
			d.errorf(doc.limits.at, "domain '%s' has rate_limits already, in %s, line %d", doc.name,
				to.limits.at.file, to.limits.at.line)
		}
		to.limits = doc.limits
	}
	if len(doc.descriptors) > 0 {
		defer func(usual Algorithm) { d.usual = usual }(d.usual)
		d.usual = doc.algorithm
		d.descriptors(&to.root, doc.descriptors, nil, doc.name, 1)
	}
}

// portable warns of documents that Envoy's service would not read as weir does. Envoy's service
// ignores a later document with only rate_limits, which is harmless.
func (d *decoder) portable(doc *document, number int, requestsOnly bool) {
	switch {
	case number > 1 && !requestsOnly:
		d.warnf(doc.top, "not portable: Envoy's service reads only the first document of a file")
	case number == 1 && doc.limits != nil:
		d.warnf(doc.limits.at,
			"not portable: Envoy's service refuses rate_limits in the first document of a file")
	}
}

// finish completes the rules and makes the checks that need all of them.
func (b *builder) finish() {
	methods := make(map[Method]int)
	for _, d := range b.set.order {
		from := len(b.set.rules)
		for n := range d.root.all() {
			r := n.rule
			if r == nil {
				continue
			}
			r.Domain, r.Path, r.shared = d.name, FormatEntries(n.path()), n.patterns()
			b.set.rules = append(b.set.rules, r)
			m := Method{r.Limit.Algorithm, r.Limit.Burst, r.Limit.Calendar}
			i, ok := methods[m]
			if !ok {
				i = len(b.set.methods)
				methods[m] = i
				b.set.methods = append(b.set.methods, m)
			}
			r.method = i
		}
		b.check(d, b.set.rules[from:])
	}
	b.silent()
}

// patterns returns, for each level down to n, the pattern whose values share a counter, or "". It
// returns nil if no level shares one.
func (n *node) patterns() []string {
	var patterns []string
	shared := false
	for ; n != nil; n = n.parent {
		p := ""
		if n.share {
			p, shared = n.value, true
		}
		patterns = append(patterns, p)
	}
	if !shared {
		return nil
	}
	slices.Reverse(patterns)
	return patterns
}
