package calendar

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
)

// zones are those whose clocks do what others do not: by half an hour, at midnight, by a quarter of
// an hour from UTC, or with a day left out.
var zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu",
	"America/Sao_Paulo",
	"Pacific/Apia", "America/St_Johns", "Asia/Tehran", "Africa/Casablanca",
}

func location(t testing.TB, name string) *time.Location {
	zone, err := time.LoadLocation(name)
	require.NoError(t, err)
	return zone
}

func of(t testing.TB, unit Unit, zone string) Calendar {
	c, err := New(unit, location(t, zone))
	require.NoError(t, err)
	return c
}

// dawn returns when the clock first shows a time on a day, or a later one, by asking for each of
// its minutes which instant shows it.
func dawn(year int, month time.Month, day int, clock time.Duration, zone *time.Location) int64 {
	for minute := int(clock / time.Minute); ; minute++ {
		at := time.Date(year, month, day, 0, minute, 0, 0, zone)
		want := time.Date(year, month, day, 0, minute, 0, 0, time.UTC)
		if at.Format(time.DateTime) != want.Format(time.DateTime) {
			continue // no clock shows that minute
		}
		// of two such the first
		for _, back := range []time.Duration{2 * time.Hour, time.Hour, 30 * time.Minute} {
			if earlier := at.Add(-back); earlier.Format(time.DateTime) == at.Format(time.DateTime) {
				return earlier.Unix()
			}
		}
		return at.Unix()
	}
}

// begins returns all instants at which a window of c begins in some years, by dawn.
func begins(c Calendar, from, to int) (all []int64) {
	if c.unit == Hour {
		return hours(c.zone, from, to)
	}
	add := func(year int, month time.Month, day int) {
		if at := dawn(year, month, day, c.clock, c.zone); len(all) == 0 || at > all[len(all)-1] {
			all = append(all, at)
		}
	}
	for year := from; year <= to; year++ {
		switch c.unit {
		case Year:
			month := time.Month(c.anchor / 100)
			add(year, month, min(c.anchor%100, time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()))
		case Month:
			for month := time.January; month <= time.December; month++ {
				add(year, month, min(c.anchor, time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()))
			}
		default:
			for day := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() == year; day = day.AddDate(0,
				0, 1) {
				if c.unit == Day || int(day.Weekday()+6)%7 == c.anchor-1 {
					add(year, day.Month(), day.Day())
				}
			}
		}
	}
	return all
}

// hours returns all instants at which an hour of a clock begins in some years: where it shows a
// full one, or was set by a part of one, by looking at it in each minute.
func hours(zone *time.Location, from, to int) (all []int64) {
	ahead := func(at int64) int64 {
		local := time.Unix(at, 0).In(zone)
		return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(),
			local.Second(), 0,
			time.UTC).Unix() - at
	}
	at := time.Date(from, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	end := time.Date(to, 12, 31, 0, 0, 0, 0, time.UTC).Unix()
	for was, next := ahead(at-60), ahead(at); at < end; {
		now := next
		next = ahead(at + 3600)
		for range 60 {
			if next != now || was != now { // the clock is set in this hour
				now = ahead(at)
			}
			if (at+now)%3600 == 0 || (now-was)%3600 != 0 {
				all = append(all, at)
			}
			was = now
			at += 60
		}
	}
	return all
}

// Windows begin where the clock first shows their first day or hour, follow each other without a
// gap or an overlap, and the window of each instant in one is that one.
func TestWindowsAreThoseOfTheClock(t *testing.T) {
	from, to := slow.N(2010, 1996, 1970), slow.N(2012, 2046, 2100)
	for _, zone := range zones {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			for _, u := range []Unit{
				Hour, Day, Week, Week.From(7), Month, Month.From(17), Month.From(31), Year,
				Year.From(229), Year.From(406),
				Day.At(6 * time.Hour), Day.At(150 * time.Minute), Day.At(time.Minute),
				Day.At(24*time.Hour - time.Minute), Week.From(7).At(2 * time.Hour), Month.At(30 * time.Minute),
				Month.From(31).At(6 * time.Hour), Year.From(229).At(23 * time.Hour),
			} {
				c := of(t, u, zone)
				at := begins(c, from, to)
				for i := 1; i < len(at); i++ {
					start, end := at[i-1], at[i]
					require.LessOrEqual(t, time.Duration(end-start)*time.Second,
						u.Length()+min(u.Length()-time.Hour, 25*time.Hour))
					for _, in := range []int64{start, (start + end) / 2, end - 1} {
						s, e := c.Window(in)
						if s != start || e != end {
							show := func(at int64) string { return time.Unix(at, 0).In(c.zone).Format(time.RFC3339) }
							t.Fatalf("%v: the window of %v is %v to %v, want %v to %v", c, show(in), show(s), show(e),
								show(start), show(end))
						}
					}
				}
			}
		})
	}
}

func TestDaysOnWhichClocksAreSet(t *testing.T) {
	for _, c := range []struct {
		zone, day string
		hours     float64
	}{
		{"Europe/Berlin", "2026-03-29", 23},
		{"Europe/Berlin", "2026-10-25", 25},
		{"Europe/Berlin", "2026-10-26", 24},
		{"Australia/Lord_Howe", "2026-10-04", 23.5},
		{"Australia/Lord_Howe", "2026-04-05", 24.5},
		{"America/Sao_Paulo", "2018-11-04", 23}, // from 0:00 to 1:00: there is no midnight
		{"America/Sao_Paulo", "2018-02-17", 25}, // from 0:00 back to 23:00
		{"Pacific/Apia", "2011-12-29", 24},      // the 30th was left out
		{"Pacific/Apia", "2011-12-31", 24},
		{"America/St_Johns", "2006-10-28", 24}, // 0:01 back to 23:01: midnight is the first one
		{"America/St_Johns", "2006-10-29", 25},
	} {
		t.Run(c.zone+" "+c.day, func(t *testing.T) {
			at, err := time.ParseInLocation(time.DateOnly, c.day, location(t, c.zone))
			require.NoError(t, err)
			start, end := of(t, Day, c.zone).Window(at.Add(12 * time.Hour).Unix())
			assert.Equal(t, c.hours, float64(end-start)/3600)
		})
	}
}

// A day from 6:00, and one from a time that the clock leaves out or shows twice.
func TestDaysFromAnotherHour(t *testing.T) {
	berlin := location(t, "Europe/Berlin")
	for _, c := range []struct {
		clock      time.Duration
		at         string // in Berlin
		start, end string
	}{
		{6 * time.Hour, "2026-07-01 05:59:59", "2026-06-30 06:00:00 +0200", "2026-07-01 06:00:00 +0200"},
		{6 * time.Hour, "2026-07-01 06:00:00", "2026-07-01 06:00:00 +0200", "2026-07-02 06:00:00 +0200"},
		{6 * time.Hour, "2026-03-29 05:00:00", "2026-03-28 06:00:00 +0100", "2026-03-29 06:00:00 +0200"},
		{6 * time.Hour, "2026-10-25 05:00:00", "2026-10-24 06:00:00 +0200", "2026-10-25 06:00:00 +0100"},
		{150 * time.Minute, "2026-03-29 12:00:00", "2026-03-29 03:00:00 +0200", "2026-03-30 02:30:00 +0200"},
		{150 * time.Minute, "2026-10-25 12:00:00", "2026-10-25 02:30:00 +0200", "2026-10-26 02:30:00 +0100"},
	} {
		at, err := time.ParseInLocation(time.DateTime, c.at, berlin)
		require.NoError(t, err)
		start, end := of(t, Day.At(c.clock), "Europe/Berlin").Window(at.Unix())
		show := func(at int64) string {
			return time.Unix(at, 0).In(berlin).Format("2006-01-02 15:04:05 -0700")
		}
		assert.Equal(t, []string{c.start, c.end}, []string{show(start), show(end)}, "%v at %v", c.clock, c.at)
	}
}

func TestMonthsOfABillingDay(t *testing.T) {
	c := of(t, Month.From(31), "America/New_York")
	at := time.Date(2027, 12, 31, 0, 0, 0, 0, c.zone)
	for _, want := range []string{"2028-01-31", "2028-02-29", "2028-03-31", "2028-04-30",
		"2028-05-31"} {
		_, end := c.Window(at.Unix())
		at = time.Unix(end, 0).In(c.zone)
		assert.Equal(t, want+" 00:00:00", at.Format(time.DateTime))
	}
}

func TestUnitsAndTheirAnchors(t *testing.T) {
	for text, u := range map[string]Unit{
		"hour": Hour, "day": Day, "week": Week, "month": Month, "year": Year, "week:7": Week.From(7),
		"month:17": Month.From(17), "year:229": Year.From(229), "year:1231": Year.From(1231),
		"day:6h": Day.At(6 * time.Hour), "day:30m": Day.At(30 * time.Minute),
		"week:6h30m": Week.At(390 * time.Minute), "month:17:6h": Month.From(17).At(6 * time.Hour),
		"year:1231:23h59m": Year.At(1439 * time.Minute).From(1231),
	} {
		assert.Equal(t, text, u.String())
		assert.NoError(t, u.Check())
		got, err := ParseUnit(text)
		require.NoError(t, err)
		assert.Equal(t, u, got)
	}
	assert.Equal(t, "week", Week.From(1).String(), "the first is no other")
	assert.Equal(t, Month.From(2), Month.From(17).From(2))
	assert.Equal(t, Month, Month.From(17).From(0))
	assert.Equal(t, Month.From(17), Month.From(17).At(time.Hour).At(0))
	for _, u := range []Unit{
		0, 6, -1, -13, Hour.From(1), Day.From(1), Day.From(-1), Week.From(8), Week.From(-1),
		Month.From(32),
		Month.From(-1), Month.From(1 << 30), Year.From(100), Year.From(230), Year.From(1232),
		Year.From(1301),
		Year.From(1), Year.From(431), Hour.At(time.Minute), Day.At(24 * time.Hour), Day.At(-time.Hour),
		Day.At(time.Second), Day.At(1 << 62), Day.From(1).At(time.Hour), Month.From(32).At(time.Hour),
	} {
		assert.Error(t, u.Check(), "%v", u)
		_, err := New(u, time.UTC)
		assert.Error(t, err, "%v", u)
		_, err = ParseUnit(u.String())
		assert.Error(t, err, "%v", u)
	}
	for _, text := range []string{"", "Month", "months", "month:", "month:0", "month:-1", "month:x",
		"month:17:1", "day:1", " day", "day:24h", "day:-1h", "day:6h:7h", "day:6h:1", "month:6h:17", "month:17:",
		"month:17:6h:", "day:6", "day:6h0m1s", "hour:30m", "day:0", "month:+0", "month:17:0"} {
		_, err := ParseUnit(text)
		assert.Error(t, err, "%q", text)
	}
}

func TestNamesOfCalendars(t *testing.T) {
	for name, zone := range map[string]*time.Location{
		"month:17@UTC": nil, "month:17@Europe/Berlin": location(t, "Europe/Berlin"),
		"month:17@Etc/GMT+5-18000": location(t, "Etc/GMT+5"),
		"month:17@mine+1234":       time.FixedZone("mine", 1234),
		"month:17@-60":             time.FixedZone("", -60), "month:17@a@b+0": time.FixedZone("a@b", 0),
		"month:17:6h@UTC": nil, "month:17:6h@Europe/Berlin": location(t, "Europe/Berlin"),
	} {
		u := Month.From(17)
		if strings.Contains(name, "6h") {
			u = u.At(6 * time.Hour)
		}
		c, err := New(u, zone)
		require.NoError(t, err)
		assert.Equal(t, name, c.String())
		again, err := Parse(name)
		require.NoError(t, err, name)
		assert.Equal(t, name, again.String())
		for at := int64(-1e9); at < 4e9; at += 123_456_789 {
			start, end := c.Window(at)
			s, e := again.Window(at)
			require.Equal(t, []int64{start, end}, []int64{s, e})
		}
	}
	for _, name := range []string{"", "month", "month@", "@UTC", "month@Europe/Nowhere", "month@x+",
		"month@x+y",
		"day:2@UTC"} {
		_, err := Parse(name)
		assert.Error(t, err, "%q", name)
	}
}

func ExampleCalendar_Window() {
	berlin, _ := time.LoadLocation("Europe/Berlin")
	c, _ := New(Month.From(17), berlin)
	start, end := c.Window(time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC).Unix())
	fmt.Println(time.Unix(start, 0).UTC(), time.Unix(end, 0).UTC())
	// Output: 2026-10-16 22:00:00 +0000 UTC 2026-11-16 23:00:00 +0000 UTC
}
