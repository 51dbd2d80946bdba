package accesslog

import (
	"bytes"
	"strings"
	"time"
)

// The range of valid years. Within it the difference of two times fits a time.Duration.
const (
	minYear = 1900
	maxYear = 2099
)

const (
	stampLen   = len("17/May/2015:10:05:03 +0000")
	dateLen    = len("17/May/2015")
	isoDateLen = len("2006-01-02")
	timeLen    = len("T15:04:05")
)

// clock parses times. Consecutive lines often have the same second and nearly always the same day,
// and comparing bytes is several times cheaper than parsing them.
type clock struct {
	stamp    [stampLen]byte // the last time in whole seconds that is as long as in the common format
	ns       int64          // that time, in nanoseconds since the Unix epoch; 0 if there is none
	date     [dateLen]byte  // the last date of the common format
	midnight int64          // of that date in UTC, in seconds since the Unix epoch; 0 if there is none
}

// read parses a date, a time of day and a zone. The date is 2006-01-02, 2006/01/02 or 02/Jan/2006;
// a T, a space or a colon follows it, then 15:04:05, with or without a fraction of a second. The
// zone is Z, UTC, GMT, or an offset such as +01, +0100 and +01:00, after a space or not; UTC is the
// default. coarse reports whether the time has only whole seconds.
func (c *clock) read(text []byte) (ns int64, coarse, ok bool) {
	if c.ns != 0 && string(text) == string(c.stamp[:]) {
		return c.ns, true, true
	}
	var day int64
	var rest []byte
	switch {
	case len(text) < isoDateLen+timeLen:
		return 0, false, false
	case text[2] == '/' && len(text) >= dateLen+timeLen && c.readDate(text[:dateLen]):
		day, rest = c.midnight, text[dateLen:]
	case text[4] == '-' || text[4] == '/':
		day, ok = isoDate(text[:isoDateLen])
		if !ok {
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
	ns, coarse = (day+second-offset)*1e9+max(fraction, 0), fraction < 0
	if ok && coarse && len(text) == stampLen {
		copy(c.stamp[:], text)
		c.ns = ns
	}
	return ns, coarse, ok
}

// readDate parses a date such as 17/May/2015.
func (c *clock) readDate(text []byte) bool {
	if c.midnight != 0 && string(text) == string(c.date[:]) {
		return true
	}
	const months = "JanFebMarAprMayJunJulAugSepOctNovDec"
	day, century, year := digits(text[0:2]), digits(text[7:9]), digits(text[9:11])
	month := strings.Index(months, string(text[3:6]))
	if text[2] != '/' || text[6] != '/' || year == notDigits || month%3 != 0 {
		return false
	}
	midnight, ok := midnightOf(century*100+year, month/3+1, day)
	if ok {
		copy(c.date[:], text)
		c.midnight = midnight
	}
	return ok
}

// instant parses a time: a number of seconds (with or without a fraction), milliseconds,
// microseconds or nanoseconds; such a number as text; or a date and a time, as a clock reads
// them. coarse reports whether it has only whole seconds.
func (c *clock) instant(v value) (ns int64, coarse, ok bool) {
	if !v.str || isNumber(v.text) {
		ns, coarse, ok = unixInstant(v.text)
	} else {
		ns, coarse, ok = c.read(v.text)
	}
	return ns, coarse, ok && minInstant <= ns && ns <= maxInstant
}

// midnightOf returns the midnight, in UTC, of a date in the range of valid years.
func midnightOf(year, month, day int) (second int64, ok bool) {
	t := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	exists := t.Day() == day && t.Month() == time.Month(month) // 31 April would be 1 May
	return t.Unix(), exists && year >= minYear && year <= maxYear
}

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

// notDigits is greater than any two digits.
const notDigits = 100

// digits returns the value of two digits, or notDigits.
func digits(two []byte) int {
	hi, lo := two[0]-'0', two[1]-'0'
	if hi > 9 || lo > 9 {
		return notDigits
	}
	return int(hi)*10 + int(lo)
}
