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
// missing value is NoDuration.
func span(v value, unit int64) (ns int64, ok bool) {
	if v.rank == 0 {
		return NoDuration, true
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
