package rules

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules/describe"
)

// Set holds the rules of one or more domains. It is immutable and safe for concurrent use. [Load]
// makes one.
type Set struct {
	domains  map[string]*domain
	order    []*domain // in the order of loading
	warnings []*Problem
	methods  []Method // without duplicates; Rule.method is an index
	classed  bool     // a rule has a class
	rules    []*Rule  // domain by domain in file order
	version  string
}

type domain struct {
	name         string
	root         level
	at           position
	limits       *rateLimits // nil if there are none
	requestsOnly bool        // so far no document has descriptors
	emptied      bool        // a document has an empty list of descriptors
}

func (d *domain) match(entries []Entry) *Rule {
	var n *node
	l := &d.root
	for _, e := range entries {
		n, _ = l.find(e)
		if n == nil {
			return nil
		}
		l = &n.level
	}
	if n == nil {
		return nil
	}
	return n.rule
}

// requestYAML returns the YAML of the domain's rate_limits, or nil if there are none.
func (d *domain) requestYAML() *yaml.Node {
	if d.limits == nil {
		return nil
	}
	return d.limits.node
}

// Domains returns the names of the domains in the order of loading.
func (s *Set) Domains() []string {
	names := make([]string, len(s.order))
	for i, d := range s.order {
		names[i] = d.name
	}
	return names
}

// Has reports whether the set has a domain with that name.
func (s *Set) Has(domain string) bool { return s.domains[domain] != nil }

// Len returns the number of rules.
func (s *Set) Len() int { return len(s.rules) }

// Version returns a hash of the names and contents of the files that the rules were loaded from.
func (s *Set) Version() string { return s.version }

// All returns the rules, domain by domain in file order, parents before children.
func (s *Set) All() iter.Seq[*Rule] { return slices.Values(s.rules) }

// toHaveNone is the end of a message about a domain without a limit.
const toHaveNone = "to have none, write \"descriptors: []\" in that domain"

// Lost returns an error if next has no limit in a domain where s has some, as after a file was
// removed, or cut after its first line. A domain of next that means it has an empty list:
// descriptors: [].
func (s *Set) Lost(next *Set) error {
	before, after := s.Limits(), next.Limits()
	var errs []error
	for _, d := range s.order {
		now := next.domains[d.name]
		if before[d.name] > 0 && after[d.name] == 0 && (now == nil || !now.emptied) {
			errs = append(errs, fmt.Errorf("domain '%s' has no limit any more, of %d; %s",
				d.name, before[d.name], toHaveNone))
		}
	}
	return errors.Join(errs...)
}

// Limits returns the number of rules of each domain that are not unlimited.
func (s *Set) Limits() map[string]int {
	n := make(map[string]int, len(s.order))
	for _, r := range s.rules {
		if !r.Limit.Unlimited {
			n[r.Domain]++
		}
	}
	return n
}

// Warnings returns likely mistakes that do not keep the rules from being used, ordered by file and
// line.
func (s *Set) Warnings() []*Problem { return slices.Clone(s.warnings) }

// Describers returns the rate_limits of a domain, which say how to describe HTTP requests. It
// returns nil if there are none.
func (s *Set) Describers(domain string) []describe.Describer {
	if d := s.domains[domain]; d != nil && d.limits != nil {
		return d.limits.describers
	}
	return nil
}

// RequestOf converts an HTTP request to a Request with the descriptors of the domain's rate_limits.
// ip finds the client's address.
func (s *Set) RequestOf(domain string, r *http.Request, ip httplimit.IP) *Request {
	x := describe.Request{Request: r, IP: ip, Lenient: true}
	return &Request{Domain: domain, Descriptors: s.describe(domain, s.Describers(domain), &x)}
}

// ExplainRequest is like [Set.RequestOf], but also returns a line for each descriptor, and for each
// of the domain's rate_limits without one: the actions, and the descriptor or which action has no
// entry. A request whose path cannot be read gets no descriptor with it.
func (s *Set) ExplainRequest(
	domain string, r *http.Request, ip httplimit.IP,
) (req *Request, lines []string) {
	x := describe.Request{Request: r, IP: ip}
	req = &Request{Domain: domain}
	for _, by := range s.Describers(domain) {
		before := len(req.Descriptors)
		var missing string
		req.Descriptors, missing = s.describeBy(req.Descriptors, domain, &by, &x)
		for _, d := range req.Descriptors[before:] {
			lines = append(lines, by.String()+": "+FormatEntries(d.Entries))
		}
		if missing != "" {
			lines = append(lines, by.String()+": no descriptor, since the request lacks what "+missing+
				" needs")
		}
	}
	return req, lines
}

// describe returns the descriptors that the describers make of a request to a domain.
func (s *Set) describe(
	domain string, all []describe.Describer, r *describe.Request,
) (to []Descriptor) {
	for i := range all {
		to, _ = s.describeBy(to, domain, &all[i], r)
	}
	return to
}

// describeBy appends the descriptors of one describer, or returns what Describe says is missing.
func (s *Set) describeBy(
	to []Descriptor, domain string, by *describe.Describer, r *describe.Request,
) (all []Descriptor, missing string) {
	path := func(entries []Entry) string {
		if rule := s.Match(domain, entries); rule != nil {
			return rule.Path
		}
		return ""
	}
	missing = by.Describe(r, path, func(entries []Entry) {
		to = append(to, Descriptor{Entries: entries, Hits: by.Hits, HasHits: by.HasHits})
	})
	return to, missing
}

// Diff returns the changes from s to next: first changed and removed rules in the order of s, then
// added ones. It returns nil if both sets match, count and answer alike. File names, and the order
// of rules that cannot match the same request, may differ.
func (s *Set) Diff(next *Set) []Change {
	d := differ{old: s, new: next}
	for _, a := range s.order {
		d.domain = a.name
		if b := next.domains[a.name]; b != nil {
			d.level(&a.root, &b.root)
			if !reflect.DeepEqual(a.requestYAML(), b.requestYAML()) {
				d.add(nil, "rate_limits change", "HTTP requests get other descriptors")
			}
		} else {
			d.add(nil, "removed", "its requests are no longer limited")
		}
	}
	for _, b := range next.order {
		if s.domains[b.name] == nil {
			d.domain = b.name
			d.add(nil, "added", "with "+plural(b.root.rules(), "rule"))
		}
	}
	return d.changes
}

// Explain matches entries like [Set.Match] and says why each descriptor was chosen: in a line for
// each entry, up to the first without a match, and a last one with the rule that limits the
// descriptor, or why there is none.
func (s *Set) Explain(domain string, entries []Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain %s\n", domain)
	verdict := s.explain(&b, domain, entries)
	return b.String() + verdict + "\n"
}

// explain writes the lines of the entries and returns the verdict.
func (s *Set) explain(b *strings.Builder, domain string, entries []Entry) (verdict string) {
	d := s.domains[domain]
	switch {
	case d == nil:
		return fmt.Sprintf("no limit: the rules do not know domain '%s'%s", domain,
			suggest(domain, s.Domains()))
	case len(entries) == 0:
		return "no limit: the descriptor has no entries"
	}
	var n *node
	l := &d.root
	for i, e := range entries {
		fmt.Fprintf(b, "%*s%s", 2*i+2, "", FormatEntries([]Entry{e}))
		var why choice
		n, why = l.find(e)
		if n == nil {
			fmt.Fprintf(b, ": %s\n", l.absence(e))
			if i > 0 {
				return "no limit: no descriptor matches; the choices above are final, so no other branch " +
					"is tried"
			}
			return "no limit: no descriptor matches"
		}
		fmt.Fprintf(b, " -> %s (%s:%d): %s\n", FormatEntries([]Entry{n.entry()}), n.file, n.line,
			l.reason(n, why))
		l = &n.level
	}
	switch {
	case n.rule != nil:
		return n.rule.String()
	case len(n.level.nodes) > 0:
		return "no limit: " + endsAbove
	}
	return "no limit: the descriptor has no rate_limit, so it always passes"
}

// Match returns the rule that limits a descriptor, or nil if there is none. It is the rule of the
// node chosen for the last entry; a rule above or below that node does not apply, and the order of
// entries matters. Match does not allocate.
//
// Keys and values are compared separately. Envoy's own service joins them by underscores, so that
// there a rule for key a_b and value c also matches key a and value b_c.
func (s *Set) Match(domain string, entries []Entry) *Rule {
	d := s.domains[domain]
	if d == nil {
		return nil
	}
	return d.match(entries)
}

// YAML returns the rules as one file, with one document for each domain and one for its
// rate_limits, in the order of loading. Loading it gives an equal Set. Comments are lost.
func (s *Set) YAML() ([]byte, error) {
	var docs []yamlDomain
	for _, d := range s.order {
		docs = append(docs, yamlDomain{Domain: d.name, Descriptors: d.root.yaml()})
		if limits := d.requestYAML(); limits != nil {
			docs = append(docs, yamlDomain{Domain: d.name, RateLimits: limits})
		}
	}
	return yaml.Dump(docs, yaml.WithAllDocuments())
}
