package rules

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/weirgo/weir/httplimit"
)

// Action makes an entry of a descriptor from an HTTP request, as those of Envoy's rate_limits do.
// The functions below return the actions of Envoy's that have their names, and a few of weir's own.
type Action struct {
	// entry returns the entry, or whether its lack drops the descriptor or only the entry.
	entry func(x *exchange) (Entry, presence)
}

// presence is whether an action has an entry.
type presence uint8

const (
	present presence = iota
	skipped          // the descriptor does without it
	absent           // there is no descriptor
)

// exchange is a request, and what several actions read of it.
type exchange struct {
	*http.Request
	ip    httplimit.IP
	query url.Values // parsed on first use
}

func (x *exchange) parsedQuery() url.Values {
	if x.query == nil {
		x.query = x.URL.Query()
	}
	return x.query
}

// Descriptors says how an HTTP request becomes one descriptor: an item of Envoy's rate_limits.
type Descriptors struct {
	Actions []Action

	// Hits is the cost of the descriptor if HasHits is set. 0 is a peek.
	Hits    uint64
	HasHits bool
}

// Describe returns the descriptor that actions make, in order. If one has no entry there is no
// descriptor.
func Describe(actions ...Action) Descriptors { return Descriptors{Actions: actions} }

// describe appends the descriptors that the specs make of a request.
func describe(dst []Descriptor, specs []Descriptors, r *http.Request, ip httplimit.IP) []Descriptor {
	x := exchange{Request: r, ip: ip}
	for i := range specs {
		if d, ok := specs[i].of(&x); ok {
			dst = append(dst, d)
		}
	}
	return dst
}

func (s *Descriptors) of(x *exchange) (Descriptor, bool) {
	d := Descriptor{Hits: s.Hits, HasHits: s.HasHits, Entries: make([]Entry, 0, len(s.Actions))}
	for i := range s.Actions {
		e, has := s.Actions[i].entry(x)
		switch has {
		case present:
			d.Entries = append(d.Entries, e)
		case absent:
			return d, false
		}
	}
	return d, len(d.Entries) > 0
}

// RequestOf returns the Request that set describes an HTTP request by: the descriptors of the
// domain's rate_limits. Ip finds the client's address.
func (s *Set) RequestOf(domain string, r *http.Request, ip httplimit.IP) *Request {
	return &Request{Domain: domain, Descriptors: describe(nil, s.Descriptors(domain), r, ip)}
}

// Descriptors returns how the rules describe HTTP requests in a domain: its rate_limits.
func (s *Set) Descriptors(domain string) []Descriptors {
	if d := s.domains[domain]; d != nil {
		return d.specs
	}
	return nil
}

func always(e Entry) Action {
	return Action{func(*exchange) (Entry, presence) { return e, present }}
}

// value makes an action of a value that may be missing.
func value(key string, skip bool, of func(x *exchange) (string, bool)) Action {
	without := absent
	if skip {
		without = skipped
	}
	return Action{func(x *exchange) (Entry, presence) {
		v, ok := of(x)
		if !ok {
			return Entry{}, without
		}
		return Entry{key, v}, present
	}}
}

// condition makes an action of a constant entry that a request has or has not.
func condition(e Entry, holds func(x *exchange) bool) Action {
	return value(e.Key, false, func(x *exchange) (string, bool) { return e.Value, holds(x) })
}

// GenericKey is a constant entry.
func GenericKey(key, value string) Action { return always(Entry{key, value}) }

// RemoteAddress is (remote_address, the client's address without its port).
func RemoteAddress() Action { return MaskedRemoteAddress("remote_address", 32, 128) }

// MaskedRemoteAddress is the client's address as a prefix of so many bits: 10.1.2.0/24. A whole
// address has no length.
func MaskedRemoteAddress(key string, v4Bits, v6Bits int) Action {
	return value(key, false, func(x *exchange) (string, bool) {
		addr, err := x.ip.Addr(x.Request)
		if err != nil {
			return "", false
		}
		bits := v6Bits
		if addr.Is4() {
			bits = v4Bits
		}
		prefix, err := addr.Prefix(bits)
		if err != nil {
			return "", false
		}
		if prefix.IsSingleIP() && key == "remote_address" {
			return addr.String(), true
		}
		return prefix.String(), true
	})
}

// RemoteAddressMatch is a constant entry for requests whose client's address is in one of the
// ranges, or with invert in none of them.
func RemoteAddressMatch(key, value string, ranges []netip.Prefix, invert bool) Action {
	return condition(Entry{key, value}, func(x *exchange) bool {
		addr, err := x.ip.Addr(x.Request)
		if err != nil {
			return false
		}
		for _, p := range ranges {
			if p.Contains(addr) {
				return !invert
			}
		}
		return invert
	})
}

// RequestHeader is the first value of a header. The names :path (with the query), :method,
// :authority and :scheme stand for the parts of the request's first line. Without the header there
// is no descriptor or, with skip, no entry.
func RequestHeader(name, key string, skip bool) Action {
	return value(key, skip, func(x *exchange) (string, bool) { return header(x.Request, name) })
}

func header(r *http.Request, name string) (string, bool) {
	switch strings.ToLower(name) {
	case ":path":
		return r.URL.RequestURI(), true
	case ":method":
		return r.Method, true
	case ":authority", "host":
		return r.Host, r.Host != ""
	case ":scheme":
		if r.TLS != nil {
			return "https", true
		}
		return "http", true
	}
	values := r.Header.Values(name)
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

// Path is the path without the query, which [RequestHeader] of :path has: a client that appends one
// would else have a counter for each. No more of it is escaped than must be, so that /%6Cogin is
// /login.
func Path(key string) Action {
	return value(key, false, func(x *exchange) (string, bool) {
		plain := url.URL{Path: x.URL.Path}
		return plain.EscapedPath(), true
	})
}

// PathTemplate is the pattern that the request matched in an http.ServeMux, such as "GET
// /users/{id}". Inside the mux only there is one.
func PathTemplate(key string) Action {
	return value(key, true, func(x *exchange) (string, bool) { return x.Pattern, x.Pattern != "" })
}

// QueryParameter is the first value of a query parameter.
func QueryParameter(name, key string, skip bool) Action {
	return value(key, skip, func(x *exchange) (string, bool) {
		values := x.parsedQuery()[name]
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	})
}

// contextKey is the key of a value that the application knows.
type contextKey string

// WithValue returns a context with a value that [ContextValue] reads: a user or a plan that the
// application has found out before the middleware runs.
func WithValue(ctx context.Context, name, value string) context.Context {
	return context.WithValue(ctx, contextKey(name), value)
}

// ContextValue is the value of that name in the request's context, as [WithValue] put it there. An
// empty value counts as none.
func ContextValue(name, key string, skip bool) Action {
	return value(key, skip, func(x *exchange) (string, bool) {
		v, _ := x.Context().Value(contextKey(name)).(string)
		return v, v != ""
	})
}

// Matcher is a test of a header or a query parameter.
type Matcher struct {
	Name   string
	Test   func(value string) bool // nil: that there is one
	Invert bool
}

func (m *Matcher) match(value string, ok bool) bool {
	return (ok && (m.Test == nil || m.Test(value))) != m.Invert
}

// HeaderValueMatch is a constant entry for requests whose headers pass all tests or, without
// expect, do not.
func HeaderValueMatch(key, value string, expect bool, tests ...Matcher) Action {
	return condition(Entry{key, value}, func(x *exchange) bool {
		for i := range tests {
			if v, ok := header(x.Request, tests[i].Name); !tests[i].match(v, ok) {
				return !expect
			}
		}
		return expect
	})
}

// QueryParameterValueMatch is the same of query parameters.
func QueryParameterValueMatch(key, value string, expect bool, tests ...Matcher) Action {
	return condition(Entry{key, value}, func(x *exchange) bool {
		for i := range tests {
			values := x.parsedQuery()[tests[i].Name]
			v := ""
			if len(values) > 0 {
				v = values[0]
			}
			if !tests[i].match(v, len(values) > 0) {
				return !expect
			}
		}
		return expect
	})
}

// stringTest returns the test that a string matcher of Envoy's is.
func stringTest(kind, want string, fold bool) (func(string) bool, error) {
	if kind == "safe_regex" {
		flags := ""
		if fold {
			flags = "(?i)"
		}
		re, err := regexp.Compile(flags + "^(?:" + want + ")$")
		if err != nil {
			return nil, err
		}
		return re.MatchString, nil
	}
	compare := map[string]func(s, want string) bool{
		"exact":    func(s, want string) bool { return s == want },
		"prefix":   strings.HasPrefix,
		"suffix":   strings.HasSuffix,
		"contains": strings.Contains,
	}[kind]
	if !fold {
		return func(s string) bool { return compare(s, want) }, nil
	}
	want = strings.ToLower(want)
	return func(s string) bool { return compare(strings.ToLower(s), want) }, nil
}

// rangeTest tests for a whole number from start up to but not including end.
func rangeTest(start, end int64) func(string) bool {
	return func(s string) bool {
		n, err := strconv.ParseInt(s, 10, 64)
		return err == nil && n >= start && n < end
	}
}
