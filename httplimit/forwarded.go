package httplimit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// walkForwarded is walkXFF for the Forwarded header.
//
// A line is read from its start, since commas inside quotes do not separate elements; a quote that
// a client opened and a proxy's element closed makes the line malformed, and the request an error.
// The last line is read first, and only the lines needed, so that a client's malformed line fails
// only its own requests.
func (ip IP) walkForwarded(peer netip.Addr, lines []string) (netip.Addr, error) {
	client := peer
	for _, line := range slices.Backward(lines) {
		hops, err := forwardedFor(line)
		if err != nil {
			return netip.Addr{}, err
		}
		for _, hop := range slices.Backward(hops) {
			addr, err := parseNode(hop)
			if err != nil || !ip.trusts(addr) {
				return addr, err
			}
			client = addr
		}
	}
	return client, nil
}

// parseNode parses a node of RFC 7239 section 6. An IPv6 address without brackets is refused, since
// its last group may be a port.
func parseNode(s string) (netip.Addr, error) {
	if !strings.HasPrefix(s, "[") && strings.Count(s, ":") > 1 {
		return netip.Addr{},
			fmt.Errorf("%w: forwarded for %.100q, an IPv6 address without brackets", ErrKey, s)
	}
	return parseHop(s)
}

// forwardedFor returns the for parameter of each element of a Forwarded line, "" for an element
// without one.
func forwardedFor(line string) ([]string, error) {
	p := parser{rest: line}
	var hops []string
	for {
		p.skip(blanks)
		switch {
		case p.rest == "":
			return hops, nil
		case p.take(','):
			continue // an empty element
		}
		hop, err := forwardedElement(&p)
		if err != nil {
			return nil, fmt.Errorf("%w: Forwarded %.100q: %w", ErrKey, line, err)
		}
		hops = append(hops, hop)
	}
}

// forwardedElement reads the name=value pairs up to the next comma and returns the value of "for".
func forwardedElement(p *parser) (hop string, err error) {
	seen := false
	for {
		p.skip(blanks)
		name := p.while(isTokenByte)
		if name == "" || !p.take('=') {
			return "", fmt.Errorf("no name=value at %.20q", p.rest)
		}
		value, err := forwardedValue(p)
		if err != nil {
			return "", err
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return "", fmt.Errorf("an element with two for parameters")
			}
			hop, seen = value, true
		}
		p.skip(blanks)
		switch {
		case p.rest == "" || p.take(','):
			return hop, nil
		case !p.take(';'):
			return "", fmt.Errorf("no separator at %.20q", p.rest)
		}
	}
}

// forwardedValue parses a token, or a quoted string without its quotes.
func forwardedValue(p *parser) (string, error) {
	if !p.take('"') {
		if v := p.while(isTokenByte); v != "" {
			return v, nil
		}
		return "", fmt.Errorf("no value at %.20q", p.rest)
	}
	var b strings.Builder
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			p.rest = p.rest[i+1:]
			return b.String(), nil
		case c == '\\' && i+1 < len(p.rest):
			i++
			b.WriteByte(p.rest[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", fmt.Errorf("a quote that does not end")
}

// isToken reports whether s is a token of RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

func isTokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
