package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/doors/structuredfield"
)

// maxKeyLen is the longest key that a Strategy accepts. Longer keys are refused here, as bad
// requests. A Strategy would fail with them, and a long header would pass a middleware that fails
// open.
const maxKeyLen = bounds.MaxKey

// ErrKey is wrapped by every error of this package's extractors: the request has no key, or one
// that is invalid or cannot be trusted.
var ErrKey = errors.New("httplimit: no key")

// Extractor returns the key of the client that sent a request. Requests with the same key share a
// budget.
//
// Extract returns an error if the request has no key; the middleware then answers 400. An empty key
// is an error, too: with a default key for all clients that have none, one of them could starve the
// others.
//
// An Extractor is safe for concurrent use and does not change the request. It decides whether a
// limit can be evaded: a client that can choose its key has any number of budgets, or spends
// another client's. Each extractor of this package documents which data it trusts.
type Extractor interface {
	Extract(r *http.Request) (string, error)
}

// ExtractorFunc makes a function an [Extractor].
type ExtractorFunc func(r *http.Request) (string, error)

// Extract calls f.
func (f ExtractorFunc) Extract(r *http.Request) (string, error) { return f(r) }

// appender is implemented by this package's extractors; it avoids a string for the key. With an
// error it returns dst unchanged.
type appender interface {
	appendKey(dst []byte, r *http.Request) ([]byte, error)
}

// appenderOf returns e, or an appender of its keys.
func appenderOf(e Extractor) appender {
	if a, ok := e.(appender); ok {
		return a
	}
	return foreign{e}
}

// foreign is an Extractor of another package.
type foreign struct{ Extractor }

func (f foreign) appendKey(dst []byte, r *http.Request) ([]byte, error) {
	key, err := f.Extract(r)
	switch {
	case err != nil:
		return dst, err
	case key == "":
		return dst, fmt.Errorf("%w: the extractor returned an empty key", ErrKey)
	case len(key) > maxKeyLen:
		return dst, tooLong("the extractor's key", len(key))
	}
	return append(dst, key...), nil
}

// extract implements Extract with appendKey.
func extract(a appender, r *http.Request) (string, error) {
	var buf [64]byte
	key, err := a.appendKey(buf[:0], r)
	if err != nil {
		return "", err
	}
	return string(key), nil
}

func tooLong(what string, n int) error {
	return fmt.Errorf("%w: %s is %d bytes long, over %d", ErrKey, what, n, maxKeyLen)
}

type headers []string // canonical names

// Headers returns the extractor that keys by the values of these request headers. Each must be
// present exactly once and not be blank. "Host" is the requested host in lower case, without a port
// and a final dot, since a client must not get a budget for each spelling.
//
// The extractor trusts whoever writes the headers, which may be the client. Use it for values that
// are authenticated before the middleware runs, or that a proxy in front overwrites on every
// request: with an unchecked API key header each made-up value has a fresh budget. For addresses
// use [ClientIP], never Headers("X-Forwarded-For").
//
// The key of one header is its value without surrounding blanks; the key of several is their
// [weir.JoinKey]. Headers panics without a name, or with one that is no header name.
func Headers(names ...string) Extractor {
	if len(names) == 0 {
		panic("httplimit: Headers without a name")
	}
	h := make(headers, len(names))
	for i, name := range names {
		if !structuredfield.IsToken(name) {
			panic(fmt.Sprintf("httplimit: Headers: %q is no header name", name))
		}
		h[i] = textproto.CanonicalMIMEHeaderKey(name)
	}
	return h
}

func (h headers) Extract(r *http.Request) (string, error) { return extract(h, r) }

func (h headers) appendKey(dst []byte, r *http.Request) ([]byte, error) {
	start := len(dst)
	for _, name := range h {
		value, err := headerValue(r, name)
		if err != nil {
			return dst[:start], err
		}
		if len(h) == 1 {
			return append(dst, value...), nil
		}
		dst = appendPart(dst, value)
	}
	return dst, nil
}

func headerValue(r *http.Request, name string) (string, error) {
	if name == "Host" {
		host := normalizeHost(r.Host)
		if host == "" {
			return "", fmt.Errorf("%w: no host", ErrKey)
		}
		return checkLen(name, host)
	}
	values := r.Header[name]
	if len(values) != 1 {
		// With two lines, this package and the handler might each use a different one.
		return "", fmt.Errorf("%w: %d %s headers, not one", ErrKey, len(values), name)
	}
	value := strings.Trim(values[0], structuredfield.Blanks)
	if value == "" {
		return "", fmt.Errorf("%w: blank %s header", ErrKey, name)
	}
	return checkLen(name, value)
}

// normalizeHost returns the host of host or host:port in lower case and without final dots. The
// result may be empty.
func normalizeHost(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimRight(host, "."))
}

func checkLen(name, value string) (string, error) {
	if len(value) > maxKeyLen {
		return "", tooLong("the "+name+" header", len(value))
	}
	return value, nil
}

type pattern struct{}

// Pattern returns the extractor that keys by the route that matched: r.Pattern, as in "GET
// /users/{id}". The key does not distinguish clients: alone it limits a route for all of them
// together, and [Join] makes that a limit per client and route.
//
// The extractor trusts no client: the pattern is the server's. The mux sets it, so the middleware
// must wrap the handlers that the mux calls; around the mux itself the pattern is empty, which is
// an error.
func Pattern() Extractor { return pattern{} }

func (pattern) Extract(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", fmt.Errorf("%w: no route has matched yet; the middleware belongs inside the mux",
			ErrKey)
	}
	if len(r.Pattern) > maxKeyLen {
		return "", tooLong("the matched pattern", len(r.Pattern))
	}
	return r.Pattern, nil
}

type join []Extractor

// Join returns the extractor that keys by all of these together; it fails with the first one's
// error. It trusts all that they trust: a client that can choose one of the keys can choose the
// joined key.
//
// The key is their [weir.JoinKey], so that different lists of keys never collide, whatever their
// bytes. Join panics without an extractor or with a nil one.
func Join(extractors ...Extractor) Extractor {
	if len(extractors) == 0 {
		panic("httplimit: Join of nothing")
	}
	for i, e := range extractors {
		if e == nil {
			panic(fmt.Sprintf("httplimit: Join: extractor %d is nil", i))
		}
	}
	return join(append([]Extractor(nil), extractors...))
}

func (j join) Extract(r *http.Request) (string, error) { return extract(j, r) }

func (j join) appendKey(dst []byte, r *http.Request) ([]byte, error) {
	start := len(dst)
	var buf [64]byte
	for _, e := range j {
		part, err := appenderOf(e).appendKey(buf[:0], r)
		if err != nil {
			return dst[:start], err
		}
		dst = appendPart(dst, part)
	}
	return dst, nil
}

// appendPart appends one part of a joined key: appending all parts gives their [weir.JoinKey],
// without its intermediate strings. TestAppendPartIsJoinKey compares the two.
func appendPart[T string | []byte](dst []byte, part T) []byte {
	dst = strconv.AppendInt(dst, int64(len(part)), 10)
	dst = append(dst, ':')
	return append(dst, part...)
}
