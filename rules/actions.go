package rules

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/urlpath"
)

// Action computes one entry of a descriptor from an HTTP request, like an action of Envoy's
// rate_limits. The functions below return Envoy's actions under Envoy's names, and a few of weir's
// own: [GenericKey], [RemoteAddress], [MaskedRemoteAddress], [RemoteAddressMatch], [RequestHeader],
// [HeaderValueMatch], [QueryParameter], [QueryParameterValueMatch], [Path], [PathTemplate] and
// [ContextValue].
type Action struct {
	// entry returns the entry, or reports that it is missing and whether that drops the descriptor
	// or only the entry.
	entry func(x *exchange) (Entry, presence)
	path  bool // the value is exchange.path

	made Entry // the entry, with the value "" if a request has it
	skip bool  // without a value only the entry is dropped
}

// presence says whether an action has an entry.
type presence uint8

const (
	present presence = iota
	skipped          // the descriptor lacks this entry
	absent           // the whole descriptor is dropped
)

// exchange is a request and the values that several actions use.
type exchange struct {
	*http.Request
	ip      httplimit.IP
	query   url.Values // parsed on first use
	unknown error      // why an action had no client's address; nil if none lacked it
	path    string     // one reading of the path; "": its canonical spelling
	paths   []int      // the indexes of the entries with the path in the last descriptor

	spellings []spelling // set by readPath
	refused   error      // why the path cannot be read; nil if it can
	lenient   bool       // a path that cannot be read counts in its canonical spelling
}

func (x *exchange) addr() (netip.Addr, error) {
	addr, err := x.ip.Addr(x.Request)
	if err != nil {
		x.unknown = err
	}
	return addr, err
}

func (x *exchange) parameter(name string) (string, bool) {
	if x.query == nil {
		x.query = x.URL.Query()
	}
	return first(x.query[name])
}

// Describer says how to turn an HTTP request into one descriptor. It is one item of Envoy's
// rate_limits.
type Describer struct {
	Actions []Action

	// Hits is the cost of the descriptor if HasHits is set. 0 is a peek.
	Hits    uint64
	HasHits bool

	names []string // of the actions in the file; nil for a Describer of a program
	at    position // in the file
}

// Describe returns a Describer with the given actions, in order. If an action has no entry for a
// request, the request gets no descriptor.
func Describe(actions ...Action) Describer { return Describer{Actions: actions} }

func (s *Describer) of(x *exchange) (Descriptor, bool) {
	d, missing := s.entries(x)
	return d, missing == len(s.Actions) && len(d.Entries) > 0
}

// entries returns the descriptor up to the first action without an entry, and the index of that
// action, which is len(s.Actions) if each has one.
func (s *Describer) entries(x *exchange) (d Descriptor, missing int) {
	d = Descriptor{Hits: s.Hits, HasHits: s.HasHits, Entries: make([]Entry, 0, len(s.Actions))}
	x.paths = x.paths[:0]
	for i := range s.Actions {
		e, has := s.Actions[i].entry(x)
		switch has {
		case present:
			if s.Actions[i].path {
				x.paths = append(x.paths, len(d.Entries))
			}
			d.Entries = append(d.Entries, e)
		case absent:
			return d, i
		}
	}
	return d, len(s.Actions)
}

// RequestOf converts an HTTP request to a Request with the descriptors of the domain's rate_limits.
// ip finds the client's address.
func (s *Set) RequestOf(domain string, r *http.Request, ip httplimit.IP) *Request {
	x := exchange{Request: r, ip: ip, lenient: true}
	return &Request{Domain: domain, Descriptors: s.describe(domain, s.Describers(domain), &x)}
}

// Describers returns the rate_limits of a domain, which say how to describe HTTP requests. It
// returns nil if there are none.
func (s *Set) Describers(domain string) []Describer {
	if d := s.domains[domain]; d != nil {
		return d.specs
	}
	return nil
}

// value returns an action whose value may be missing. If it is, skip drops only the entry and not
// the descriptor.
func value(key string, skip bool, of func(x *exchange) (string, bool)) Action {
	without := absent
	if skip {
		without = skipped
	}
	return Action{made: Entry{Key: key}, skip: skip, entry: func(x *exchange) (Entry, presence) {
		v, ok := of(x)
		if !ok {
			return Entry{}, without
		}
		return Entry{key, v}, present
	}}
}

// condition returns an action with a constant entry for requests for which holds returns true.
// Other requests get no descriptor.
func condition(e Entry, holds func(x *exchange) bool) Action {
	a := value(e.Key, false, func(x *exchange) (string, bool) { return e.Value, holds(x) })
	a.made = e
	return a
}

// GenericKey returns an action with a constant entry.
func GenericKey(key, value string) Action {
	return condition(Entry{key, value}, func(*exchange) bool { return true })
}

// RemoteAddress returns an action with the key remote_address and the client's address without its
// port. If the address is unknown, the request gets no descriptor, see [Guard.Wrap].
func RemoteAddress() Action { return MaskedRemoteAddress("remote_address", 32, 128) }

// MaskedRemoteAddress returns an action with the client's address as a prefix of v4Bits or v6Bits
// bits, such as 10.1.2.0/24. With the key remote_address, a whole address is written without a
// length.
func MaskedRemoteAddress(key string, v4Bits, v6Bits int) Action {
	return value(key, false, func(x *exchange) (string, bool) {
		addr, err := x.addr()
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

// RemoteAddressMatch returns an action with a constant entry for requests whose client's address is
// in one of the ranges, or in none of them if invert is set.
func RemoteAddressMatch(key, value string, ranges []netip.Prefix, invert bool) Action {
	return condition(Entry{key, value}, func(x *exchange) bool {
		addr, err := x.addr()
		within := func(p netip.Prefix) bool { return p.Contains(addr) }
		return err == nil && slices.ContainsFunc(ranges, within) != invert
	})
}

// RequestHeader returns an action with the first value of a header. The names :path (including the
// query), :method, :authority and :scheme mean those parts of the request. If the header is
// missing, the request gets no descriptor; if skip is set, only the entry is dropped.
func RequestHeader(name, key string, skip bool) Action {
	return value(key, skip, func(x *exchange) (string, bool) { return x.header(name) })
}

func (x *exchange) header(name string) (string, bool) {
	switch strings.ToLower(name) {
	case ":path":
		return x.URL.RequestURI(), true
	case ":method":
		return x.Method, true
	case ":authority", "host":
		return x.Host, x.Host != ""
	case ":scheme":
		if x.TLS != nil {
			return "https", true
		}
		return "http", true
	}
	return first(x.Header.Values(name))
}

func first(values []string) (string, bool) {
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

// Path returns an action with the path without the query, in its canonical spelling: /login for
// /%6Cogin, /LOGIN/ and /x/../login;a=b. With [RequestHeader] of :path, which includes the query
// and is as the client wrote it, a client could get a new counter for each query and spelling.
//
// Servers read some paths differently: /x/..;/login is /login for Tomcat and is not for Express. If
// another reading of a path, such as one with capital letters, has another rule, the request gets a
// descriptor for it too, so that it is held to the limits of both.
func Path(key string) Action {
	a := value(key, false, func(x *exchange) (string, bool) {
		return cmp.Or(x.path, urlpath.Canonical(x.URL.EscapedPath())), true
	})
	a.path = true
	return a
}

// PathTemplate returns an action with the pattern that the request matched in an http.ServeMux,
// such as "GET /users/{id}". It has a value only for middleware inside the mux.
func PathTemplate(key string) Action {
	return value(key, true, func(x *exchange) (string, bool) { return x.Pattern, x.Pattern != "" })
}

// QueryParameter returns an action with the first value of a query parameter. If it is missing, the
// request gets no descriptor; if skip is set, only the entry is dropped.
func QueryParameter(name, key string, skip bool) Action {
	return value(key, skip, func(x *exchange) (string, bool) { return x.parameter(name) })
}

// contextKey is the context key of a value that the application set by WithValue.
type contextKey string

// WithValue returns a context with a value for [ContextValue], such as a user or a plan that the
// application determined before the middleware runs.
func WithValue(ctx context.Context, name, value string) context.Context {
	return context.WithValue(ctx, contextKey(name), value)
}

// ContextValue returns an action with the value that [WithValue] stored in the request's context
// under name. An empty value counts as missing: the request gets no descriptor or, if skip is set,
// only the entry is dropped.
func ContextValue(name, key string, skip bool) Action {
	return value(key, skip, func(x *exchange) (string, bool) {
		v, _ := x.Context().Value(contextKey(name)).(string)
		return v, v != ""
	})
}

// Matcher tests a header or a query parameter.
type Matcher struct {
	Name   string
	Test   func(value string) bool // nil tests only that it is present
	Invert bool
}

func (m *Matcher) match(value string, ok bool) bool {
	return (ok && (m.Test == nil || m.Test(value))) != m.Invert
}

// HeaderValueMatch returns an action with a constant entry for requests whose headers pass all
// tests or, if expect is false, for requests whose headers do not.
func HeaderValueMatch(key, value string, expect bool, tests ...Matcher) Action {
	return matching((*exchange).header, key, value, expect, tests)
}

// QueryParameterValueMatch is like HeaderValueMatch for query parameters.
func QueryParameterValueMatch(key, value string, expect bool, tests ...Matcher) Action {
	return matching((*exchange).parameter, key, value, expect, tests)
}

func matching(
	of func(x *exchange, name string) (string, bool), key, value string, expect bool, tests []Matcher,
) Action {
	return condition(Entry{key, value}, func(x *exchange) bool {
		for i := range tests {
			if v, ok := of(x, tests[i].Name); !tests[i].match(v, ok) {
				return !expect
			}
		}
		return expect
	})
}

// stringTest returns the test for one of Envoy's string matchers. fold ignores letter case.
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

// rangeTest returns a test for whole numbers n with start <= n < end.
func rangeTest(start, end int64) func(string) bool {
	return func(s string) bool {
		n, err := strconv.ParseInt(s, 10, 64)
		return err == nil && n >= start && n < end
	}
}
