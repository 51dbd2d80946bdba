package proxy

import (
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// This file normalizes the path and host of a request for routes and keys. Many servers treat some
// of /login, /LOGIN, /login/, /x/../login and /login;v=1 alike; a limit that distinguishes them can
// be evaded.

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

// plainRequest returns a request with the fields of r that http.ServeMux uses, in plain spelling.
func plainRequest(r *http.Request) *http.Request {
	return &http.Request{
		Method: strings.ToUpper(r.Method), Host: plainHost(r.Host),
		URL: &url.URL{Path: plainPath(r.URL.Path)},
	}
}

// plainPattern returns a pattern of http.ServeMux in plain spelling. Wildcards are unchanged.
func plainPattern(pattern string) string {
	method, rest, ok := strings.Cut(pattern, " ")
	if !ok {
		method, rest = "", pattern
	}
	host, p, ok := strings.Cut(strings.TrimLeft(rest, " \t"), "/")
	if !ok {
		return pattern // http.ServeMux reports the error
	}
	segments := strings.Split(p, "/")
	for i, s := range segments {
		if !strings.Contains(s, "{") { // or http.ServeMux reports the error
			segments[i] = plainSegment(s)
		}
	}
	if n := len(segments); n > 1 && segments[n-1] == "{$}" {
		segments = segments[:n-1] // plain paths have no final slash
	}
	plain := plainHost(host) + "/" + strings.Join(segments, "/")
	if method != "" {
		plain = strings.ToUpper(method) + " " + plain
	}
	return plain
}

// plainSegment returns a segment of a pattern as plainPath has it, encoded.
func plainSegment(s string) string {
	if decoded, err := url.PathUnescape(s); err == nil { // or http.ServeMux takes s literally
		s = decoded
	}
	s, _, _ = strings.Cut(s, ";")
	return url.PathEscape(strings.ToLower(s))
}
