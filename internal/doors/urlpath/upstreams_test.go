package urlpath_test

import (
	"net/url"
	"path"
	"regexp"
	"strings"
)

// upstream is a fake server of the table in docs/SECURITY.md, written without the package's own
// steps.
type upstream struct {
	name string

	// read returns what the server matches its routes with, from the path in the request line. It
	// reports false for paths that the server refuses.
	read func(raw string) (string, bool)

	nocase  bool // it ignores letter case and a final slash
	escaped bool // it matches escaped text
}

func unescaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if i+2 < len(s) && s[i] == '%' {
			if c, err := url.PathUnescape(s[i : i+3]); err == nil {
				b.WriteString(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

var (
	parameter    = regexp.MustCompile(`;[^/]*`)
	manySlashes  = regexp.MustCompile(`/+`)
	oneDot       = regexp.MustCompile(`/\.(/|$)`)
	twoDots      = regexp.MustCompile(`(^|/[^/]*)/\.\.(/|$)`)
	dotSegment   = regexp.MustCompile(`(?i)^(\.|%2e){1,2}$`)
	escapedAny   = regexp.MustCompile(`(?i)%[0-9a-f]{2}`)
	plainByte    = regexp.MustCompile(`^[A-Za-z0-9._~-]$`)
	escapedSlash = regexp.MustCompile(`(?i)%2f`)
	escapedBack  = regexp.MustCompile(`(?i)%5c`)
	authority    = regexp.MustCompile(`^//+[^/]*`)
)

// dotsRemoved removes dot segments one by one, the leftmost first.
func dotsRemoved(s string) string {
	for {
		before := s
		if at := oneDot.FindStringIndex(s); at != nil {
			s = s[:at[0]] + "/" + s[at[1]:]
			continue
		}
		if at := twoDots.FindStringIndex(s); at != nil {
			s = s[:at[0]] + "/" + s[at[1]:]
		}
		if s == before {
			return s
		}
	}
}

// dotsUnescaped unescapes the dots of segments that consist of one or two dots.
func dotsUnescaped(s string) string {
	segments := strings.Split(s, "/")
	for i, segment := range segments {
		if dotSegment.MatchString(segment) {
			segments[i] = unescaped(segment)
		}
	}
	return strings.Join(segments, "/")
}

// unreservedUnescaped unescapes letters, digits, and four other bytes, as Chromium does.
func unreservedUnescaped(s string) string {
	return escapedAny.ReplaceAllStringFunc(s, func(escape string) string {
		if c := unescaped(escape); plainByte.MatchString(c) {
			return c
		}
		return escape
	})
}

func merged(s string) string { return manySlashes.ReplaceAllString(s, "/") }

func reads(f func(string) string) func(string) (string, bool) {
	return func(raw string) (string, bool) { return f(raw), true }
}

// refuses returns read for paths without a match of what the server refuses.
func refuses(what *regexp.Regexp, read func(string) string) func(string) (string, bool) {
	return func(raw string) (string, bool) { return read(raw), !what.MatchString(raw) }
}

var upstreams = []upstream{
	{"nginx", refuses(regexp.MustCompile(`%00`), func(raw string) string {
		return dotsRemoved(merged(unescaped(raw)))
	}), false, false},
	{"nginx, merge_slashes off", refuses(regexp.MustCompile(`%00`), func(raw string) string {
		return dotsRemoved(unescaped(raw))
	}), false, false},
	{"Envoy", reads(func(raw string) string { return raw }), false, true},
	{"Envoy, normalize_path", reads(func(raw string) string {
		return dotsRemoved(unreservedUnescaped(raw))
	}), false, true},
	{"Envoy, normalize_path, merge_slashes", reads(func(raw string) string {
		return merged(dotsRemoved(unreservedUnescaped(raw)))
	}), false, true},
	{"Envoy, all of them, UNESCAPE_AND_FORWARD", reads(func(raw string) string {
		raw = escapedBack.ReplaceAllString(escapedSlash.ReplaceAllString(raw, "/"), "/")
		return merged(dotsRemoved(unreservedUnescaped(raw)))
	}), false, true},
	{"Node, request.url; Express", reads(func(raw string) string { return raw }), true, true},
	{"Node, new URL(request.url, base)", reads(func(raw string) string {
		return dotsRemoved(dotsUnescaped(authority.ReplaceAllString(raw, "")))
	}), false, true},
	{"Node, decodeURIComponent(request.url)", reads(unescaped), false, false},
	{"Go, URL.Path", reads(unescaped), false, false},
	{"Go, path.Clean(URL.Path)", reads(func(raw string) string {
		return path.Clean(unescaped(raw))
	}), false, false},
	{"Go, ServeMux", reads(func(raw string) string { return path.Clean(raw) }), false, true},
	{"Tomcat", refuses(regexp.MustCompile(`(?i)%2f|%5c|%00`), func(raw string) string {
		return dotsRemoved(merged(unescaped(parameter.ReplaceAllString(raw, ""))))
	}), false, false},
	{"Tomcat, encodedSolidusHandling=decode, allowBackslash", reads(func(raw string) string {
		s := unescaped(parameter.ReplaceAllString(raw, ""))
		return dotsRemoved(merged(strings.ReplaceAll(s, `\`, "/")))
	}), false, false},
	{"Spring behind nginx", reads(func(raw string) string {
		s := unescaped(parameter.ReplaceAllString(dotsRemoved(merged(unescaped(raw))), ""))
		return dotsRemoved(merged(s))
	}), false, false},
	{"PHP, Symfony", reads(unescaped), false, false},
	{"PHP, Laravel", reads(func(raw string) string {
		return "/" + strings.Trim(unescaped(raw), "/")
	}), false, false},
	{"PHP behind Apache, AllowEncodedSlashes", reads(func(raw string) string {
		return dotsRemoved(merged(unescaped(raw)))
	}), false, false},
	{"Rails", reads(func(raw string) string { return merged(raw) }), false, true},
	{"Rack, unescaped", reads(unescaped), false, false},
	{"IIS", reads(func(raw string) string {
		return dotsRemoved(merged(strings.ReplaceAll(unescaped(raw), `\`, "/")))
	}), true, false},
	{"Caddy", reads(func(raw string) string { return path.Clean(unescaped(raw)) }), true, false},
	{"lighttpd", reads(func(raw string) string {
		raw = dotsRemoved(escapedSlash.ReplaceAllString(unreservedUnescaped(raw), "/"))
		return dotsRemoved(merged(unescaped(raw)))
	}), false, false},
	{"HAProxy, normalize-uri", reads(func(raw string) string {
		return merged(dotsRemoved(merged(unreservedUnescaped(raw))))
	}), false, true},
	{"Python, WSGI behind HAProxy", reads(func(raw string) string {
		return unescaped(dotsRemoved(merged(unreservedUnescaped(raw))))
	}), false, false},
	{"a program that decodes what nginx decoded", reads(func(raw string) string {
		return unescaped(dotsRemoved(merged(unescaped(raw))))
	}), false, false},
}
