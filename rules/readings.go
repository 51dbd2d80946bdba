package rules

import (
	"slices"

	"github.com/weirgo/weir/internal/urlpath"
)

// describe returns the descriptors that specs compute from a request to a domain.
func (s *Set) describe(domain string, specs []Describer, x *exchange) (all []Descriptor) {
	for i := range specs {
		all = specs[i].describe(all, x, s, domain)
	}
	return all
}

// describe appends the descriptor of a request or, if an action has the path and servers read it
// differently, one for each reading that counts elsewhere: under another rule of the domain in set,
// or another name of the path.
func (s *Describer) describe(dst []Descriptor, x *exchange, set *Set, domain string) []Descriptor {
	x.path = ""
	d, ok := s.of(x)
	if !ok {
		return dst
	}
	if !slices.ContainsFunc(s.Actions, func(a Action) bool { return a.path }) {
		return append(dst, d)
	}
	var buf [4]urlpath.Reading
	readings, err := urlpath.Readings(buf[:0], x.URL.EscapedPath())
	if err != nil {
		x.refused = err
		return append(dst, d)
	}
	if len(readings) == 1 && readings[0].Path == readings[0].Key {
		return append(dst, d)
	}
	type count struct {
		rule *Rule
		key  string
	}
	var counts []count
	for _, r := range readings {
		for _, path := range []string{r.Key, r.Path, urlpath.Lower(r.Path), urlpath.TrimSlashes(r.Path)} {
			x.path = path
			d, _ := s.of(x)
			c := count{set.Match(domain, d.Entries), r.Key}
			if c.rule != nil && !slices.Contains(counts, c) {
				counts, dst = append(counts, c), append(dst, d)
			}
		}
	}
	x.path = ""
	if len(counts) == 0 {
		return append(dst, d)
	}
	return dst
}
