package accesslog

import (
	"math"
	"strings"
	"time"
)

// The range of valid years. Within it the difference of two times fits a time.Duration.
const (
	minYear = 1900
	maxYear = 2099
)

const (
	stampLen  = len("17/May/2015:10:05:03 +0000")
	minuteLen = len("17/May/2015:10:05:")
)

// clock parses the time of the common format. Consecutive lines often have the same second or at
// least the same minute, and comparing bytes is several times cheaper than parsing them.
type clock struct {
	stamp  [stampLen]byte // the last text parsed
	second int64          // its time, in seconds since the Unix epoch
	ok     bool           // stamp and second are valid
}

// read returns the time of text, which is stampLen bytes long, in seconds since the Unix epoch, and
// reports whether text is valid.
func (c *clock) read(text []byte) (int64, bool) {
	if c.ok && string(text) == string(c.stamp[:]) {
		return c.second, true
	}
	var s int64
	if c.ok && string(text[:minuteLen]) == string(c.stamp[:minuteLen]) &&
		string(text[minuteLen+2:]) == string(c.stamp[minuteLen+2:]) {
		was, now := digits(c.stamp[minuteLen:minuteLen+2]), digits(text[minuteLen:minuteLen+2])
		if now < 0 || now > 60 {
			return 0, false
		}
		s = c.second + int64(now-was)
	} else {
		var ok bool
		if s, ok = parseStamp(text); !ok {
			return 0, false
		}
	}
	copy(c.stamp[:], text)
	c.second, c.ok = s, true
	return s, true
}

// parseStamp parses "02/Jan/2006:15:04:05 -0700". Second 60, a leap second, equals second 0 of the
// next minute.
func parseStamp(t []byte) (int64, bool) {
	if t[2] != '/' || t[6] != '/' || t[11] != ':' || t[14] != ':' || t[17] != ':' || t[20] != ' ' {
		return 0, false
	}
	day, month := digits(t[0:2]), month(t[3:6])
	century, year := digits(t[7:9]), digits(t[9:11])
	hour, minute, second := digits(t[12:14]), digits(t[15:17]), digits(t[18:20])
	zoneHour, zoneMinute := digits(t[22:24]), digits(t[24:26])
	if century < 0 || year < 0 || month < 1 || day < 1 || hour < 0 || hour > 23 || minute < 0 ||
		minute > 59 ||
		second < 0 || second > 60 || zoneHour < 0 || zoneHour > 23 || zoneMinute < 0 || zoneMinute > 59 {
		return 0, false
	}
	year += century * 100
	midnight := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if year < minYear || year > maxYear || midnight.Day() != day { // 31 April would be 1 May
		return 0, false
	}
	zone := int64(zoneHour*3600 + zoneMinute*60)
	switch t[21] {
	case '-':
		zone = -zone
	case '+':
	default:
		return 0, false
	}
	return midnight.Unix() + int64(hour*3600+minute*60+second) - zone, true
}

// digits returns the value of two digits, or math.MinInt if they are not digits.
func digits(two []byte) int {
	hi, lo := two[0]-'0', two[1]-'0'
	if hi > 9 || lo > 9 {
		return math.MinInt
	}
	return int(hi)*10 + int(lo)
}

// month returns 1 to 12 for the first three letters of an English month, and 0 otherwise.
func month(name []byte) int {
	const names = "JanFebMarAprMayJunJulAugSepOctNovDec"
	if i := strings.Index(names, string(name)); i%3 == 0 {
		return i/3 + 1
	}
	return 0
}
