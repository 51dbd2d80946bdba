// Package calendar divides time into hours, days, weeks, months and years as the clocks of a time
// zone show them. Instants are Unix seconds: no zone changes its clocks within a second.
package calendar

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/bounds"
)

// Unit is the length of a window, and the day and the time at which it begins: one of the
// constants, 10 times the anchor, and 100,000 times the minutes since midnight. The anchor is the
// day of a Week, from 1 for Monday to 7, the day of a Month, or the month and day of a Year, 101 to
// 1231; 0 stands for the first. Where a month is shorter, it is the last day.
type Unit int

// The units.
const (
	Hour Unit = iota + 1
	Day
	Week
	Month
	Year

	anchorUnit = 10
	minuteUnit = 100_000

	minutesPerDay = 24 * 60
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
	return u%anchorUnit + anchorUnit*Unit(anchor) + u/minuteUnit*minuteUnit
}

// At returns u with a time of day.
func (u Unit) At(clock time.Duration) Unit {
	minutes := clock / time.Minute
	if clock < 0 || clock%time.Minute != 0 || minutes > minutesPerDay {
		minutes = minutesPerDay // which no day has
	}
	return u%minuteUnit + minuteUnit*Unit(minutes)
}

// Split returns u without its anchor and its time of day, and these.
func (u Unit) Split() (unit Unit, anchor int, clock time.Duration) {
	return u % anchorUnit, int(u % minuteUnit / anchorUnit), time.Duration(u/minuteUnit) * time.Minute
}

// known reports whether u is one of the units, whatever its anchor and time are.
func (u Unit) known() bool { return u%anchorUnit >= Hour && u%anchorUnit <= Year }

// String returns the name, the anchor if that is not the first one, and the time if that is not
// midnight: "month", "month:17", "day:6h", "month:17:6h30m".
func (u Unit) String() string {
	if !u.known() {
		return fmt.Sprintf("unit %d", int(u))
	}
	unit, anchor, clock := u.Split()
	text := units[unit].name
	if anchor != 0 && anchor != units[unit].first {
		text += ":" + strconv.Itoa(anchor)
	}
	if clock != 0 {
		text += ":" + bounds.Text(clock)
	}
	return text
}

// Check returns an error if there is no such unit, or if it cannot begin on its anchor or at its
// time.
func (u Unit) Check() error {
	if !u.known() {
		return fmt.Errorf("%v: a calendar has hour, day, week, month and year", u)
	}
	unit, anchor, clock := u.Split()
	switch of := units[unit]; {
	case clock != 0 && unit == Hour:
		return fmt.Errorf("%v: one hour has no time of day", u)
	case clock >= 24*time.Hour:
		return fmt.Errorf("%v: the time of day is in whole minutes, less than 24h", u)
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
	parts := strings.Split(text, ":")
	for u := Hour; u <= Year; u++ {
		if units[u].name == parts[0] {
			return u.parseBegin(text, parts[1:])
		}
	}
	return 0, fmt.Errorf("%q: a calendar has hour, day, week, month and year", text)
}

// parseBegin returns u with the anchor and the time that parts of text name.
func (u Unit) parseBegin(text string, parts []string) (Unit, error) {
	if len(parts) > 0 {
		if anchor, err := strconv.Atoi(parts[0]); err == nil && anchor != 0 {
			u, parts = u.From(anchor), parts[1:]
		}
	}
	if len(parts) > 0 {
		_, number := strconv.Atoi(parts[0])
		if clock, err := time.ParseDuration(parts[0]); err == nil && number != nil {
			u, parts = u.At(clock), parts[1:]
		}
	}
	if len(parts) > 0 {
		return 0, fmt.Errorf("%q: want an anchor from 1, a time such as 6h or 6h30m, or both, as in "+
			"month:17:6h", text)
	}
	return u, u.Check()
}

// Length returns how long windows are: an hour, or 1, 7, 31 or 365 days. Some are shorter, and
// where there is a leap day or clocks are set back one is longer.
func (u Unit) Length() time.Duration {
	unit, _, _ := u.Split()
	return units[unit].hours * time.Hour
}

// Calendar is a division of time. Its windows follow each other without a gap.
type Calendar struct {
	unit   Unit
	anchor int // 0 for an Hour and a Day
	clock  time.Duration
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
	unit, anchor, clock := u.Split()
	return Calendar{unit, max(anchor, units[unit].first), clock, zone}, nil
}

// Unit returns the unit with its anchor and its time.
func (c Calendar) Unit() Unit { return c.unit.From(c.anchor).At(c.clock) }

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

// begin returns when window n begins: when the clock first shows the time on its first day.
func (c Calendar) begin(n int64) int64 {
	switch c.unit {
	case Year:
		return c.first(date(n, time.Month(c.anchor/100), c.anchor%100))
	case Month:
		year, month := arith.FloorDiv(n, 12)
		return c.first(date(year, time.Month(month+1), c.anchor))
	case Week:
		return c.first(n*7 + c.monday())
	}
	return c.first(n)
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

// first returns the instant at which the clock first shows c's time on a day, or a later one.
func (c Calendar) first(days int64) int64 {
	shows := days*secondsPerDay + int64(c.clock/time.Second)
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
