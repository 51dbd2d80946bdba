package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/cmd/weir/internal/serve/routes"
	"github.com/weirgo/weir/httplimit"
)

// By selects the key of a client: parts joined by plus signs. Make one with ParseBy.
type By struct {
	text  string
	parts []string
	keys  routes.Keys // path and pattern, if they are among the parts

	headers []string // the names of the parts header:NAME, canonical
}

// byParts lists the parts in error messages.
const byParts = "ip, header:NAME, host, user, path or pattern, joined by plus signs"

// ParseBy parses values such as ip, path and header:Authorization+pattern.
func ParseBy(text string) (By, error) {
	b := By{text: text, parts: strings.Split(text, "+")}
	for i, part := range b.parts {
		b.parts[i] = strings.TrimSpace(part)
		if _, err := extractor(b.parts[i], httplimit.IP{}, 0); err != nil {
			return b, fmt.Errorf("by %q: %w", text, err)
		}
		if name, ok := strings.CutPrefix(b.parts[i], "header:"); ok {
			b.headers = append(b.headers, http.CanonicalHeaderKey(name))
		}
		b.keys.Path = b.keys.Path || b.parts[i] == "path"
		b.keys.Pattern = b.keys.Pattern || b.parts[i] == "pattern"
	}
	return b, nil
}

// String returns b as it was given.
func (b By) String() string { return b.text }

// split returns the parts of a key, or nil if it is none of b.
func (b By) split(key string) (parts []string) {
	for range b.parts {
		length, rest, _ := strings.Cut(key, ":")
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 || n > len(rest) {
			return nil
		}
		parts, key = append(parts, rest[:n]), rest[n:]
	}
	if key != "" {
		return nil
	}
	return parts
}

// key returns the key that text is, or whose parts its words are.
func (b By) key(text string) (string, error) {
	if len(b.parts) < 2 || b.split(text) != nil {
		return text, nil
	}
	if words := strings.Fields(text); len(words) == len(b.parts) {
		return weir.JoinKey(words...), nil
	}
	return "", fmt.Errorf("%q names no caller: here a key has %d parts, those of --by %s, with "+
		"spaces between them", text, len(b.parts), b)
}

// shown returns a key as text for people: of several parts these, with spaces between them.
func (b By) shown(key string) string {
	if len(b.parts) > 1 {
		parts := b.split(key)
		for i, part := range parts {
			if part == "" || strings.Contains(part, " ") {
				parts[i] = strconv.Quote(part)
			}
		}
		if parts != nil {
			key = strings.Join(parts, " ")
		}
	}
	return screen.Printable(key)
}

// describe returns an entry of the deny list as text for logs and the page.
func (b By) describe(e httplimit.DenyEntry) string {
	if e.Key != "" {
		return b.shown(e.Key)
	}
	return e.Prefix.String()
}

// shadows reports whether a field, whose plainName is plain, is another spelling of one that b
// reads, so that the upstream may read a key that was not counted.
func (b By) shadows(name, plain string) bool {
	return !slices.Contains(b.headers, name) &&
		slices.ContainsFunc(b.headers, func(read string) bool { return plainName(read) == plain })
}

// extractor returns the Extractor of the keys for target i of requests.
func (b By) extractor(ip httplimit.IP, i int) httplimit.Extractor {
	all := make([]httplimit.Extractor, len(b.parts))
	for n, part := range b.parts {
		var err error
		all[n], err = extractor(part, ip, i)
		if err != nil {
			panic(err) // cannot happen: ParseBy checked it
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return httplimit.Join(all...)
}

// early returns the Extractor of the keys before a path is read: those of callers, or if these have
// the path or its pattern, the client's address, or the peer's if the forwarding fields are
// invalid.
func (b By) early(ip httplimit.IP) httplimit.Extractor {
	if !b.keys.Path && !b.keys.Pattern {
		return b.extractor(ip, 0)
	}
	return httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
		if key, err := ip.Extract(r); err == nil {
			return key, nil
		}
		return r.RemoteAddr, nil
	})
}

func extractor(part string, ip httplimit.IP, i int) (e httplimit.Extractor, err error) {
	switch name, isHeader := strings.CutPrefix(part, "header:"); {
	case isHeader:
		err = routes.Attempt(func() { e = httplimit.Headers(name) })
		return e, err
	case part == "ip":
		return ip, nil
	case part == "host":
		return httplimit.Headers("Host"), nil
	case part == "user":
		return httplimit.ExtractorFunc(user), nil
	case part == "path":
		return targetExtractor(i, func(t routes.Target) string { return bounded(t.Path) }), nil
	case part == "pattern":
		return targetExtractor(i, func(t routes.Target) string { return t.Pattern }), nil
	}
	return nil, fmt.Errorf("%q is none of %s", part, byParts)
}

// user returns the user name in Basic authorization. The password is not checked.
func user(r *http.Request) (string, error) {
	name, _, ok := r.BasicAuth()
	if !ok || name == "" {
		return "", fmt.Errorf("%w: no user", httplimit.ErrKey)
	}
	return bounded(name), nil
}

// targetExtractor keys by a part of target i of a request.
func targetExtractor(i int, part func(routes.Target) string) httplimit.Extractor {
	return httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
		return part(recordOf(r.Context()).targets.List[i]), nil
	})
}

const longest = 256

// bounded shortens a part to the length of a key; long parts stay distinct by their digest.
func bounded(s string) string {
	if len(s) <= longest {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return s[:longest-2*len(sum)] + hex.EncodeToString(sum[:])
}
