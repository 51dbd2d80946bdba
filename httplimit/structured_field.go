package httplimit

import "strings"

// quote writes printable ASCII as a String of a structured field (RFC 9651 section 3.3.3).
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

// item is a member of a List or, with a value, of a Dictionary. Values are as they were written.
type item struct {
	name, value string
	params      map[string]string
}

// parseItems parses a structured field (RFC 9651) that is a List or a Dictionary of Items, which is all that a RateLimit
// field may be. It does not tell apart the types of an Item's value beyond what it takes to find its end.
func parseItems(s string) (items []item, ok bool) {
	p := itemScanner{fieldScanner{rest: s}}
	for {
		p.skipBlank()
		it, ok := p.item()
		if !ok {
			return nil, false
		}
		items = append(items, it)
		p.skipBlank()
		switch {
		case p.rest == "":
			return items, true
		case !p.take(','):
			return nil, false
		}
	}
}

type itemScanner struct{ fieldScanner }

func (p *itemScanner) item() (it item, ok bool) {
	if it.name, ok = p.bare(); !ok {
		return it, false
	}
	if p.take('=') {
		if it.value, ok = p.bare(); !ok {
			return it, false
		}
	}
	for p.take(';') {
		p.skipBlank()
		name := p.token()
		if name == "" {
			return it, false
		}
		value := "?1"
		if p.take('=') {
			if value, ok = p.bare(); !ok {
				return it, false
			}
		}
		if it.params == nil {
			it.params = make(map[string]string)
		}
		it.params[name] = value
	}
	return it, true
}

// bare reads a bare item: a quoted string without its quotes, anything else as it stands.
func (p *itemScanner) bare() (string, bool) {
	if strings.HasPrefix(p.rest, `"`) {
		s, err := p.value()
		return s, err == nil
	}
	n := strings.IndexAny(p.rest, ",;= \t\"")
	if strings.HasPrefix(p.rest, ":") { // a byte sequence, whose padding is an equals sign
		n = strings.IndexByte(p.rest[1:], ':') + 2
		if n < 2 {
			return "", false
		}
	} else if n < 0 {
		n = len(p.rest)
	}
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s, n > 0
}
