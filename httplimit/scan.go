package httplimit

import (
	"fmt"
	"strings"
)

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
