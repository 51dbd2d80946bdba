package rules

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/overload"
)

// builder makes a Set from files.
type builder struct {
	problems
	loader *Loader
	set    *Set
}

// check reports rules that Envoy's service accepts but that are almost certainly mistakes.
func (b *builder) check(d *domain, rules []*Rule) {
	b.unreachable(&d.root)
	for n := range d.root.all() {
		b.unreachable(&n.level)
	}
	b.unknownReplaces(d.name, rules)
	if d.limits != nil && !b.fatal() {
		b.unreached(d)
	}
	if b.loader.Envoy {
		b.unportable(d)
	}
}

// silent warns of domains without a rate_limit if nothing else was reported that may be why.
func (b *builder) silent() {
	if len(b.list) > 0 {
		return
	}
	ruled := make(map[string]bool)
	for _, r := range b.set.rules {
		ruled[r.Domain] = true
	}
	for _, d := range b.set.order {
		if !ruled[d.name] && !d.emptied {
			b.warnf(d.at, "domain '%s' has no rate_limit, and limits nothing; %s", d.name, toHaveNone)
			b.limitsNothing()
		}
	}
}

// unreachable warns of nodes of a level that no request reaches because an earlier wildcard matches
// all their values. A request whose value is the text of the pattern itself still reaches the
// pattern, but patterns are not meant for that.
func (b *builder) unreachable(l *level) {
	for _, n := range l.nodes {
		n.hiddenBy = l.keys[n.key].hides(n)
		switch by := n.hiddenBy; {
		case by == nil:
		case n.value == "":
			b.warnf(n.position, "unreachable: %s=%s at line %d matches every value of %s", n.key, by.value,
				by.line, n.key)
		default:
			b.warnf(n.position,
				"unreachable: %s=%s at line %d comes first and matches everything that %s=%s matches",
				n.key, by.value, by.line, n.key, n.value)
		}
	}
}

// unknownReplaces warns of names in replaces that none of the domain's rules has.
func (b *builder) unknownReplaces(domain string, rules []*Rule) {
	names := make(map[string]bool)
	for _, r := range rules {
		names[r.Limit.Name] = true
	}
	delete(names, "")
	known := slices.Sorted(maps.Keys(names))
	for _, r := range rules {
		for i, name := range r.Replaces {
			if !names[name] {
				b.warnf(r.replacesAt[i], "replaces '%s', but no rule of domain '%s' has this name%s",
					name, domain, suggest(name, known))
			}
		}
	}
}

// unportable warns of rules that Envoy's service interprets differently because it joins keys and
// values by underscores.
func (b *builder) unportable(d *domain) {
	b.collisions(&d.root, d.name)
	for n := range d.root.all() {
		if strings.Contains(n.key, "*") {
			b.warnf(n.position,
				"not portable: Envoy's service treats the asterisk in key '%s' as a wildcard", n.key)
		}
		b.collisions(&n.level, d.name+"."+FormatEntries(n.path()))
	}
}

func (b *builder) collisions(l *level, path string) {
	joined := make(map[string]*node, len(l.nodes))
	for _, n := range l.nodes {
		text := compositeKey(n.key, n.value)
		if first := joined[text]; first != nil {
			b.warnf(n.position,
				"not portable: Envoy's service confuses '%s' below %s with the descriptor at line %d",
				text, path, first.line)
			continue
		}
		joined[text] = n
	}
}

func (b *builder) file(f File) {
	d := decoder{reader: &reader{
		file: f.Name, envoy: b.loader.Envoy, steps: maxSteps(len(f.Data)),
	}}
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
			b.set.classed = b.set.classed || r.Class != overload.Normal
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

// unreached warns of rules that no request reaches, since no descriptor of the domain's rate_limits
// matches them, and of rate_limits whose descriptors no rule matches.
func (b *builder) unreached(d *domain) {
	if len(d.root.nodes) == 0 {
		b.warnf(d.limits.at, "the rate_limits limit nothing: domain '%s' has no descriptors", d.name)
		b.limitsNothing()
		return
	}
	r := reach{steps: maxReach, asked: make(map[*level]map[Entry]bool), seen: make(map[*node]bool),
		ends: make(map[*node]bool)}
	var found problems
	for i, by := range d.limits.describers {
		r.depth = 0
		if !r.walk(&d.root, nil, nil, by.Actions) {
			found.warnf(d.limits.items[i], "no rule matches what these actions describe: %s", r.why)
		}
	}
	r.check(&found, &d.root)
	if r.steps < 0 {
		return
	}
	if !r.reached() {
		for _, p := range found.list {
			p.LimitsNothing = true
		}
	}
	b.list = append(b.list, found.list...)
}

// root returns the top node of a document.
func root(doc *yaml.Node) *yaml.Node {
	if doc.Kind == yaml.DocumentNode && len(doc.Content) > 0 {
		return deref(doc.Content[0])
	}
	return doc
}
