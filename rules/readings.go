package rules

import (
	"slices"

	"github.com/weirgo/weir/internal/doors/urlpath"
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
	x.path = "/" // until the path is read
	d, ok := s.of(x)
	if !ok {
		return dst
	}
	if len(x.paths) == 0 {
		return append(dst, d)
	}
	spellings := x.readPath()
	if len(spellings) == 0 {
		return dst
	}
	for _, i := range x.paths {
		d.Entries[i].Value = spellings[0].path
	}
	if len(spellings) == 1 {
		return append(dst, d)
	}
	type count struct {
		rule *Rule
		key  string
	}
	var counts []count
	entries := slices.Clone(d.Entries)
	for _, one := range spellings {
		for _, i := range x.paths {
			entries[i].Value = one.path
		}
		c := count{set.Match(domain, entries), one.key}
		if c.rule != nil && !slices.Contains(counts, c) {
			other := d
			other.Entries = slices.Clone(entries)
			counts, dst = append(counts, c), append(dst, other)
		}
	}
	if len(counts) == 0 {
		return append(dst, d)
	}
	return dst
}

// spelling is a spelling of a reading of a path, by which rules are looked up, and the Key of the
// reading.
type spelling struct{ path, key string }

// readPath returns the spellings of the readings of the path, the canonical one first. It reads the
// path once for all descriptors. If the path cannot be read, it sets x.refused, and returns only
// the canonical spelling, or none unless x is lenient.
func (x *exchange) readPath() []spelling {
	if x.spellings != nil || x.refused != nil {
		return x.spellings
	}
	path, err := urlpath.Of(x.URL)
	var buf [4]urlpath.Reading
	var all []urlpath.Reading
	if err == nil {
		all, err = urlpath.Readings(buf[:0], path)
	}
	if x.refused = err; err != nil && x.lenient {
		x.spellings = []spelling{{path: urlpath.Canonical(x.URL.EscapedPath())}}
	}
	for _, r := range all {
		for _, path := range []string{r.Key, r.Path, urlpath.Lower(r.Path), urlpath.TrimSlashes(r.Path)} {
			if one := (spelling{path, r.Key}); !slices.Contains(x.spellings, one) {
				x.spellings = append(x.spellings, one)
			}
		}
	}
	return x.spellings
}
