// Package routes matches requests to patterns of http.ServeMux, for every reading of their paths.
package routes

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/doors/urlpath"
)

// Route is a part of the traffic.
type Route struct {
	Pattern string // of http.ServeMux
	Cost    uint64 // 0: 1
	Limited bool   // it has limits of its own
}

// Keys says which parts of a Target are in the keys of clients.
type Keys struct{ Path, Pattern bool }

// Table matches requests to Routes with an http.ServeMux that serves no request. A request matches
// the route of every reading of its path, since any of them may be the upstream's.
type Table struct {
	exact, folded *http.ServeMux    // folded has the patterns in small letters; nil: no routes
	given         map[string]string // the patterns as given, by those in a mux
	routes        map[string]Route  // by the pattern as given
	costs         bool              // a route has one
	keys          Keys

	slashes int // the most that a pattern has
	literal int // the length of the longest segment of a pattern, decoded
}

// New returns the Table of all. It fails if http.ServeMux refuses a pattern.
func New(all []Route, keys Keys) (*Table, error) {
	rs := &Table{given: make(map[string]string), routes: make(map[string]Route), keys: keys}
	if len(all) == 0 {
		return rs, nil
	}
	rs.exact, rs.folded = http.NewServeMux(), http.NewServeMux()
	capitals := false
	for _, route := range all {
		if err := rs.twice(route.Pattern); err != nil {
			return nil, err
		}
		for _, fold := range []bool{false, true} {
			mux := rs.exact
			if fold {
				mux = rs.folded
			}
			pattern, err := plainPattern(route.Pattern, fold)
			if err == nil {
				err = Attempt(func() { mux.Handle(pattern, http.NotFoundHandler()) })
			}
			if err != nil {
				return nil, fmt.Errorf("route %q: %s", route.Pattern, refused(err))
			}
			capitals = capitals || fold && rs.given[pattern] == ""
			rs.given[pattern] = route.Pattern
			rs.measure(pattern)
		}
		rs.routes[route.Pattern] = route
		rs.costs = rs.costs || route.Cost > 0
	}
	if !capitals {
		rs.exact = rs.folded
	}
	return rs, nil
}

// twice returns an error if a route has the pattern already, in whatever letter case.
func (rs *Table) twice(pattern string) error {
	folded, err := plainPattern(pattern, true)
	if err != nil {
		return nil //nolint:nilerr // New reports it
	}
	switch before, given := rs.given[folded]; {
	case !given:
		return nil
	case before == pattern:
		return fmt.Errorf("route %q is given twice: leave one out, or give one route with all limits",
			pattern)
	default:
		return fmt.Errorf("route %q is the same as %q: leave one out, or give one route with all limits",
			pattern, before)
	}
}

// refused returns the text of an error of http.ServeMux without the lines of code, and with a
// remedy in place of paths as examples.
func refused(err error) string {
	text, _, _ := strings.Cut(registered.ReplaceAllString(err.Error(), ""), "\n")
	if conflict, ok := strings.CutSuffix(text, ":"); ok {
		return conflict + "; leave one out, or make it more specific"
	}
	return text
}

var registered = regexp.MustCompile(` \(registered at [^)]*\)`)

// elsewhere is the pattern of requests without a route.
const elsewhere = "(no route)"

// Target is what one reading of a request counts as.
type Target struct {
	Pattern string // as given, or elsewhere; empty if there are no routes
	Path    string // the name of the path among counts
}

// Targets is what a request counts as. Targets that count alike are one.
type Targets struct {
	List []Target // the first one is of a reading that leaves the path as it is
	Cost uint64   // the highest of the routes'; 0: 1
	one  [1]Target
}

// MaxTargets bounds the targets of a request whose key has its path or pattern.
const MaxTargets = 8

// ReadsPaths reports whether the targets of a request depend on its path.
func (rs *Table) ReadsPaths() bool { return rs.folded != nil || rs.keys.Path }

// Read sets t to the targets of r, whose escaped path this is. It fails if the path cannot be read,
// or if there are too many targets.
func (rs *Table) Read(t *Targets, r *http.Request, path string) error {
	t.List, t.Cost = t.one[:0], 0
	if !rs.ReadsPaths() {
		t.List = append(t.List, Target{})
		return nil
	}
	var buf [4]urlpath.Reading
	all, err := urlpath.Readings(buf[:0], path)
	if err != nil {
		return err
	}
	if rs.folded == nil {
		for _, reading := range all {
			rs.add(t, Target{"", reading.Key})
		}
	} else {
		rs.match(r, all, func(pattern, key string) {
			t.Cost = max(t.Cost, rs.routes[pattern].Cost)
			rs.add(t, Target{pattern, key})
		})
	}
	if (rs.keys.Path || rs.keys.Pattern) && len(t.List) > MaxTargets {
		return urlpath.ErrReadings
	}
	return nil
}

// HaveCosts reports whether a route has a cost.
func (rs *Table) HaveCosts() bool { return rs.costs }

// Owner returns the route whose limits apply to requests of a pattern: itself, or "" for the
// general ones.
func (rs *Table) Owner(pattern string) string {
	if rs.routes[pattern].Limited {
		return pattern
	}
	return ""
}

// add adds a target unless t has one that counts alike.
func (rs *Table) add(t *Targets, one Target) {
	if !rs.keys.Path {
		one.Path = ""
	}
	alike := func(other Target) bool {
		return one.Path == other.Path && rs.Owner(one.Pattern) == rs.Owner(other.Pattern) &&
			(one.Pattern == other.Pattern || !rs.keys.Pattern)
	}
	if !slices.ContainsFunc(t.List, alike) {
		t.List = append(t.List, one)
	}
}

// match calls found with the pattern, as given, and the key of each reading of the path of r, in
// each spelling that differs in letter case and final slashes only.
func (rs *Table) match(r *http.Request, all []urlpath.Reading, found func(pattern, key string)) {
	plain := &http.Request{Method: strings.ToUpper(r.Method), Host: PlainHost(r.Host),
		URL: new(url.URL)}
	type spelling struct {
		folded    bool
		path, key string
	}
	var buf [4]spelling
	seen := buf[:0]
	find := func(s spelling) {
		if !rs.keys.Path {
			s.key = ""
		}
		if slices.Contains(seen, s) {
			return
		}
		seen = append(seen, s)
		mux, pattern := rs.exact, elsewhere
		if s.folded {
			mux = rs.folded
		}
		SetPath(plain.URL, opaqueSegments(s.path))
		if _, matched := mux.Handler(plain); matched != "" {
			pattern = rs.given[matched]
		}
		found(pattern, s.key)
	}
	for _, reading := range all {
		trimmed := urlpath.TrimSlashes(reading.Path)
		for _, path := range []string{reading.Path, trimmed} {
			short := rs.shorten(path)
			find(spelling{rs.exact == rs.folded, short, reading.Key})
			find(spelling{true, urlpath.Lower(short), reading.Key})
			if path == trimmed {
				break
			}
		}
	}
}

// measure notes the size of a pattern, without a method.
func (rs *Table) measure(pattern string) {
	_, path, _ := strings.Cut(pattern, "/")
	rs.slashes = max(rs.slashes, 1+strings.Count(path, "/"))
	for segment := range strings.SplitSeq(path, "/") {
		rs.literal = max(rs.literal, len(segment))
	}
}

// shorten returns a path that the same patterns match, whatever its letter case, and that is not
// much longer than they are: with at most one segment more than each of them, and a text that only
// wildcards match in place of longer segments.
func (rs *Table) shorten(path string) string {
	most := 9 * rs.literal // letters of three bytes, each escaped, may have a lower case of one
	var b []byte
	from := 0 // of the part that b lacks
	for i, n := 0, 0; i < len(path); n++ {
		if n > rs.slashes {
			path = path[:i]
			break
		}
		end := len(path)
		if slash := strings.IndexByte(path[i+1:], '/'); slash >= 0 {
			end = i + 1 + slash
		}
		if end-i-1 > most {
			b = append(b, path[from:i+1]...)
			for range rs.literal + 1 {
				b = append(b, 'x')
			}
			from = end
		}
		i = end
	}
	if b == nil {
		return path
	}
	return string(append(b, path[from:]...))
}

// opaqueSegments replaces the segments of a path that http.ServeMux would remove by ones that match
// wildcards only.
func opaqueSegments(path string) string {
	if !strings.Contains(path, "//") && !strings.Contains(path, "/.") {
		return path
	}
	segments := strings.Split(path, "/")
	for i, s := range segments[1 : len(segments)-1] {
		if s == "" {
			segments[i+1] = "%00"
		}
	}
	for i, s := range segments {
		if s == "." || s == ".." {
			segments[i] = strings.ReplaceAll(s, ".", "%2E")
		}
	}
	return strings.Join(segments, "/")
}

// SetPath sets the path of u to an escaped one.
func SetPath(u *url.URL, escaped string) {
	u.RawPath = escaped
	var err error
	u.Path, err = url.PathUnescape(escaped)
	if err != nil {
		u.Path = escaped // it has no valid escapes, such as *
	}
}

// Matcher returns a function that reports whether one of the patterns matches a request, as that of
// a Route would.
func Matcher(patterns []string) (func(*http.Request) bool, error) {
	var all []Route
	for _, pattern := range patterns {
		all = append(all, Route{Pattern: pattern})
	}
	table, err := New(all, Keys{Pattern: true})
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) bool {
		var t Targets
		path, err := urlpath.Of(r.URL)
		if err == nil {
			err = table.Read(&t, r, path)
		}
		return err != nil || slices.ContainsFunc(t.List, func(t Target) bool {
			return t.Pattern != elsewhere
		})
	}, nil
}

// PlainHost returns the host in lower case, without a port and a final dot.
func PlainHost(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimRight(strings.Trim(host, "[]"), "."))
}

// plainPattern returns a pattern of http.ServeMux as the readings of paths are written, in small
// letters if fold is set. Wildcards are unchanged. It fails if the pattern has no path, and leaves
// other mistakes to http.ServeMux.
func plainPattern(pattern string, fold bool) (string, error) {
	method, rest, ok := strings.Cut(pattern, " ")
	if !ok {
		method, rest = "", pattern
	}
	host, p, ok := strings.Cut(strings.TrimLeft(rest, " \t"), "/")
	if !ok || strings.ContainsAny(host, " \t") {
		return "", errors.New("want a path that begins with a slash, perhaps after a method and a " +
			"host, such as POST example.com/login")
	}
	segments := strings.Split(p, "/")
	for i, s := range segments {
		if !strings.Contains(s, "{") { // or http.ServeMux reports the error
			segments[i] = plainSegment(s, fold)
		}
	}
	plain := PlainHost(host) + "/" + strings.Join(segments, "/")
	if method != "" {
		plain = strings.ToUpper(method) + " " + plain
	}
	return plain, nil
}

// plainSegment returns a segment of a pattern as a reading has it, without parameters.
func plainSegment(s string, fold bool) string {
	if decoded, err := url.PathUnescape(s); err == nil { // or http.ServeMux takes s literally
		s = decoded
	}
	s, _, _ = strings.Cut(s, ";")
	if fold {
		return urlpath.Lower(url.PathEscape(s))
	}
	return url.PathEscape(s)
}

// Attempt calls f and returns its panic as an error: f panics on mistakes in its arguments, which
// are the user's here.
func Attempt(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	f()
	return nil
}
