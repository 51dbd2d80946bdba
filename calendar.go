package weir

import (
	"time"

	"github.com/weirgo/weir/internal/core/calendar"
	"github.com/weirgo/weir/internal/core/windows"
)

// CalendarUnit is the length of the windows of a [Calendar], and the day and the time of day at
// which they begin.
type CalendarUnit int

// The units. A Week begins on Monday, as in ISO 8601, a Month on its first day, a Year on 1
// January, and all of them at midnight; see [CalendarUnit.From] and [CalendarUnit.At].
const (
	Hour  = CalendarUnit(calendar.Hour)
	Day   = CalendarUnit(calendar.Day)
	Week  = CalendarUnit(calendar.Week)
	Month = CalendarUnit(calendar.Month)
	Year  = CalendarUnit(calendar.Year)
)

// From returns u with windows that begin on another day: of a Week 1 for Monday to 7, of a Month 1
// to 31, of a Year the month and the day, 101 to 1231. In a shorter month the window begins on the
// last day. 0 stands for the first day. Check fails for a day that u does not have.
func (u CalendarUnit) From(day int) CalendarUnit { return CalendarUnit(calendar.Unit(u).From(day)) }

// At returns u with windows that begin at another time of day than midnight, such as 6*time.Hour:
// Day.At(6*time.Hour) is from 6:00 to 6:00 on the next day. Check fails for an Hour, and for a time
// that is not in whole minutes from 0 to 23h59m.
func (u CalendarUnit) At(clock time.Duration) CalendarUnit {
	return CalendarUnit(calendar.Unit(u).At(clock))
}

// Check returns an error if there is no such unit, or if it cannot begin on its day or at its time.
func (u CalendarUnit) Check() error { return calendar.Unit(u).Check() }

// String returns the name, such as "month", "month:17" for Month.From(17), or "day:6h" for
// Day.At(6*time.Hour).
func (u CalendarUnit) String() string { return calendar.Unit(u).String() }

// Calendar is the fixed window counter in windows of the calendar. Make one with
// [Limiter.Calendar].
type Calendar struct{ slotStrategy }

// Calendar returns the fixed window counter as a Strategy whose windows are the hours, days, weeks,
// months or years of a time zone: in each exactly Limit is admitted. Windows follow each other
// without a gap, and ExpiresAt is when the window ends: a day on which clocks are set may have 23
// or 25 hours. The Duration of a request is ignored. A nil zone is UTC. Calendar panics if
// unit.Check fails. Windows end by the clock of the Limiter: after a suspend, or if the wall clock
// was wrong when the Limiter was made, that is not the wall clock's, unless Config.Now is time.Now.
//
// A day begins when the clock first shows its time on that day or a later one: at 1:00 if the clock
// is set from 0:00 to 1:00, and at the first of two midnights. An hour in which the clock is set by
// a part of an hour ends there.
//
// Buckets, and the cost of a decision, are as in [Limiter.FixedWindow]. Calendars of one Limiter
// count together if they have the same unit, first day, time and name of the zone. If a zone has
// other rules than in an earlier call, the new ones hold from the next window on.
func (l *Limiter) Calendar(unit CalendarUnit, zone *time.Location) *Calendar {
	of, err := calendar.New(calendar.Unit(unit), zone)
	if err != nil {
		panic("weir: " + err.Error())
	}
	ws, err := l.named(windows.SeriesName{Calendar: of.String()}, &of)
	if err != nil {
		panic("weir: " + err.Error())
	}
	return (&Calendar{newWindowStrategy(l, ws)}).described()
}

// Inspect returns the Bucket of a key in the current window, as [Limiter.Inspect] does.
func (c *Calendar) Inspect(key string) (Bucket, error) {
	p, err := c.parse(&Request{Key: key})
	if err != nil {
		return Bucket{}, err
	}
	at, err := c.in.Lock(key, p.Scale, noInstant, false, present)
	if err != nil {
		return Bucket{}, err
	}
	return c.l.inspect(&at, p.Scale), nil
}

// window returns about how long the windows are: an hour, or 1, 7, 31 or 365 days.
func (c *Calendar) window() time.Duration { return c.series.Calendar.Load().Unit().Length() }

// described sets the About of c.
func (c *Calendar) described() *Calendar {
	c.describe(c, About{
		Name: "calendar", Lapses: LapsesAtOnce, Window: c.window(),
		Period: c.series.Calendar.Load().String(),
	})
	return c
}

// Limit returns the limit of n in each window. Its Numbers have about how long that is.
func (c *Calendar) Limit(n uint64) *Limit { return MustLimit(c, n, c.window()) }

func (c *Calendar) check(m *Limit) error {
	m.d = c.window()
	return nil
}

func (c *Calendar) bind(m *Limit) (Counter, error) {
	name := m.seriesName()
	name.Calendar = c.series.SeriesName.Calendar
	s, err := newLimitedWindows(c.l, name, c.series.Calendar.Load(), m.numbers())
	if err != nil {
		return nil, err
	}
	return (&Calendar{s}).described(), err
}
