package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/rules"
)

// monthly is a file whose first rule has the given settings in its metadata.
func monthly(own string) string {
	return `
domain: d
descriptors:
  - key: user
    rate_limit: {unit: month, requests_per_unit: 3}
    metadata: {weir: ` + own + `}
  - {key: plain, rate_limit: {unit: month, requests_per_unit: 3}}
`
}

const billing = "{calendar: {unit: month, zone: Europe/Berlin, anchor: 17}}"

// A rule with a calendar counts in its months; upstream's month stays 30 days.
func TestCalendarOfARule(t *testing.T) {
	w := newWorld(t, monthly(billing), rules.Config{})
	w.now = time.Date(2026, 7, 16, 21, 59, 50, 0, time.UTC) // ten seconds before midnight in Berlin
	for range 3 {
		assert.True(t, w.ask(w.hit("user=a")).Allowed())
	}
	resp := w.ask(w.hit("user=a"))
	assert.False(t, resp.Allowed())
	assert.Equal(t, 10*time.Second, resp.Statuses[0].Reset)
	assert.Equal(t, 10*time.Second, w.ask(w.hits(4, "user=a")).Statuses[0].Reset, "it can never pass")
	w.now = w.now.Add(10 * time.Second)
	resp = w.ask(w.hit("user=a"))
	assert.True(t, resp.Allowed())
	assert.Equal(t, 31*24*time.Hour, resp.Statuses[0].Reset)
	assert.NotEqual(t, resp.Statuses[0].Reset, w.ask(w.hit("plain=a")).Statuses[0].Reset)

	ok, err := w.engine.Reset(t.Context(), "d", entries(t, "user=a"))
	require.NoError(t, err)
	assert.True(t, ok)
	assert.EqualValues(t, 2, w.ask(w.hit("user=a")).Statuses[0].Remaining)
}

// A day of a rule may begin at another time than midnight, in its zone.
func TestCalendarOfARuleFromAnotherHour(t *testing.T) {
	w := newWorld(t, in("{key: user, rate_limit: {unit: day, requests_per_unit: 1}, "+
		"metadata: {weir: {calendar: {zone: Europe/Berlin, time: 6h}}}}"), rules.Config{})
	// A second before six, on the day on which the clock is set.
	w.now = time.Date(2026, 3, 29, 3, 59, 59, 0, time.UTC)
	assert.True(t, w.ask(w.hit("user=a")).Allowed())
	resp := w.ask(w.hit("user=a"))
	assert.False(t, resp.Allowed())
	assert.Equal(t, time.Second, resp.Statuses[0].Reset)
	w.now = w.now.Add(time.Second)
	resp = w.ask(w.hit("user=a"))
	assert.True(t, resp.Allowed())
	assert.Equal(t, 24*time.Hour, resp.Statuses[0].Reset)
}

func TestCalendarIsReadAndWritten(t *testing.T) {
	for own, want := range map[string]string{
		billing:                                                     "3 per month:17@Europe/Berlin",
		"{calendar: {zone: Asia/Kathmandu}}":                        "3 per month@Asia/Kathmandu",
		"{calendar: {zone: UTC, anchor: 1}}":                        "3 per month@UTC",
		"{calendar: {zone: UTC, unit: month}}":                      "3 per month@UTC",
		"{calendar: {zone: UTC, time: 6h}}":                         "3 per month:6h@UTC",
		"{calendar: {zone: UTC, time: 0h}}":                         "3 per month@UTC",
		"{calendar: {zone: Europe/Berlin, time: 390m, anchor: 17}}": "3 per month:17:6h30m@Europe/Berlin",
		"{algorithm: fixed_window, calendar: {zone: UTC, anchor: 31}, costs: afterwards}": "3 per month:31@UTC, costs afterwards",
	} {
		set := load(t, monthly(own))
		rule := set.Match("d", entries(t, "user=a"))
		assert.Equal(t, want, rule.Limit.String())
		assert.Contains(t, rule.String(), want)
		assert.Equal(t, rule.Limit, rewritten(t, set).Match("d", entries(t, "user=a")).Limit)
	}
	year := load(t, strings.ReplaceAll(monthly("{calendar: {zone: UTC, anchor: 0406}}"), "month",
		"year"))
	assert.Equal(t, rules.Calendar{Unit: weir.Year.From(406), Zone: "UTC"},
		year.Match("d", entries(t, "user=a")).Limit.Calendar, "an anchor is decimal")
	for _, from := range []string{"{}", strings.Replace(billing, "anchor", "time: 6h, anchor", 1)} {
		changes := load(t, monthly(from)).Diff(load(t, monthly(billing)))
		require.Len(t, changes, 1)
		assert.Equal(t, "counters start at zero", changes[0].Effect)
	}
}

func TestWrongCalendars(t *testing.T) {
	for _, row := range []struct{ unit, own, want string }{
		{"month", "{calendar: {}}", "a calendar needs a zone"},
		{"month", "{calendar: month}", "want a map"},
		{"month", "{calendar: {zone: Local}}", "a calendar needs a zone"},
		{"month", "{calendar: {zone: Europe/Nowhere}}", "unknown time zone 'Europe/Nowhere'"},
		{"month", "{calendar: {zone: UTC, unit: day}}",
			"the unit of the calendar is 'day', and that of the rate_limit month"},
		{"month", "{calendar: {zone: UTC, anchor: 32}}", "from 1 to 31"},
		{"month", "{calendar: {zone: UTC, anchor: 0}}", "anchor"},
		{"month", "{calendar: {zone: UTC, anchor: first}}", "anchor"},
		{"month", "{calendar: {zone: UTC, day: 17}}", "unknown key 'day'"},
		{"month", "{calendar: {zone: UTC, time: 24h}}", "month:24h: the time of day is in whole minutes"},
		{"month", "{calendar: {zone: UTC, time: 1h1s}}", "the time of day is in whole minutes, less than 24h"},
		{"month", "{calendar: {zone: UTC, time: -1h}}", "the time of day is in whole minutes, less than 24h"},
		{"month", "{calendar: {zone: UTC, time: 6}}", "want a time of day, such as 6h or 6h30m"},
		{"month", "{calendar: {zone: UTC, time: '6:00'}}", "want a time of day, such as 6h or 6h30m"},
		{"month", "{calendar: {zone: UTC, time: [6h]}}", "want a string"},
		{"hour", "{calendar: {zone: UTC, time: 6h}}", "one hour has no time of day"},
		{"month", "{algorithm: sliding_log, calendar: {zone: UTC}}", "calendar applies to fixed_window only"},
		{"minute", "{calendar: {zone: UTC}}", "the unit is minute"},
		{"month, unit_multiplier: 2", "{calendar: {zone: UTC}}", "a calendar has no unit_multiplier"},
	} {
		_, err := rules.Load(files("r.yaml",
			strings.ReplaceAll(monthly(row.own), "unit: month", "unit: "+row.unit)))
		assert.ErrorContains(t, err, row.want, row.own)
	}
}
