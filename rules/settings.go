package rules

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/algorithm"
)

// settingsParser reads weir's own settings of a limit.
type settingsParser struct {
	*reader
	limit *Limit
}

// read reads the settings but the calendar, which only a rule may have.
func (p *settingsParser) read(in fields) {
	p.algorithm(in.get("algorithm"))
	p.costs(in.get("costs"))
	p.burst(in.get("burst"))
}

// calendar reads the calendar of a rule, whose unit is that of its rate_limit.
func (p *settingsParser) calendar(f *field) {
	switch {
	case f == nil:
		return
	case p.limit.Algorithm == InFlight:
		p.errorf(p.at(f.key), "a calendar has hour, day, week, month and year; the unit is %s",
			inFlightUnit)
		return
	}
	at, c := p.at(f.key), Calendar{Unit: calendarUnits[p.limit.Unit]}
	in := p.mapping(f.value, "calendar", calendarKeys)
	if zone := in.get("zone"); zone != nil {
		c.Zone, _ = p.str(zone)
		at = p.at(zone.value)
	}
	unit := in.get("unit")
	of := p.limit.Unit.String()
	if name, ok := p.str(unit); unit != nil && ok && !p.limit.Unlimited && name != of {
		p.errorf(p.at(unit.value), "the unit of the calendar is '%s', and that of the rate_limit %s",
			name, p.limit.Unit)
	}
	c.Unit = p.begins(c.Unit, in)
	_, unknown := c.location()
	switch {
	case p.limit.Unlimited || !p.limit.Unit.valid(): // as is reported
	case calendarUnits[p.limit.Unit] == 0:
		p.errorf(p.at(f.key), "a calendar has hour, day, week, month and year; the unit is %s",
			p.limit.Unit)
	case p.limit.Multiplier > 1:
		p.errorf(p.at(f.key), "a calendar has no unit_multiplier")
	case p.limit.Algorithm != FixedWindow:
		p.errorf(p.at(f.key), "calendar applies to fixed_window only; the algorithm is %s",
			p.limit.Algorithm)
	case c.Zone == "" || c.Zone == "Local":
		p.errorf(at, "a calendar needs a zone, such as Europe/Berlin")
	case unknown != nil:
		p.errorf(at, "unknown time zone '%s'", c.Zone)
	default:
		p.limit.Calendar = c
	}
}

// begins returns the unit of a calendar with the day and the time at which its windows begin. 0 is
// no unit, as is reported.
func (p *settingsParser) begins(unit weir.CalendarUnit, in fields) weir.CalendarUnit {
	check := func(f *field, valid bool, want string, begins weir.CalendarUnit) {
		switch bad := begins.Check(); {
		case !valid:
			p.mistyped(f, want)
		case bad != nil && unit != 0:
			p.errorf(p.at(f.value), "%v", bad)
		}
	}
	begins := unit
	if anchor := in.get("anchor"); anchor != nil {
		n, err := strconv.Atoi(anchor.value.Value) // not as YAML does: 0406 is 6 April
		check(anchor, err == nil && n > 0, "a day, such as 17", unit.From(n))
		begins = begins.From(n)
	}
	if clock := in.get("time"); clock != nil {
		text, _ := p.str(clock)
		t, err := time.ParseDuration(text)
		check(clock, err == nil, "a time of day, such as 6h or 6h30m", unit.At(t))
		begins = begins.At(t)
	}
	return begins
}

func (p *settingsParser) algorithm(f *field) {
	name, ok := p.str(f)
	i := slices.Index(algorithmNames, name)
	switch {
	case f == nil || !ok:
	case p.limit.Algorithm == InFlight || name == inFlightUnit:
		p.errorf(p.at(f.key), "the unit %s has no algorithm, and no algorithm is named so", inFlightUnit)
	case i < 0:
		p.errorf(p.at(f.value), "unknown algorithm '%s'%s", name, oneOf(name, algorithmNames))
	default:
		p.limit.Algorithm = Algorithm(i)
	}
}

func (p *settingsParser) costs(f *field) {
	if f == nil {
		return
	}
	name, ok := p.str(f)
	if ok && name != costsAfterwards {
		p.errorf(p.at(f.value),
			"unknown costs '%s'; want %s, for hits that are reported when a request ends "+
				"and count in full, even over the limit; or leave the key out", name, costsAfterwards)
	}
	if p.limit.Algorithm == InFlight {
		p.errorf(p.at(f.key), "costs do not apply to the unit %s", inFlightUnit)
		return
	}
	p.limit.Afterwards = ok
}

func (p *settingsParser) burst(f *field) {
	n, ok := p.count(f, math.MaxUint32)
	switch {
	case f == nil || !ok:
	case n == 0:
		p.errorf(p.at(f.value), "burst must be at least 1")
	case p.limit.Algorithm != TokenBucket:
		p.errorf(p.at(f.key), "burst applies to token_bucket only; the algorithm is %s",
			p.limit.Algorithm)
	case !refills(p.limit, n):
		p.errorf(p.at(f.value), "a burst of %d takes more than 146 years to refill", n)
	default:
		p.limit.Burst = n
	}
}

var calendarKeys = []string{"unit", "zone", "anchor", "time"}

// calendarUnits are those of the units that a calendar has.
var calendarUnits = map[Unit]weir.CalendarUnit{
	Hour: weir.Hour, Day: weir.Day, Week: weir.Week, Month: weir.Month, Year: weir.Year,
}

// costsAfterwards is the value of the key costs.
const costsAfterwards = "afterwards"

// refills reports whether a weir.TokenBucket of that size refills soon enough.
func refills(limit *Limit, size uint64) bool {
	p := algorithm.Params{Scale: limit.Period().Milliseconds(), Limit: int64(limit.Requests)}
	_, ok := (&algorithm.TokenBucket{Burst: int64(size)}).Prepare(p)
	return ok
}
