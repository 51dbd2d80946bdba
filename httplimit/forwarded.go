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
		return netip.Addr{}, fmt.Errorf("%w: forwarded for %.100q, an IPv6 address without brackets", ErrKey, s)
	}
	return parseHop(s)
}

// forwardedFor returns the for parameter of each element of a Forwarded line, "" for an element
// without one.
func forwardedFor(line string) ([]string, error) {
	p := fieldScanner{rest: line}
	var hops []string
	for {
		p.skipBlank()
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
func forwardedElement(p *fieldScanner) (hop string, err error) {
	seen := false
	for {
		p.skipBlank()
		name := p.token()
		if name == "" || !p.take('=') {
			return "", fmt.Errorf("no name=value at %.20q", p.rest)
		}
		value, err := p.value()
		if err != nil {
			return "", err
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return "", fmt.Errorf("an element with two for parameters")
			}
			hop, seen = value, true
		}
		p.skipBlank()
		switch {
		case p.rest == "" || p.take(','):
			return hop, nil
		case !p.take(';'):
			return "", fmt.Errorf("no separator at %.20q", p.rest)
		}
	}
}

// fieldScanner reads a header field from left to right.
type fieldScanner struct{ rest string }

// value reads a token, or a quoted string without its quotes.
func (p *fieldScanner) value() (string, error) {
	if !p.take('"') {
		if v := p.token(); v != "" {
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

func (p *fieldScanner) token() string {
	n := 0
	for n < len(p.rest) && isTokenByte(p.rest[n]) {
		n++
	}
	token := p.rest[:n]
	p.rest = p.rest[n:]
	return token
}

func (p *fieldScanner) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *fieldScanner) skipBlank() { p.rest = strings.TrimLeft(p.rest, " \t") }

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
