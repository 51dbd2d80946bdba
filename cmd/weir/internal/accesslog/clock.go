package accesslog

import (
	"strings"
	"time"
)

// The range of valid years. Within it the difference of two times fits a time.Duration.
const (
	minYear = 1900
	maxYear = 2099
)

const (
	stampLen = len("17/May/2015:10:05:03 +0000")
	dateLen  = len("17/May/2015")
)

// clock parses the time of the common format. Consecutive lines often have the same second and
// nearly always the same day, and comparing bytes is several times cheaper than parsing them.
type clock struct {
	stamp    [stampLen]byte // the last text parsed
	second   int64          // its time, in seconds since the Unix epoch; 0 if there is none
	date     [dateLen]byte  // the last date parsed
	midnight int64          // of that date in UTC, in seconds since the Unix epoch; 0 if there is none
}

// read returns the time of text, which is stampLen bytes long, in seconds since the Unix epoch, and
// reports whether text is valid.
func (c *clock) read(text []byte) (int64, bool) {
	if c.second != 0 && string(text) == string(c.stamp[:]) {
		return c.second, true
	}
	if text[11] != ':' || text[20] != ' ' || !c.readDate(text[:dateLen]) {
		return 0, false
	}
	second, valid := timeOfDay(text[12:20])
	offset, known := zoneOffset(text[21:])
	if !valid || !known {
		return 0, false
	}
	copy(c.stamp[:], text)
	c.second = c.midnight + second - offset
	return c.second, true
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

// midnightOf returns the midnight, in UTC, of a date in the range of valid years.
func midnightOf(year, month, day int) (second int64, ok bool) {
	t := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	exists := t.Day() == day && t.Month() == time.Month(month) // 31 April would be 1 May
	return t.Unix(), exists && year >= minYear && year <= maxYear
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
