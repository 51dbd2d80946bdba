package describe

import (
	"context"
	"net/netip"
	"slices"
)

// Action makes one entry of a descriptor from an HTTP request. The functions of this package that
// return one say which action of Envoy's rate_limits it is, if Envoy has it.
type Action struct {
	name     string // in a rules file
	entry    Entry  // with the value "" if the request has it
	optional bool
	path     bool // the value is the path, which Describer.Describe sets
	value    func(r *Request) (string, bool)
}

// String returns the name of the action in a rules file, such as "remote_address".
func (a Action) String() string { return a.name }

// Entry returns the entry that a makes, with the value "" if it is one of the request.
func (a Action) Entry() Entry { return a.entry }

// Optional reports whether a request without a value has a descriptor that lacks only this entry.
func (a Action) Optional() bool { return a.optional }

// constant returns an action with a constant entry for requests for which holds returns true. Other
// requests get no descriptor.
func constant(name, key, value string, holds func(r *Request) bool) Action {
	return Action{name: name, entry: Entry{Key: key, Value: value},
		value: func(r *Request) (string, bool) { return value, holds(r) }}
}

// GenericKey returns an action with a constant entry: Envoy's generic_key.
func GenericKey(key, value string) Action {
	return constant("generic_key", key, value, func(*Request) bool { return true })
}

// RemoteAddress returns an action with the key remote_address and the client's address without its
// port: Envoy's remote_address. If the address is unknown, the request gets no descriptor.
func RemoteAddress() Action {
	a := MaskedRemoteAddress("remote_address", 32, 128)
	a.name = "remote_address"
	return a
}

// MaskedRemoteAddress returns an action with the client's address as a prefix of v4Bits or v6Bits
// bits, such as 10.1.2.0/24: Envoy's masked_remote_address. With the key remote_address, a whole
// address is written without a length.
func MaskedRemoteAddress(key string, v4Bits, v6Bits int) Action {
	value := func(r *Request) (string, bool) {
		addr, err := r.address()
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
	}
	return Action{name: "masked_remote_address", entry: Entry{Key: key}, value: value}
}

// RemoteAddressMatch returns an action with a constant entry for requests whose client's address is
// in one of the ranges, or in none of them if invert is set: Envoy's remote_address_match.
func RemoteAddressMatch(key, value string, ranges []netip.Prefix, invert bool) Action {
	return constant("remote_address_match", key, value, func(r *Request) bool {
		addr, err := r.address()
		within := func(p netip.Prefix) bool { return p.Contains(addr) }
		return err == nil && slices.ContainsFunc(ranges, within) != invert
	})
}

// Header returns an action with the first value of a header: Envoy's request_headers. The names
// :path (including the query), :method, :authority and :scheme mean those parts of the request. If
// the header is missing, the request gets no descriptor; if optional is set, only the entry is
// dropped.
func Header(name, key string, optional bool) Action {
	return Action{name: "request_headers", entry: Entry{Key: key}, optional: optional,
		value: func(r *Request) (string, bool) { return r.header(name) }}
}

// Query returns an action with the first value of a query parameter: Envoy's query_parameters. If
// it is missing, the request gets no descriptor; if optional is set, only the entry is dropped.
func Query(name, key string, optional bool) Action {
	return Action{name: "query_parameters", entry: Entry{Key: key}, optional: optional,
		value: func(r *Request) (string, bool) { return r.parameter(name) }}
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

// HeaderMatch returns an action with a constant entry for requests whose headers pass all tests or,
// if expect is false, for requests whose headers do not: Envoy's header_value_match.
func HeaderMatch(key, value string, expect bool, tests ...Matcher) Action {
	return matching("header_value_match", (*Request).header, key, value, expect, tests)
}

// QueryMatch is like [HeaderMatch] for query parameters: Envoy's query_parameter_value_match.
func QueryMatch(key, value string, expect bool, tests ...Matcher) Action {
	return matching("query_parameter_value_match", (*Request).parameter, key, value, expect, tests)
}

func matching(
	name string, of func(r *Request, name string) (string, bool), key, value string, expect bool,
	tests []Matcher,
) Action {
	return constant(name, key, value, func(r *Request) bool {
		for i := range tests {
			if v, ok := of(r, tests[i].Name); !tests[i].match(v, ok) {
				return !expect
			}
		}
		return expect
	})
}

// Path returns an action with the path without the query, in its canonical spelling: /login for
// /%6Cogin, /LOGIN/ and /x/../login;a=b. With [Header] of :path, which includes the query and is as
// the client wrote it, a client could get a new counter for each query and spelling.
//
// Servers read some paths differently: /x/..;/login is /login for Tomcat and is not for Express. If
// another reading of a path, such as one with capital letters, has another rule, the request gets a
// descriptor for it too, so that it is held to the limits of both.
func Path(key string) Action {
	return Action{name: "path", entry: Entry{Key: key}, path: true,
		value: func(*Request) (string, bool) { return "", true }}
}

// PathTemplate returns an action with the pattern that the request matched in an [http.ServeMux],
// such as "GET /users/{id}". It has a value only for middleware inside the mux; without one only
// the entry is dropped.
func PathTemplate(key string) Action {
	return Action{name: "path_template", entry: Entry{Key: key}, optional: true,
		value: func(r *Request) (string, bool) { return r.Pattern, r.Pattern != "" }}
}

// contextKey is the context key of a value that the application set by WithValue.
type contextKey string

// WithValue returns a context with a value for [ContextValue], such as a user or a plan that the
// application determined before the middleware runs.
func WithValue(ctx context.Context, name, value string) context.Context {
	return context.WithValue(ctx, contextKey(name), value)
}

// ContextValue returns an action with the value that [WithValue] stored in the request's context
// under name. An empty value counts as missing: the request gets no descriptor or, if optional is
// set, only the entry is dropped.
func ContextValue(name, key string, optional bool) Action {
	return Action{name: "context_value", entry: Entry{Key: key}, optional: optional,
		value: func(r *Request) (string, bool) {
			v, _ := r.Context().Value(contextKey(name)).(string)
			return v, v != ""
		}}
}
