package rules

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/core/calendar"
)

// Calendar is the calendar in whose windows a rule counts: hours, days, weeks, months or years of a
// time zone. The zero value is none.
type Calendar struct {
	Unit weir.CalendarUnit
	Zone string // of the IANA database, such as "Europe/Berlin"
}

// calendarUnits are those of the units that a calendar has.
var calendarUnits = map[Unit]weir.CalendarUnit{
	Hour: weir.Hour, Day: weir.Day, Week: weir.Week, Month: weir.Month, Year: weir.Year,
}

// String returns the unit, with its first day and its time, and the zone, such as
// "month:17@Europe/Berlin" or "day:6h@UTC", or nothing for the zero value.
func (c Calendar) String() string {
	if c == (Calendar{}) {
		return ""
	}
	return c.Unit.String() + "@" + c.Zone
}

func (c Calendar) location() (*time.Location, error) {
	zone, err := time.LoadLocation(c.Zone)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return zone, nil
}

// windows returns how c, which is not zero, divides time. Zones are read from files.
func (c Calendar) windows() (of calendar.Calendar, err error) {
	zone, err := c.location()
	if err != nil {
		return of, err
	}
	return calendar.New(calendar.Unit(c.Unit), zone)
}

// yaml returns c as a file has it.
func (c Calendar) yaml() map[string]any {
	unit, anchor, clock := calendar.Unit(c.Unit).Split()
	m := map[string]any{"zone": c.Zone, "unit": unit.String()}
	if anchor > 0 {
		m["anchor"] = anchor
	}
	if clock > 0 {
		m["time"] = bounds.Text(clock)
	}
	return m
}

var calendarKeys = []string{"unit", "zone", "anchor", "time"}

// calendar reads the calendar of a rule, whose unit is that of its rate_limit.
func (d *decoder) calendar(limit *Limit, f *field) {
	switch {
	case f == nil:
		return
	case limit.Algorithm == InFlight:
		d.errorf(d.at(f.key), "a calendar has hour, day, week, month and year; the unit is %s",
			inFlightUnit)
		return
	}
	at, c := d.at(f.key), Calendar{Unit: calendarUnits[limit.Unit]}
	in := d.mapping(f.value, "calendar", calendarKeys)
	if zone := in.get("zone"); zone != nil {
		c.Zone, _ = d.str(zone)
		at = d.at(zone.value)
	}
	unit := in.get("unit")
	if name, ok := d.str(unit); unit != nil && ok && !limit.Unlimited && name != limit.Unit.String() {
		d.errorf(d.at(unit.value), "the unit of the calendar is '%s', and that of the rate_limit %s",
			name, limit.Unit)
	}
	c.Unit = d.begins(c.Unit, in)
	_, unknown := c.location()
	switch {
	case limit.Unlimited || !limit.Unit.valid(): // as is reported
	case calendarUnits[limit.Unit] == 0:
		d.errorf(d.at(f.key), "a calendar has hour, day, week, month and year; the unit is %s",
			limit.Unit)
	case limit.Multiplier > 1:
		d.errorf(d.at(f.key), "a calendar has no unit_multiplier")
	case limit.Algorithm != FixedWindow:
		d.errorf(d.at(f.key), "calendar applies to fixed_window only; the algorithm is %s",
			limit.Algorithm)
	case c.Zone == "" || c.Zone == "Local":
		d.errorf(at, "a calendar needs a zone, such as Europe/Berlin")
	case unknown != nil:
		d.errorf(at, "unknown time zone '%s'", c.Zone)
	default:
		limit.Calendar = c
	}
}

// begins returns the unit of a calendar with the day and the time at which its windows begin. 0 is
// no unit, as is reported.
func (d *decoder) begins(unit weir.CalendarUnit, in fields) weir.CalendarUnit {
	check := func(f *field, valid bool, want string, begins weir.CalendarUnit) {
		switch bad := begins.Check(); {
		case !valid:
			d.mistyped(f, want)
		case bad != nil && unit != 0:
			d.errorf(d.at(f.value), "%v", bad)
		}
	}
	begins := unit
	if anchor := in.get("anchor"); anchor != nil {
		n, err := strconv.Atoi(anchor.value.Value) // not as YAML does: 0406 is 6 April
		check(anchor, err == nil && n > 0, "a day, such as 17", unit.From(n))
		begins = begins.From(n)
	}
	if clock := in.get("time"); clock != nil {
		text, _ := d.str(clock)
		t, err := time.ParseDuration(text)
		check(clock, err == nil, "a time of day, such as 6h or 6h30m", unit.At(t))
		begins = begins.At(t)
	}
	return begins
}
