package cli

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/ipaddr"
)

// Prefix parses an address or a prefix. IPv4-mapped ones become IPv4.
func Prefix(text string) (netip.Prefix, error) {
	p, err := ipaddr.ParsePrefix(text)
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

// Entry parses an entry of the deny list: an address, a prefix, or else a key. An address with
// a port is an error: as a key it would match no client.
func Entry(text string) (httplimit.Entry, error) {
	text = strings.TrimSpace(text)
	p, err := Prefix(text)
	if err == nil {
		return httplimit.Entry{Prefix: p}, nil
	}
	if _, ok := spelledAddr(text); ok {
		return httplimit.Entry{}, err
	}
	return httplimit.Entry{Key: text}, nil
}

// Prefixes parses addresses and prefixes.
func Prefixes(flag string, texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range texts {
		p, err := Prefix(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
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
