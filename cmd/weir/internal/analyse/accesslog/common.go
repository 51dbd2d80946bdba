package accesslog

import (
	"bytes"
	"time"
)

// common parses
//
//	ADDRESS IDENT USER [02/Jan/2006:15:04:05 -0700] "REQUEST" STATUS BYTES ...
//
// which is the common format and the beginning of the combined one. The time may be another one
// that a clock reads: Python's servers write 02/Jan/2006 15:04:05. It ignores the fields after
// the status, since servers append their own.
func (p *Parser) common(line []byte, e *Entry) error {
	var user []byte
	var err error
	n := ipv4Len(line)
	ip, rest, v4 := line[:n], line[n:], n > 0
	n = stampLen // of the time
	// Nearly all lines begin so, and the rest of the function takes a third of the time.
	if v4 && len(rest) > 6+stampLen+2 && string(rest[:6]) == " - - [" && atTime(rest[6:]) {
		rest = rest[6:]
	} else {
		ip, user, rest, err = p.reading.address.clientOf(line)
		if err != nil {
			return err
		}
		v4 = plainIPv4(ip)
		n = timeBefore(rest)
	}
	start, coarse, ok := p.reading.clock.read(rest[:n])
	if !ok {
		return ErrTime
	}
	rest = rest[n+len(`] "`):]
	request, ok := quoted(rest)
	if !ok {
		return ErrFormat
	}
	status, rest, _ := cutSpace(bytes.TrimPrefix(rest[len(request)+1:], space))
	e.Start, e.Coarse, e.User, e.Status, e.rest = start, coarse, user, statusOf(status), rest
	e.Logged, e.AtEnd, e.Took = start, false, lastDuration(rest)
	e.forwarded, e.referer, e.agent = nil, nil, nil
	e.Method, e.Path, e.Query = nil, nil, nil
	if !p.format.NoTarget {
		e.Method, e.Path, e.Query = requestLine(request)
	}
	e.IP, e.IPv4 = ip, v4
	if v4 {
		return nil
	}
	return setClient(ip, p.format.Lists, e)
}

// lastDuration returns the duration that ends a line, such as 12ms, as Traefik writes it, whose
// time is that of the arrival.
func lastDuration(rest []byte) int64 {
	number, ok := bytes.CutSuffix(rest, []byte("ms"))
	if !ok {
		return NoDuration
	}
	number = number[bytes.LastIndexByte(number, ' ')+1:]
	if n := run(number); n == 0 || n < len(number) {
		return NoDuration
	}
	took, ok := span(value{text: number, rank: 1}, int64(time.Millisecond))
	if !ok {
		return NoDuration
	}
	return took
}

var space = []byte(" ")

// cutSpace is bytes.Cut at a space, in half the time.
func cutSpace(s []byte) (before, after []byte, found bool) {
	if i := bytes.IndexByte(s, ' '); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, nil, false
}

// atTime reports whether a time, a bracket and a quote begin text, which is long enough.
func atTime(text []byte) bool { return string(text[stampLen:stampLen+3]) == `] "` }

// maxTimeLen bounds the length of a time: 2006-01-02T15:04:05.123456789+01:00.
const maxTimeLen = 35

// timeBefore returns the length of the time that begins text and that a bracket and a quote follow,
// or 0. A time of another length than that of the common format must be valid.
func timeBefore(text []byte) int {
	if len(text) > stampLen+2 && atTime(text) {
		return stampLen
	}
	n := bytes.IndexByte(text[:min(len(text), maxTimeLen+1)], ']')
	if n < 0 || !bytes.HasPrefix(text[n:], []byte(`] "`)) {
		return 0
	}
	if _, _, ok := new(clock).read(text[:n]); !ok {
		return 0
	}
	return n
}

// cutAddresses splits a line after the first word or, if that ends in a comma, after the list that
// it begins.
func cutAddresses(line []byte) (addrs, rest []byte, ok bool) {
	for n := 0; ; n++ {
		i := bytes.IndexByte(line[n:], ' ')
		if i < 0 {
			return nil, nil, false
		}
		n += i
		if n == 0 || line[n-1] != ',' {
			return line[:n], line[n+1:], n > 0
		}
	}
}

// cutUser parses the user, whose name may contain spaces, up to the bracket before the time. It
// returns the text after the bracket, and checks that a time and the request line can follow there.
func cutUser(rest []byte) (user, after []byte, ok bool) {
	for n := 0; !ok; {
		i := bytes.IndexByte(rest[n:], '[')
		if i < 0 {
			return nil, nil, false
		}
		n += i + 1
		user, after = bytes.TrimRight(rest[:max(0, n-2)], " "), rest[n:]
		ok = n > 1 && rest[n-2] == ' ' && timeBefore(after) > 0
	}
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
	method, rest, ok := cutSpace(request)
	if !ok {
		return nil, nil, nil
	}
	target, _, _ := cutSpace(rest)
	path, query = cutQuery(target)
	return method, path, query
}
