// Package calendar divides time into hours, days, weeks, months and years as the clocks of a time
// zone show them. Instants are Unix seconds: no zone changes its clocks within a second.
package calendar

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/arith"
)

// Unit is the length of a window and the day that it begins with: one of the constants, and ten
// times the anchor. That is the day of a Week, from 1 for Monday to 7, the day of a Month, or the
// month and day of a Year, 101 to 1231; 0 stands for the first. Where a month is shorter, it is the
// last day.
type Unit int

// The units.
const (
	Hour Unit = iota + 1
	Day
	Week
	Month
	Year

	anchorUnit = 10
)

// units has the name of each, its length and its anchors.
var units = [...]struct {
	name        string
	hours       time.Duration
	first, last int
}{
	Hour: {"hour", 1, 0, 0}, Day: {"day", 24, 0, 0}, Week: {"week", 7 * 24, 1, 7},
	Month: {"month", 31 * 24, 1, 31},
	Year:  {"year", 365 * 24, 101, 1231},
}

// From returns u with an anchor; 0 stands for the first one.
func (u Unit) From(anchor int) Unit {
	if anchor < 0 || anchor > units[Year].last {
		anchor = units[Year].last + 1 // which no unit has
	}
	return u%anchorUnit + anchorUnit*Unit(anchor)
}

// Split returns u without its anchor, and that.
func (u Unit) Split() (unit Unit, anchor int) { return u % anchorUnit, int(u / anchorUnit) }

// known reports whether u is one of the units, with an anchor or not.
func (u Unit) known() bool { return u%anchorUnit >= Hour && u%anchorUnit <= Year }

// String returns the name, and the anchor if that is not the first one: "month", "month:17".
func (u Unit) String() string {
	unit, anchor := u.Split()
	switch {
	case !u.known():
		return fmt.Sprintf("unit %d", int(u))
	case anchor == 0 || anchor == units[unit].first:
		return units[unit].name
	}
	return fmt.Sprintf("%s:%d", units[unit].name, anchor)
}

// Check returns an error if there is no such unit, or if it cannot begin on its anchor.
func (u Unit) Check() error {
	unit, anchor := u.Split()
	if !u.known() {
		return fmt.Errorf("%v: a calendar has hour, day, week, month and year", u)
	}
	switch of := units[unit]; {
	case anchor == 0:
	case of.last == 0:
		return fmt.Errorf("%v: one %s has no anchor", u, of.name)
	case anchor < of.first || anchor > of.last || unit == Year && !isDate(anchor):
		return fmt.Errorf("%v: the anchor of one %s is from %d to %d", u, of.name, of.first, of.last)
	}
	return nil
}

// isDate reports whether a leap year has this day.
func isDate(monthAndDay int) bool {
	month, day := time.Month(monthAndDay/100), monthAndDay%100
	return day >= 1 && day <= daysIn(2000, month)
}

// ParseUnit is the inverse of [Unit.String].
func ParseUnit(text string) (Unit, error) {
	name, anchor, anchored := strings.Cut(text, ":")
	for u := Hour; u <= Year; u++ {
		if units[u].name != name {
			continue
		}
		if anchored {
			n, err := strconv.Atoi(anchor)
			if err != nil || n == 0 {
				return 0, fmt.Errorf("%q: the anchor is no number from 1", text)
			}
			u = u.From(n)
		}
		return u, u.Check()
	}
	return 0, fmt.Errorf("%q: a calendar has hour, day, week, month and year", text)
}

// Length returns how long windows are: an hour, or 1, 7, 31 or 365 days. Some are shorter, and
// where there is a leap day or clocks are set back one is longer.
func (u Unit) Length() time.Duration {
	unit, _ := u.Split()
	return units[unit].hours * time.Hour
}

// Calendar is a division of time. Its windows follow each other without a gap.
type Calendar struct {
	unit   Unit
	anchor int // 0 for an Hour and a Day
	zone   *time.Location
}

// New returns the division by a unit in a zone; nil is UTC. It fails as [Unit.Check] does.
func New(u Unit, zone *time.Location) (Calendar, error) {
	if err := u.Check(); err != nil {
		return Calendar{}, err
	}
	if zone == nil {
		zone = time.UTC
	}
	unit, anchor := u.Split()
	return Calendar{unit, max(anchor, units[unit].first), zone}, nil
}

// Unit returns the unit with its anchor.
func (c Calendar) Unit() Unit { return c.unit.From(c.anchor) }

// String returns the name, such as "month:17@Europe/Berlin". The name of a zone whose clocks are
// never set is followed by its seconds ahead of UTC, "hour@mine+1800": it may be a [time.FixedZone]
// of any name.
func (c Calendar) String() string {
	name := c.Unit().String() + "@" + c.zone.String()
	at := time.Unix(0, 0).In(c.zone)
	if from, to := at.ZoneBounds(); from.IsZero() && to.IsZero() && c.zone.String() != "UTC" {
		name += fmt.Sprintf("%+d", offset(at))
	}
	return name
}

// Parse is the inverse of [Calendar.String]. It fails if the rules of the zone are not found.
func Parse(name string) (Calendar, error) {
	unit, place, _ := strings.Cut(name, "@")
	u, err := ParseUnit(unit)
	if err != nil {
		return Calendar{}, err
	}
	zone, err := time.LoadLocation(place)
	if sign := strings.LastIndexAny(place, "+-"); err != nil && sign >= 0 {
		var ahead int
		ahead, err = strconv.Atoi(place[sign:])
		zone = time.FixedZone(place[:sign], ahead)
	}
	if err != nil || place == "" {
		return Calendar{}, fmt.Errorf("%q: no such time zone: %w", name, err)
	}
	return New(u, zone)
}

// Window returns the window that holds an instant.
func (c Calendar) Window(at int64) (start, end int64) {
	if c.unit == Hour {
		return hour(time.Unix(at, 0).In(c.zone))
	}
	n := c.number(time.Unix(at, 0).In(c.zone))
	for start = c.begin(n); start > at; start = c.begin(n) {
		n--
	}
	for end = c.begin(n + 1); end <= at; end = c.begin(n + 1) { // a zone may leave out a day
		start, n = end, n+1
	}
	return start, end
}

// hour returns the hour of the clock that holds t. If the clock is set to another time by no whole
// number of hours, the hour ends there, and another begins.
func hour(t time.Time) (start, end int64) {
	at, ahead := t.Unix(), offset(t)
	_, into := arith.FloorDiv(at+ahead, 3600)
	start, end = at-into, at-into+3600
	from, to := t.ZoneBounds()
	if !from.IsZero() && (ahead-offset(from.Add(-time.Second)))%3600 != 0 {
		start = max(start, from.Unix())
	}
	if !to.IsZero() && (offset(to)-ahead)%3600 != 0 {
		end = min(end, to.Unix())
	}
	return start, end
}

// offset returns how many seconds the clock of t's zone is ahead of UTC.
func offset(t time.Time) int64 {
	_, seconds := t.Zone()
	return int64(seconds)
}

// number returns the number of a window near t.
func (c Calendar) number(t time.Time) int64 {
	year, month, _ := t.Date()
	switch c.unit {
	case Year:
		return int64(year)
	case Month:
		return int64(year)*12 + int64(month) - 1
	}
	days, _ := arith.FloorDiv(t.Unix()+offset(t), secondsPerDay)
	if c.unit == Day {
		return days
	}
	n, _ := arith.FloorDiv(days-c.monday(), 7)
	return n
}

const secondsPerDay = 24 * 60 * 60

// monday returns the first day of week 0: 1 January 1970 was a Thursday.
func (c Calendar) monday() int64 { return int64(c.anchor) - 4 }

// begin returns when window n begins: when the clock first shows its first day.
func (c Calendar) begin(n int64) int64 {
	switch c.unit {
	case Year:
		return c.midnight(date(n, time.Month(c.anchor/100), c.anchor%100))
	case Month:
		year, month := arith.FloorDiv(n, 12)
		return c.midnight(date(year, time.Month(month+1), c.anchor))
	case Week:
		return c.midnight(n*7 + c.monday())
	}
	return c.midnight(n)
}

// date returns the number of a day since 1 January 1970, or that of the last day of its month.
func date(year int64, month time.Month, day int) int64 {
	at := time.Date(int(year), month, min(day, daysIn(year, month)), 0, 0, 0, 0, time.UTC)
	days, _ := arith.FloorDiv(at.Unix(), secondsPerDay)
	return days
}

func daysIn(year int64, month time.Month) int {
	return time.Date(int(year), month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// midnight returns the instant at which the clock first shows a day, or a later one.
func (c Calendar) midnight(days int64) int64 {
	shows := days * secondsPerDay
	// No zone is more than a day ahead of UTC, so the clock shows an earlier day then.
	for at := time.Unix(shows-secondsPerDay-1, 0).In(c.zone); ; {
		reached := max(at.Unix(), shows-offset(at))
		_, to := at.ZoneBounds()
		if !to.IsZero() && !to.After(at) { // so it is in Go 1.26 on the last day of leap years after 2037
			to = at.Add(24 * time.Hour)
		}
		if to.IsZero() || reached < to.Unix() {
			return reached
		}
		at = to
	}
}
