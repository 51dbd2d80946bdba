package cli

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/clientaddr"
)

// Prefix parses an address or a prefix. IPv4-mapped ones become IPv4.
func Prefix(text string) (netip.Prefix, error) {
	p, err := clientaddr.ParsePrefix(text)
	if err != nil {
		if addr, ok := spelledAddr(text); ok {
			return p, fmt.Errorf("want an address without a port or brackets, such as %s, "+
				"or a prefix, such as 10.0.0.0/8, not %q", addr, text)
		}
		return p, fmt.Errorf("%q is neither an address nor a prefix such as 10.0.0.0/8", text)
	}
	return p.Masked(), nil
}

// spelledAddr returns the address in text that has a port, brackets or an invalid prefix length as
// well: 192.0.2.1:80, [2001:db8::1]:80, [2001:db8::1] or 192.0.2.1/33.
func spelledAddr(text string) (netip.Addr, bool) {
	text, _, _ = strings.Cut(text, "/")
	if a, err := netip.ParseAddrPort(text); err == nil {
		return a.Addr(), true
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return a, err == nil
}

// Entry parses an entry of the deny list: an address, a prefix, or else a key. Text that looks like
// an address or a prefix and is none is an error, since as a key it would match no client;
// key:TEXT is the key TEXT whatever that looks like.
func Entry(text string) (httplimit.DenyEntry, error) {
	text = strings.TrimSpace(text)
	if key, ok := strings.CutPrefix(text, "key:"); ok {
		return httplimit.DenyEntry{Key: key}, nil
	}
	p, err := Prefix(text)
	if err == nil {
		return httplimit.DenyEntry{Prefix: p}, nil
	}
	if looksLikeAddr(text) {
		return httplimit.DenyEntry{}, fmt.Errorf("%w; if it is a key, write key:%s", err, text)
	}
	return httplimit.DenyEntry{Key: text}, nil
}

// looksLikeAddr reports whether text has the form of an address, a prefix, a range or a list of
// them: numbers with dots, groups with colons, or a length at the end. A path is none.
func looksLikeAddr(text string) bool {
	if _, ok := spelledAddr(text); ok {
		return true
	}
	const digits, between = "0123456789", ".*-/[], "
	only := func(s, cutset string) bool { return strings.Trim(s, cutset) == "" }
	if i := strings.LastIndexByte(text, '/'); i > 0 && text[0] != '/' && i+1 < len(text) &&
		only(text[i+1:], digits) {
		return true
	}
	text, _, _ = strings.Cut(text, "%")
	dots, colons := strings.Count(text, "."), strings.Count(text, ":")
	return dots > 0 && only(text, digits+between) && strings.ContainsAny(text, digits) ||
		colons > 1 && only(text, digits+between+"abcdefABCDEF:")
}

// Prefixes parses addresses and prefixes.
func Prefixes(flag string, texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for i, text := range texts {
		p, err := Prefix(strings.TrimSpace(text))
		if err != nil {
			return nil, &FlagError{[]string{flag}, i, fmt.Errorf("--%s: %w", flag, err)}
		}
		all = append(all, p)
	}
	return all, nil
}

// Statuses parses statuses such as 401 and classes such as 4xx, and returns a function that
// reports whether a status is one of them.
func Statuses(texts []string) (func(status int) bool, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	var statuses, classes []int
	for _, text := range texts {
		class, isClass := strings.CutSuffix(text, "xx")
		n, err := strconv.Atoi(class)
		switch {
		case err == nil && isClass && 1 <= n && n <= 5:
			classes = append(classes, n)
		case err == nil && !isClass && 100 <= n && n <= 599:
			statuses = append(statuses, n)
		default:
			return nil, fmt.Errorf("%q is neither a status such as 401 nor a class such as 4xx", text)
		}
	}
	return func(status int) bool {
		return slices.Contains(statuses, status) || slices.Contains(classes, status/100)
	}, nil
}
