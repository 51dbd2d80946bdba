package accesslog

import (
	"bytes"
	"math"
	"strconv"
	"time"
)

// access is what a Caddy line says, before it is made an Entry. The slices are nil for what it did not say.
type access struct {
	ts, duration                         int64
	hasTS                                bool
	clientIP, remoteIP, remoteAddr, user []byte
	uri                                  []byte
}

// caddy reads a line of Caddy's JSON access log. Of the addresses it takes client_ip, which Caddy has worked out from
// the proxies it trusts, before remote_ip, and that before remote_addr, which is what Caddy had before version 2.5.
func (p *Parser) caddy(line []byte, e *Entry) error {
	var a access
	if err := p.readAccess(line, &a); err != nil {
		return err
	}
	ip := a.clientIP
	if len(ip) == 0 {
		ip = a.remoteIP
	}
	if len(ip) == 0 {
		ip = withoutPort(a.remoteAddr)
	}
	if len(ip) == 0 || !a.hasTS {
		return ErrNoAccess
	}
	if bytes.IndexByte(ip, ' ') >= 0 {
		return ErrField
	}
	e.Start, e.Coarse, e.IP, e.User, e.Path = a.ts-a.duration, false, ip, a.user, withoutQuery(a.uri)
	return nil
}

func (p *Parser) readAccess(line []byte, a *access) error {
	w := &p.json
	w.reset(line)
	err := w.object(func(key []byte) error {
		switch string(key) {
		case "ts":
			return w.instant(a)
		case "duration":
			return w.span(a)
		case "user_id":
			return w.text(&a.user)
		case "request":
			if w.peek() != '{' {
				return ErrField
			}
			return w.object(func(key []byte) error {
				switch string(key) {
				case "client_ip":
					return w.text(&a.clientIP)
				case "remote_ip":
					return w.text(&a.remoteIP)
				case "remote_addr":
					return w.text(&a.remoteAddr)
				case "uri":
					return w.text(&a.uri)
				}
				return w.skip(0)
			})
		}
		return w.skip(0)
	})
	if err != nil {
		return err
	}
	return w.end()
}

// instant reads ts: by Caddy's time_format seconds with a fraction, which is the default, milliseconds, nanoseconds, or
// the text of RFC 3339. The unit of a number is told by its size: the ranges do not meet between the years 1973 and 5138.
func (w *walker) instant(a *access) error {
	var ns int64
	if w.peek() == '"' {
		var text []byte
		if err := w.text(&text); err != nil {
			return err
		}
		t, err := time.Parse(time.RFC3339Nano, string(text))
		if err != nil || t.Year() < minYear || t.Year() > maxYear {
			return ErrTime
		}
		ns = t.UnixNano()
	} else {
		number, err := w.number()
		if err != nil {
			return err
		}
		whole, _, _ := bytes.Cut(number, []byte("."))
		unit := int64(time.Second)
		switch {
		case len(whole) > 15:
			unit = 1
		case len(whole) > 11:
			unit = int64(time.Millisecond)
		}
		var ok bool
		if ns, ok = scaled(number, unit); !ok {
			return ErrTime
		}
	}
	if ns < minInstant || ns > maxInstant {
		return ErrTime
	}
	a.ts, a.hasTS = ns, true
	return nil
}

// maxDuration bounds how long a request may have taken.
const maxDuration = 365 * 24 * int64(time.Hour)

var (
	minInstant = time.Date(minYear, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	maxInstant = time.Date(maxYear+1, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano() - 1
)

// span reads duration: seconds with a fraction, or text such as "1.5ms", by Caddy's duration_format.
func (w *walker) span(a *access) error {
	var ns int64
	if w.peek() == '"' {
		var text []byte
		if err := w.text(&text); err != nil {
			return err
		}
		d, err := time.ParseDuration(string(text))
		if err != nil {
			return ErrTime
		}
		ns = int64(d)
	} else {
		number, err := w.number()
		if err != nil {
			return err
		}
		var ok bool
		if ns, ok = scaled(number, int64(time.Second)); !ok {
			return ErrTime
		}
	}
	if ns < 0 || ns > maxDuration {
		return ErrTime
	}
	a.duration = ns
	return nil
}

// scaled returns a JSON number times unit, cut to a whole number, without going through a float, which would be off by
// hundreds of nanoseconds for the seconds of today.
func scaled(number []byte, unit int64) (int64, bool) {
	s, negative := number, false
	if len(s) > 0 && s[0] == '-' {
		s, negative = s[1:], true
	}
	var n, place int64 = 0, unit
	point := false
	for _, c := range s {
		switch {
		case c == '.':
			point = true
		case c < '0' || c > '9':
			return scaledFloat(number, unit)
		case point:
			place /= 10
			n += int64(c-'0') * place
		default:
			d := int64(c-'0') * unit
			if n > (math.MaxInt64-unit-d)/10 { // a fraction adds less than one unit
				return 0, false
			}
			n = n*10 + d
		}
	}
	if negative {
		n = -n
	}
	return n, true
}

// scaledFloat is for numbers with an exponent.
func scaledFloat(number []byte, unit int64) (int64, bool) {
	f, err := strconv.ParseFloat(string(number), 64)
	f *= float64(unit)
	if err != nil || math.Abs(f) >= 1<<63 {
		return 0, false
	}
	return int64(f), true
}

// withoutPort cuts the port of "1.2.3.4:56" and of "[::1]:56".
func withoutPort(addr []byte) []byte {
	i := bytes.LastIndexByte(addr, ':')
	if i < 0 {
		return addr
	}
	return bytes.Trim(addr[:i], "[]")
}
