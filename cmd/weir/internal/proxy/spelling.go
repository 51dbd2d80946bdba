package proxy

import (
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// This file gives a request the one spelling that routes and keys go by. Servers treat /login,
// /LOGIN, /login/, /x/../login and /login;v=1 alike, each in part at least; a limit that does not
// is evaded by the spelling.

// plainPath returns the decoded path, cleaned, in lower case, without a final slash and without
// path parameters.
func plainPath(p string) string {
	return path.Clean("/" + strings.ToLower(withoutParameters(p)))
}

// withoutParameters removes ;name=value from each segment (RFC 3986 section 3.3).
func withoutParameters(p string) string {
	if strings.IndexByte(p, ';') < 0 {
		return p
	}
	segments := strings.Split(p, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

// plainHost returns the host in lower case, without a port and a final dot.
func plainHost(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimRight(strings.Trim(host, "[]"), "."))
}

// plainRequest returns what http.ServeMux needs to know of r, in plain spelling.
func plainRequest(r *http.Request) *http.Request {
	return &http.Request{
		Method: strings.ToUpper(r.Method), Host: plainHost(r.Host), URL: &url.URL{Path: plainPath(r.URL.Path)},
	}
}

// plainPattern returns a pattern of http.ServeMux in plain spelling. The names of wildcards stay as
// they are.
func plainPattern(pattern string) string {
	method, rest, ok := strings.Cut(pattern, " ")
	if !ok {
		method, rest = "", pattern
	}
	host, p, ok := strings.Cut(strings.TrimLeft(rest, " \t"), "/")
	if !ok {
		return pattern // http.ServeMux says what is wrong with it
	}
	segments := strings.Split(p, "/")
	for i, s := range segments {
		if !strings.HasPrefix(s, "{") {
			segments[i] = strings.ToLower(s)
		}
	}
	if n := len(segments); n > 1 && segments[n-1] == "{$}" {
		segments = segments[:n-1] // with or without the slash is the same
	}
	plain := plainHost(host) + "/" + strings.Join(segments, "/")
	if method != "" {
		plain = strings.ToUpper(method) + " " + plain
	}
	return plain
}
