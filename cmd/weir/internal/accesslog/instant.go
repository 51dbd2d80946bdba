package accesslog

import (
	"bytes"
	"math"
	"strconv"
	"time"
)

var (
	minInstant = time.Date(minYear, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	maxInstant = time.Date(maxYear+1, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano() - 1
)

// instant parses a time: a number of seconds (with or without a fraction), milliseconds,
// microseconds or nanoseconds; such a number as text; or a date and a time, as dateTime parses
// them. coarse reports whether it has only whole seconds.
func (p *Parser) instant(v value) (ns int64, coarse, ok bool) {
	switch {
	case !v.str || isNumber(v.text):
		ns, coarse, ok = unixInstant(v.text)
	case len(v.text) == stampLen && v.text[11] == ':':
		var second int64
		second, ok = p.clock.read(v.text)
		ns, coarse = second*1e9, true
	default:
		ns, coarse, ok = dateTime(v.text)
	}
	return ns, coarse, ok && minInstant <= ns && ns <= maxInstant
}

// unixInstant parses a number. Its unit follows from its size: the ranges of seconds, milliseconds,
// microseconds and nanoseconds do not overlap between the years 1973 and 5138.
func unixInstant(number []byte) (ns int64, coarse, ok bool) {
	whole, fraction, _ := bytes.Cut(number, []byte("."))
	unit := int64(time.Second)
	switch {
	case len(whole) > 17:
		unit = 1
	case len(whole) > 14:
		unit = int64(time.Microsecond)
	case len(whole) > 11:
		unit = int64(time.Millisecond)
	}
	ns, ok = scaled(number, unit)
	return ns, unit == int64(time.Second) && len(fraction) == 0, ok
}

// dateTime parses a date, a time of day and a zone. The date is 2006-01-02, 2006/01/02 or
// 02/Jan/2006; a T, a space or a colon follows it, then 15:04:05, with or without a fraction of a
// second. The zone is Z, UTC, GMT, or an offset such as +01, +0100 and +01:00, after a space or
// not; UTC is the default.
func dateTime(text []byte) (ns int64, coarse, ok bool) {
	var c clock
	var day int64
	var rest []byte
	switch {
	case len(text) < isoDateLen+timeLen:
		return 0, false, false
	case text[2] == '/' && len(text) >= dateLen+timeLen && c.readDate(text[:dateLen]):
		day, rest = c.midnight, text[dateLen:]
	case text[4] == '-' || text[4] == '/':
		if day, ok = isoDate(text[:isoDateLen]); !ok {
			return 0, false, false
		}
		rest = text[isoDateLen:]
	default:
		return 0, false, false
	}
	second, ok := timeOfDay(rest[1:timeLen])
	if !ok || rest[0] != 'T' && rest[0] != ' ' && rest[0] != ':' {
		return 0, false, false
	}
	fraction, rest := cutFraction(rest[timeLen:])
	offset, ok := zoneOffset(rest)
	ns = (day+second-offset)*1e9 + max(fraction, 0)
	return ns, fraction < 0, ok
}

const (
	isoDateLen = len("2006-01-02")
	timeLen    = len("T15:04:05")
)

// isoDate returns the midnight, in UTC, of a date such as 2006-01-02 or 2006/01/02.
func isoDate(text []byte) (midnight int64, ok bool) {
	century, year := digits(text[:2]), digits(text[2:4])
	if text[7] != text[4] || century == notDigits || year == notDigits {
		return 0, false
	}
	return midnightOf(century*100+year, digits(text[5:7]), digits(text[8:]))
}

// timeOfDay parses a time such as 15:04:05. A leap second is the first of the next minute.
func timeOfDay(text []byte) (second int64, ok bool) {
	h, m, s := digits(text[:2]), digits(text[3:5]), digits(text[6:8])
	ok = text[2] == ':' && text[5] == ':' && h <= 23 && m <= 59 && s <= 60
	return int64(h*3600 + m*60 + s), ok
}

// cutFraction parses the fraction of a second, such as .25, that begins text, and returns the rest.
// It returns -1 if there is none.
func cutFraction(text []byte) (ns int64, rest []byte) {
	if len(text) == 0 || text[0] != '.' && text[0] != ',' {
		return -1, text
	}
	n := run(text[1:])
	if n == 0 {
		return -1, text
	}
	place := int64(time.Second)
	for _, c := range text[1 : 1+n] {
		place /= 10
		ns += int64(c-'0') * place
	}
	return ns, text[1+n:]
}

// zoneOffset returns the offset, in seconds, of a zone.
func zoneOffset(zone []byte) (offset int64, ok bool) {
	if len(zone) == 0 {
		return 0, true
	}
	zone = bytes.TrimPrefix(zone, space)
	switch string(zone) {
	case "Z", "UTC", "GMT":
		return 0, true
	}
	hours, minutes := zone[min(1, len(zone)):], []byte("00")
	switch len(zone) {
	case len("+01"):
	case len("+0100"):
		hours, minutes = zone[1:3], zone[3:]
	case len("+01:00"):
		hours, minutes = zone[1:3], zone[4:]
	default:
		return 0, false
	}
	h, m := digits(hours), digits(minutes)
	offset = int64(h*3600 + m*60)
	if zone[0] == '-' {
		offset = -offset
	}
	ok = (zone[0] == '+' || zone[0] == '-') && h <= 23 && m <= 59
	return offset, ok && (len(zone) < len("+01:00") || zone[3] == ':')
}

// isNumber reports whether s consists of digits and at most one point, and is longer than a year.
func isNumber(s []byte) bool {
	point := false
	for i, c := range s {
		if c == '.' && !point && i > 0 {
			point = true
		} else if c < '0' || c > '9' {
			return false
		}
	}
	return len(s) > 4
}

// maxDuration bounds the duration of a request.
const maxDuration = 365 * 24 * int64(time.Hour)

// span parses a duration: a number of units, with or without a fraction, or text such as "1.5ms". A
// missing value is 0.
func span(v value, unit int64) (ns int64, ok bool) {
	if v.rank == 0 {
		return 0, true
	}
	if last := v.text[len(v.text)-1]; v.str && last == 's' {
		d, err := time.ParseDuration(string(v.text))
		ns, ok = int64(d), err == nil
	} else {
		ns, ok = scaled(v.text, unit)
	}
	return ns, ok && 0 <= ns && ns <= maxDuration
}

// scaled returns number times unit, truncated to an integer. It does not use a float, which would
// be off by hundreds of nanoseconds for current times in seconds.
func scaled(number []byte, unit int64) (int64, bool) {
	var n, place int64 = 0, unit
	point := false
	for _, c := range number {
		switch {
		case c == '.' && !point:
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
	return n, len(number) > 0
}

// scaledFloat handles numbers with a sign or an exponent and rejects text that is not a number.
func scaledFloat(number []byte, unit int64) (int64, bool) {
	f, err := strconv.ParseFloat(string(number), 64)
	f *= float64(unit)
	if err != nil || !(math.Abs(f) < 1<<63) {
		return 0, false
	}
	return int64(f), true
}

// statusOf parses a status; it returns 0 if it is invalid.
func statusOf(s []byte) int {
	if len(s) != 3 || s[0] < '1' || s[0] > '9' {
		return 0
	}
	if tail := digits(s[1:]); tail != notDigits {
		return int(s[0]-'0')*100 + tail
	}
	return 0
}
