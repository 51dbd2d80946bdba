package rules

import (
	"fmt"
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
