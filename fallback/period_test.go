package fallback

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir"
)

// The end of a period, in seconds from now, 100 s after the Unix epoch, for a Duration of 20 s.
func TestEndsOfPeriods(t *testing.T) {
	now := time.Unix(100, 0)
	const anyhow, atOnce, window, windows, token = weir.LapsesAnyhow, weir.LapsesAtOnce,
		weir.LapsesWithWindow, weir.LapsesWithWindows, weir.LapsesByToken
	for name, row := range map[string]struct {
		about   weir.About
		expires float64 // 0: never
		denied  bool
		longest time.Duration
		ends    float64
		lapses  weir.Lapse
	}{
		"a window":                  {weir.About{Lapses: window}, 7, false, 0, 7, window},
		"a window, by a denial":     {weir.About{Lapses: window}, 7, true, 0, 7, window},
		"a window, of long tiers":   {weir.About{Lapses: window}, 7, false, 60e9, 60, window},
		"a month":                   {weir.About{Lapses: atOnce, Window: 1}, 7, true, 0, 7, window},
		"tokens":                    {weir.About{Lapses: token}, 7, false, 0, 7, token},
		"tokens, by a denial":       {weir.About{Lapses: token}, 7, true, 0, 20, token},
		"two windows":               {weir.About{Lapses: windows}, 27, false, 0, 27, windows},
		"unknown, and aligned":      {weir.About{}, 20, true, 0, 20, window},
		"at once, and aligned":      {weir.About{Lapses: atOnce}, 20, true, 0, 20, window},
		"tokens, and aligned":       {weir.About{Lapses: token}, 20, true, 0, 20, token},
		"unknown":                   {weir.About{}, 19.5, false, 0, 19.5, anyhow},
		"unknown, by a denial":      {weir.About{}, 19.5, true, 0, 20, anyhow},
		"aligned, of a later one":   {weir.About{}, 40, false, 0, 40, anyhow},
		"no end, of a window":       {weir.About{Lapses: window}, 0, true, 0, 20, anyhow},
		"no end, of nothing denied": {weir.About{}, 0, false, time.Second, 1, anyhow},
	} {
		about := row.about
		res := &weir.Result{State: weir.Allow}
		if row.denied {
			res.State = weir.Deny
		}
		if row.expires > 0 {
			res.ExpiresAt = now.Add(time.Duration(row.expires * 1e9))
		}
		p := period{&Fallback{about: &about, longest: row.longest}, &weir.Request{Duration: 20e9}}
		end, lapses := p.end(res, now)
		assert.Equal(t, row.ends, end.Sub(now).Seconds(), name)
		assert.Equal(t, row.lapses, lapses, name)
	}
}

// A count proves a loss if it is less than the least that counts of the last one, of 100 in 80 s,
// which was known a second ago.
func TestCountsBelowTheLast(t *testing.T) {
	at := time.Unix(100, 0)
	for name, row := range map[string]struct {
		lapses weir.Lapse
		until  float64 // s after at: of the last count
		least  uint64
		change func(c, known *count, now *time.Time)
	}{
		"a window":  {weir.LapsesWithWindow, 70, 100, nil},
		"unknown":   {weir.LapsesAnyhow, 70, 0, nil},
		"at once":   {weir.LapsesAtOnce, 70, 0, nil},
		"two":       {weir.LapsesWithWindows, 100, 93, nil},
		"the first": {weir.LapsesWithWindows, 81, 0, nil},
		// in 1.1 s one token flows in, or eight of a faster rate; and two are parts of tokens
		"tokens": {weir.LapsesByToken, 70, 90, nil},
		"of another limit": {weir.LapsesWithWindow, 70, 0,
			func(c, _ *count, _ *time.Time) { c.limit++ }},
		"of the window after": {weir.LapsesWithWindow, 70, 0,
			func(c, _ *count, _ *time.Time) { c.until = c.until.Add(40 * time.Second) }},
		"nearly in that": {weir.LapsesWithWindow, 70, 100,
			func(c, _ *count, _ *time.Time) { c.until = c.until.Add(39 * time.Second) }},
		"of the window before": {weir.LapsesWithWindow, 70, 0,
			func(c, _ *count, _ *time.Time) { c.until = c.until.Add(-40 * time.Second) }},
		"of nothing": {weir.LapsesWithWindows, 100, 0,
			func(_, known *count, _ *time.Time) { known.total = 0 }},
		"at its end": {weir.LapsesWithWindow, 70, 0,
			func(_, known *count, now *time.Time) { *now = known.until }},
		"in nine more seconds, and a hundredth": {weir.LapsesWithWindows, 100, 48,
			func(_, _ *count, now *time.Time) { *now = now.Add(9 * time.Second) }},
		"on a clock that went back": {weir.LapsesWithWindows, 100, 98,
			func(_, known *count, now *time.Time) { *now = known.at.Add(-time.Hour) }},
	} {
		p := period{&Fallback{about: &weir.About{Lapses: row.lapses}},
			&weir.Request{Limit: 100, Duration: 80 * time.Second}}
		now, until := at.Add(time.Second), at.Add(time.Duration(row.until*1e9))
		known := count{total: 100, at: at, until: until, limit: 100, lapses: row.lapses}
		c := count{until: until, limit: 100}
		if row.change != nil {
			row.change(&c, &known, &now)
		}
		least := uint64(0)
		for ; p.below(&c, &known, now); c.total++ {
			least++
		}
		assert.Equal(t, row.least, least, name)
	}
}
