package httplimit

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirgo/weir/internal/doors/structuredfield"
)

// errNotation is the error of an address that is not in the notation of RFC 7239, section 6, which
// some load balancers do not write: the last group of their IPv6 addresses may be a port.
var errNotation = errors.New("by RFC 7239 an address with a port needs quotes, and an IPv6 " +
	"address quotes and brackets; if the proxy also writes X-Forwarded-For, read that: " +
	"ClientIP without Forwarded (weir proxy: without --forwarded)")

// parseNode parses a node of RFC 7239, section 6. A port may be obfuscated.
func parseNode(s string) (netip.Addr, error) {
	if !strings.HasPrefix(s, "[") && strings.Count(s, ":") > 1 {
		return netip.Addr{}, fmt.Errorf("%w: forwarded for %.100q: %w", ErrKey, s, errNotation)
	}
	if name, port, ok := strings.Cut(s, ":_"); ok && isObfuscated(port) &&
		(strings.HasSuffix(name, "]") || !strings.Contains(name, ":")) {
		s = name
	}
	return parseHop(s)
}

// isObfuscated reports whether s can follow the underscore of an obfuscated port.
func isObfuscated(s string) bool {
	return s != "" && strings.Trim(s, "._-0123456789"+
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// forwardedFor returns the for parameter of each element of a Forwarded line, "" for an element
// without one.
func forwardedFor(line string) ([]string, error) {
	p := structuredfield.Parser{Rest: line}
	var hops []string
	for {
		p.Skip(structuredfield.Blanks)
		switch {
		case p.Rest == "":
			return hops, nil
		case p.Take(','):
			continue // an empty element
		}
		hop, err := forwardedElement(&p)
		if err != nil {
			return nil, fmt.Errorf("%w: Forwarded %.100q: %w", ErrKey, line, err)
		}
		hops = append(hops, hop)
	}
}

// forwardedElement reads the name=value pairs up to the next comma, of which some may be empty, and
// returns the value of "for".
func forwardedElement(p *structuredfield.Parser) (hop string, err error) {
	seen := false
	for {
		p.Skip(structuredfield.Blanks)
		switch {
		case p.Rest == "" || p.Take(','):
			return hop, nil
		case p.Take(';'):
			continue
		}
		name := p.While(structuredfield.IsTokenByte)
		if name == "" || !p.Take('=') {
			return "", fmt.Errorf("no name=value at %.20q", p.Rest)
		}
		value, err := forwardedValue(p)
		if err != nil {
			return "", err
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return "", errors.New("an element with two for parameters")
			}
			hop, seen = value, true
		}
		p.Skip(structuredfield.Blanks)
		if p.Rest != "" && p.Rest[0] != ',' && p.Rest[0] != ';' {
			return "", fmt.Errorf("no separator at %.20q", p.Rest)
		}
	}
}

// forwardedValue parses a token, or a quoted string without its quotes.
func forwardedValue(p *structuredfield.Parser) (string, error) {
	if !p.Take('"') {
		v := p.While(structuredfield.IsTokenByte)
		switch {
		case strings.HasPrefix(p.Rest, ":") || v == "" && strings.HasPrefix(p.Rest, "["):
			return "", errNotation
		case v == "":
			return "", fmt.Errorf("no value at %.20q", p.Rest)
		}
		return v, nil
	}
	var b strings.Builder
	for i := 0; i < len(p.Rest); i++ {
		switch c := p.Rest[i]; {
		case c == '"':
			p.Rest = p.Rest[i+1:]
			return b.String(), nil
		case c == '\\' && i+1 < len(p.Rest):
			i++
			b.WriteByte(p.Rest[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", errors.New("a quote that does not end")
}
