package httplimit

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// This file writes and parses structured field values (RFC 9651).

// maxInteger is the largest Integer of a structured field (section 3.3.1).
const maxInteger = 999_999_999_999_999

// quote serializes printable ASCII as a String (section 3.3.3).
func quote(s string) string {
	b := append(make([]byte, 0, len(s)+2), '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return string(append(b, '"'))
}

// kind is the type of a bare item.
type kind uint8

const (
	kindInteger kind = iota
	kindDecimal
	kindString
	kindToken
	kindBytes
	kindBoolean
	kindDate
	kindDisplay
	kindInnerList
)

// bare is a bare item, or an inner list without its members, which no field read here has.
type bare struct {
	kind kind
	num  int64  // of an Integer, a Date, and a Boolean (0 or 1)
	text string // of a String, a Token and a Display String
}

// member is a member of a List or, with a key, of a Dictionary.
type member struct {
	key    string
	value  bare
	params map[string]bare
}

// integer returns a parameter that is a non-negative Integer.
func (m member) integer(name string) (n int64, ok bool) {
	p, ok := m.params[name]
	return p.num, ok && p.kind == kindInteger && p.num >= 0
}

// parseList parses a List (section 4.2.1). ok is false if it is invalid.
func parseList(field string) (members []member, ok bool) {
	p := &parser{rest: field}
	return p.members(func() (m member, ok bool) { return p.itemOrInnerList() })
}

// parseDictionary parses a Dictionary (section 4.2.2). Of members with one key, the last one
// counts.
func parseDictionary(field string) (members map[string]member, ok bool) {
	p := &parser{rest: field}
	all, ok := p.members(func() (m member, ok bool) {
		key, ok := p.key()
		if !ok {
			return m, false
		}
		if p.take('=') {
			m, ok = p.itemOrInnerList()
		} else {
			m.value = bare{kind: kindBoolean, num: 1}
			m.params, ok = p.parameters()
		}
		m.key = key
		return m, ok
	})
	if !ok {
		return nil, false
	}
	members = make(map[string]member, len(all))
	for _, m := range all {
		members[m.key] = m
	}
	return members, true
}

// blanks are the optional blanks around the members of a list (RFC 9110 section 5.6.3).
const blanks = " \t"

// parser consumes rest from the left. Its methods return false at the first invalid byte, which
// makes the whole field invalid.
type parser struct{ rest string }

func (p *parser) members(one func() (member, bool)) (members []member, ok bool) {
	p.skip(" ")
	for p.rest != "" {
		m, ok := one()
		if !ok {
			return nil, false
		}
		members = append(members, m)
		p.skip(blanks)
		if p.rest == "" {
			break
		}
		if !p.take(',') {
			return nil, false
		}
		p.skip(blanks)
		if p.rest == "" {
			return nil, false // a trailing comma
		}
	}
	return members, true
}

func (p *parser) itemOrInnerList() (m member, ok bool) {
	if p.take('(') {
		m.value.kind = kindInnerList
		if !p.innerList() {
			return m, false
		}
	} else if m.value, ok = p.bareItem(); !ok {
		return m, false
	}
	m.params, ok = p.parameters()
	return m, ok
}

// innerList parses the rest of an inner list, after its opening parenthesis (section 4.2.1.2).
func (p *parser) innerList() bool {
	for {
		p.skip(" ")
		if p.take(')') {
			return true
		}
		if _, ok := p.bareItem(); !ok {
			return false
		}
		if _, ok := p.parameters(); !ok {
			return false
		}
		if p.rest == "" || p.rest[0] != ' ' && p.rest[0] != ')' {
			return false
		}
	}
}

func (p *parser) parameters() (params map[string]bare, ok bool) {
	for p.take(';') {
		p.skip(" ")
		key, ok := p.key()
		if !ok {
			return nil, false
		}
		value := bare{kind: kindBoolean, num: 1}
		if p.take('=') {
			if value, ok = p.bareItem(); !ok {
				return nil, false
			}
		}
		if params == nil {
			params = make(map[string]bare)
		}
		params[key] = value
	}
	return params, true
}

func (p *parser) key() (string, bool) {
	if p.rest == "" || !isLower(p.rest[0]) && p.rest[0] != '*' {
		return "", false
	}
	return p.while(func(c byte) bool {
		return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
	}), true
}

// bareItem parses a bare item (section 4.2.3.1).
func (p *parser) bareItem() (v bare, ok bool) {
	if p.rest == "" {
		return v, false
	}
	switch c := p.rest[0]; {
	case c == '-' || isDigit(c):
		return p.number()
	case c == '"':
		v.kind = kindString
		v.text, ok = p.str()
	case c == '*' || isLower(c) || isLower(c|0x20):
		v.kind = kindToken
		v.text = p.while(func(c byte) bool { return isTokenByte(c) || c == ':' || c == '/' })
		ok = true
	case c == ':':
		v.kind = kindBytes
		ok = p.bytes()
	case c == '?':
		v.kind = kindBoolean
		if len(p.rest) >= 2 && (p.rest[1] == '0' || p.rest[1] == '1') {
			v.num, ok = int64(p.rest[1]-'0'), true
			p.rest = p.rest[2:]
		}
	case c == '@':
		p.rest = p.rest[1:]
		v, ok = p.number()
		ok = ok && v.kind == kindInteger
		v.kind = kindDate
	case c == '%':
		v.kind = kindDisplay
		v.text, ok = p.display()
	}
	return v, ok
}

// number parses an Integer or a Decimal (section 4.2.4).
func (p *parser) number() (v bare, ok bool) {
	sign := int64(1)
	if p.take('-') {
		sign = -1
	}
	whole := p.while(isDigit)
	if whole == "" || len(whole) > 15 {
		return v, false
	}
	if !p.take('.') {
		n, err := strconv.ParseInt(whole, 10, 64)
		return bare{kind: kindInteger, num: sign * n}, err == nil
	}
	fraction := p.while(isDigit)
	return bare{kind: kindDecimal}, len(whole) <= 12 && 1 <= len(fraction) && len(fraction) <= 3
}

// str parses a String (section 4.2.5).
func (p *parser) str() (string, bool) {
	var b strings.Builder
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			p.rest = p.rest[i+1:]
			return b.String(), true
		case c == '\\':
			i++
			if i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				return "", false
			}
			b.WriteByte(p.rest[i])
		case c < ' ' || c > '~':
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// bytes parses a Byte Sequence (section 4.2.7).
func (p *parser) bytes() bool {
	n := strings.IndexByte(p.rest[1:], ':')
	if n < 0 {
		return false
	}
	text := p.rest[1 : n+1]
	p.rest = p.rest[n+2:]
	if strings.ContainsAny(text, "\r\n") { // the decoder would ignore them
		return false
	}
	_, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	return err == nil
}

// display parses a Display String (section 4.2.10).
func (p *parser) display() (string, bool) {
	if !strings.HasPrefix(p.rest, `%"`) {
		return "", false
	}
	var b []byte
	for i := 2; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			p.rest = p.rest[i+1:]
			return string(b), utf8.Valid(b)
		case c < ' ' || c > '~':
			return "", false
		case c == '%':
			if i+2 >= len(p.rest) || !isLowerHex(p.rest[i+1]) || !isLowerHex(p.rest[i+2]) {
				return "", false
			}
			n, _ := strconv.ParseUint(p.rest[i+1:i+3], 16, 8) // two hex digits
			b = append(b, byte(n))
			i += 2
		default:
			b = append(b, c)
		}
	}
	return "", false
}

func (p *parser) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *parser) skip(bytes string) { p.rest = strings.TrimLeft(p.rest, bytes) }

// while consumes the longest prefix of bytes that satisfy is.
func (p *parser) while(is func(byte) bool) string {
	n := 0
	for n < len(p.rest) && is(p.rest[n]) {
		n++
	}
	prefix := p.rest[:n]
	p.rest = p.rest[n:]
	return prefix
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLowerHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }
