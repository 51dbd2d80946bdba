package accesslog

import (
	"bytes"
	"net/netip"
)

// common parses
//
//	ADDRESS IDENT USER [02/Jan/2006:15:04:05 -0700] "REQUEST" STATUS BYTES ...
//
// which is the common format and the beginning of the combined one. It ignores the fields after the
// status, since servers append their own.
func (p *Parser) common(line []byte, e *Entry) error {
	ip, rest, ok := bytes.Cut(line, space)
	if !ok || len(ip) == 0 {
		return ErrFormat
	}
	ident, rest, ok := bytes.Cut(rest, space)
	if !ok {
		return ErrFormat
	}
	if string(ident) != "-" {
		// Apache's vhost_combined has the virtual host in front. Parsed as the common format, all
		// clients of a host would become one caller.
		if shifted, after, ok := virtualHost(ident, rest); ok {
			ip, rest = shifted, after
		}
	}
	user, rest, ok := cutUser(rest)
	if !ok {
		return ErrFormat
	}
	second, ok := p.clock.read(rest[:stampLen])
	if !ok {
		return ErrTime
	}
	rest = rest[stampLen+len(`] "`):]
	request, ok := quoted(rest)
	if !ok {
		return ErrFormat
	}
	status, rest, _ := bytes.Cut(bytes.TrimPrefix(rest[len(request)+1:], space), space)
	e.Start, e.Coarse, e.IP, e.User, e.Status, e.Rest = second*1e9, true, ip, user, statusOf(status), rest
	e.Method, e.Path, e.Query = requestLine(request)
	return nil
}

var space = []byte(" ")

// virtualHost reports whether ident, the second field, is an address: the line then begins with a
// virtual host. It returns the address and the text after the identity.
func virtualHost(ident, rest []byte) (ip, after []byte, ok bool) {
	if c := ident[:min(1, len(ident))]; !bytes.ContainsAny(c, "0123456789abcdefABCDEF:") {
		return nil, nil, false
	}
	if _, err := netip.ParseAddr(string(ident)); err != nil {
		return nil, nil, false
	}
	_, after, ok = bytes.Cut(rest, space)
	return ident, after, ok
}

// cutUser parses the user, whose name may contain spaces, up to the bracket before the time. It
// returns the text after the bracket, and checks that a time and the request line can follow there.
func cutUser(rest []byte) (user, after []byte, ok bool) {
	i := bytes.IndexByte(rest, '[')
	for i >= 0 {
		after = rest[i+1:]
		if i > 0 && rest[i-1] == ' ' && len(after) > stampLen+2 &&
			string(after[stampLen:stampLen+3]) == `] "` {
			break
		}
		next := bytes.IndexByte(after, '[')
		if next < 0 {
			return nil, nil, false
		}
		i += 1 + next
	}
	if i < 0 {
		return nil, nil, false
	}
	user = rest[:i-1]
	if string(user) == "-" || string(user) == `""` { // Apache writes an empty user as two quotes
		user = nil
	}
	return user, after, true
}

// quoted returns the text before the closing quote. A quote inside is escaped: as \" by Apache, as
// \x22 by nginx.
func quoted(s []byte) ([]byte, bool) {
	for from := 0; ; {
		i := bytes.IndexByte(s[from:], '"')
		if i < 0 {
			return nil, false
		}
		i += from
		slashes := 0
		for slashes < i && s[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return s[:i], true
		}
		from = i + 1
	}
}

// requestLine returns the method, the path and the query of "METHOD TARGET PROTOCOL", or of "METHOD
// TARGET" (HTTP/0.9). It returns nil slices if there is no target.
func requestLine(request []byte) (method, path, query []byte) {
	method, rest, ok := bytes.Cut(request, space)
	if !ok {
		return nil, nil, nil
	}
	target, _, _ := bytes.Cut(rest, space)
	path, query = cutQuery(target)
	return method, path, query
}
