// Package structuredfield writes and parses structured field values for HTTP (RFC 9651), as far as
// the fields of rate limits need them.
package structuredfield

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxInteger is the largest Integer of a structured field (section 3.3.1).
const MaxInteger = 999_999_999_999_999

// Quote serializes printable ASCII as a String (section 3.3.3).
func Quote(s string) string {
	b := append(make([]byte, 0, len(s)+2), '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return string(append(b, '"'))
}

// Kind is the type of a bare item.
type Kind uint8

// The types of section 3.
const (
	Integer Kind = iota
	Decimal
	String
	Token
	Bytes
	Boolean
	Date
	DisplayString
	InnerList
)

// Bare is a bare item, or an inner list without its members, which no field read here has.
type Bare struct {
	Kind Kind
	Num  int64  // of an Integer, a Date, and a Boolean (0 or 1)
	Text string // of a String, a Token and a Display String; of a number as written
}

// Member is a member of a List or, with a key, of a Dictionary.
type Member struct {
	key    string
	Value  Bare
	Params map[string]Bare
}

// Integer returns a parameter that is a non-negative Integer.
func (m Member) Integer(name string) (n int64, ok bool) {
	p, ok := m.Params[name]
	return p.Num, ok && p.Kind == Integer && p.Num >= 0
}

// ParseList parses a List (section 4.2.1). ok is false if it is invalid.
func ParseList(field string) (members []Member, ok bool) {
	p := &Parser{Rest: field}
	return p.members(p.itemOrInnerList)
}

// ParseDictionary parses a Dictionary (section 4.2.2). Of members with one key, the last one
// counts.
func ParseDictionary(field string) (members map[string]Member, ok bool) {
	p := &Parser{Rest: field}
	all, ok := p.members(func() (m Member, ok bool) {
		key, ok := p.key()
		if !ok {
			return m, false
		}
		if p.Take('=') {
			m, ok = p.itemOrInnerList()
		} else {
			m.Value = Bare{Kind: Boolean, Num: 1}
			m.Params, ok = p.parameters()
		}
		m.key = key
		return m, ok
	})
	if !ok {
		return nil, false
	}
	members = make(map[string]Member, len(all))
	for _, m := range all {
		members[m.key] = m
	}
	return members, true
}

// Blanks are the optional blanks around the members of a list (RFC 9110 section 5.6.3).
const Blanks = " \t"

// Parser consumes Rest from the left. Its methods return false at the first invalid byte, which
// makes the whole field invalid.
type Parser struct{ Rest string }

func (p *Parser) members(one func() (Member, bool)) (members []Member, ok bool) {
	p.Skip(" ")
	for p.Rest != "" {
		m, ok := one()
		if !ok {
			return nil, false
		}
		members = append(members, m)
		p.Skip(Blanks)
		if p.Rest == "" {
			break
		}
		if !p.Take(',') {
			return nil, false
		}
		p.Skip(Blanks)
		if p.Rest == "" {
			return nil, false // a trailing comma
		}
	}
	return members, true
}

func (p *Parser) itemOrInnerList() (m Member, ok bool) {
	if p.Take('(') {
		m.Value.Kind = InnerList
		if !p.innerList() {
			return m, false
		}
	} else {
		m.Value, ok = p.bareItem()
		if !ok {
			return m, false
		}
	}
	m.Params, ok = p.parameters()
	return m, ok
}

// innerList parses the rest of an inner list, after its opening parenthesis (section 4.2.1.2).
func (p *Parser) innerList() bool {
	for {
		p.Skip(" ")
		if p.Take(')') {
			return true
		}
		if _, ok := p.bareItem(); !ok {
			return false
		}
		if _, ok := p.parameters(); !ok {
			return false
		}
		if p.Rest == "" || p.Rest[0] != ' ' && p.Rest[0] != ')' {
			return false
		}
	}
}

func (p *Parser) parameters() (params map[string]Bare, ok bool) {
	for p.Take(';') {
		p.Skip(" ")
		key, ok := p.key()
		if !ok {
			return nil, false
		}
		value := Bare{Kind: Boolean, Num: 1}
		if p.Take('=') {
			value, ok = p.bareItem()
			if !ok {
				return nil, false
			}
		}
		if params == nil {
			params = make(map[string]Bare)
		}
		params[key] = value
	}
	return params, true
}

func (p *Parser) key() (string, bool) {
	if p.Rest == "" || !isLower(p.Rest[0]) && p.Rest[0] != '*' {
		return "", false
	}
	return p.While(func(c byte) bool {
		return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
	}), true
}

// bareItem parses a bare item (section 4.2.3.1).
func (p *Parser) bareItem() (v Bare, ok bool) {
	if p.Rest == "" {
		return v, false
	}
	switch c := p.Rest[0]; {
	case c == '-' || isDigit(c):
		return p.number()
	case c == '"':
		v.Kind = String
		v.Text, ok = p.str()
	case c == '*' || isLower(c) || isLower(c|0x20):
		v.Kind = Token
		v.Text = p.While(func(c byte) bool { return IsTokenByte(c) || c == ':' || c == '/' })
		ok = true
	case c == ':':
		v.Kind = Bytes
		ok = p.bytes()
	case c == '?':
		v.Kind = Boolean
		if len(p.Rest) >= 2 && (p.Rest[1] == '0' || p.Rest[1] == '1') {
			v.Num, ok = int64(p.Rest[1]-'0'), true
			p.Rest = p.Rest[2:]
		}
	case c == '@':
		p.Rest = p.Rest[1:]
		v, ok = p.number()
		ok = ok && v.Kind == Integer
		v.Kind = Date
	case c == '%':
		v.Kind = DisplayString
		v.Text, ok = p.display()
	}
	return v, ok
}

// number parses an Integer or a Decimal (section 4.2.4).
func (p *Parser) number() (v Bare, ok bool) {
	text, sign := p.Rest, int64(1)
	if p.Take('-') {
		sign = -1
	}
	whole := p.While(isDigit)
	if whole == "" || len(whole) > 15 {
		return v, false
	}
	if !p.Take('.') {
		n, err := strconv.ParseInt(whole, 10, 64)
		return Bare{Integer, sign * n, text[:len(text)-len(p.Rest)]}, err == nil
	}
	fraction := p.While(isDigit)
	return Bare{Kind: Decimal, Text: text[:len(text)-len(p.Rest)]},
		len(whole) <= 12 && 1 <= len(fraction) && len(fraction) <= 3
}

// str parses a String (section 4.2.5).
func (p *Parser) str() (string, bool) {
	var b strings.Builder
	for i := 1; i < len(p.Rest); i++ {
		switch c := p.Rest[i]; {
		case c == '"':
			p.Rest = p.Rest[i+1:]
			return b.String(), true
		case c == '\\':
			i++
			if i == len(p.Rest) || p.Rest[i] != '"' && p.Rest[i] != '\\' {
				return "", false
			}
			b.WriteByte(p.Rest[i])
		case c < ' ' || c > '~':
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// bytes parses a Byte Sequence (section 4.2.7).
func (p *Parser) bytes() bool {
	n := strings.IndexByte(p.Rest[1:], ':')
	if n < 0 {
		return false
	}
	text := p.Rest[1 : n+1]
	p.Rest = p.Rest[n+2:]
	if strings.ContainsAny(text, "\r\n") { // the decoder would ignore them
		return false
	}
	_, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	return err == nil
}

// display parses a Display String (section 4.2.10).
func (p *Parser) display() (string, bool) {
	if !strings.HasPrefix(p.Rest, `%"`) {
		return "", false
	}
	var b []byte
	for i := 2; i < len(p.Rest); i++ {
		switch c := p.Rest[i]; {
		case c == '"':
			p.Rest = p.Rest[i+1:]
			return string(b), utf8.Valid(b)
		case c < ' ' || c > '~':
			return "", false
		case c == '%':
			if i+2 >= len(p.Rest) || !isLowerHex(p.Rest[i+1]) || !isLowerHex(p.Rest[i+2]) {
				return "", false
			}
			n, _ := strconv.ParseUint(p.Rest[i+1:i+3], 16, 8) // two hex digits
			b = append(b, byte(n))
			i += 2
		default:
			b = append(b, c)
		}
	}
	return "", false
}

// Take consumes c, if that is next.
func (p *Parser) Take(c byte) bool {
	if p.Rest == "" || p.Rest[0] != c {
		return false
	}
	p.Rest = p.Rest[1:]
	return true
}

// Skip consumes all of these bytes that come next.
func (p *Parser) Skip(bytes string) { p.Rest = strings.TrimLeft(p.Rest, bytes) }

// While consumes the longest prefix of bytes that satisfy is.
func (p *Parser) While(is func(byte) bool) string {
	n := 0
	for n < len(p.Rest) && is(p.Rest[n]) {
		n++
	}
	prefix := p.Rest[:n]
	p.Rest = p.Rest[n:]
	return prefix
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLowerHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }

// IsToken reports whether s is a token of RFC 9110 section 5.6.2.
func IsToken(s string) bool {
	for i := range len(s) {
		if !IsTokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

// IsTokenByte reports whether a token may contain c.
func IsTokenByte(c byte) bool {
	return isLower(c|0x20) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
