package rule

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

func TestParseLimit(t *testing.T) {
	for text, want := range map[string][]weir.Tier{
		"100/1m":                 {{Limit: 100, Duration: time.Minute}},
		"100/m":                  {{Limit: 100, Duration: time.Minute}},
		"0/500ms":                {{Limit: 0, Duration: 500 * time.Millisecond}},
		"5/1h30m":                {{Limit: 5, Duration: 90 * time.Minute}},
		"5/7d":                   {{Limit: 5, Duration: 7 * 24 * time.Hour}},
		"5/d":                    {{Limit: 5, Duration: 24 * time.Hour}},
		"9223372036854775807/1s": {{Limit: math.MaxInt64, Duration: time.Second}},
		"1000/1s,5000/10s, 7000/15s ": {{Limit: 1000, Duration: time.Second},
			{Limit: 5000, Duration: 10 * time.Second}, {Limit: 7000, Duration: 15 * time.Second}},
	} {
		got, err := ParseLimit(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "100", "/1m", "100/", "-1/1m", "+1/1m", "1.5/1m", "1e3/1m",
		"1/1",
		"1/1x", "1/m1", "1/1.5d",
		"9223372036854775808/1s", "1/1m,", "1/1m,,2/1h", "1/1m/2", "1/99999d", "1/-1dd"} {
		_, err := ParseLimit(text)
		assert.Error(t, err, text)
	}
}

// TestParse checks the syntax that weir proxy and weir replay share.
func TestParse(t *testing.T) {
	tier := []weir.Tier{{Limit: 100, Duration: time.Minute}}
	d := Defaults{Strategy: Sliding, Burst: 7, Queue: 3}
	for text, want := range map[string]Rule{
		"100/1m":             {Limit: "100/1m", Strategy: Sliding, Tiers: tier},
		"100/1m:log":         {Limit: "100/1m", Strategy: Log, Tiers: tier},
		"burst=100/1m:token": {Name: "burst", Limit: "100/1m", Strategy: Token, Burst: 7, Tiers: tier},
		"100/1m:leaky":       {Limit: "100/1m", Strategy: Leaky, Burst: 3, Tiers: tier},
		"a=100/1m,5/1s": {Name: "a", Limit: "100/1m,5/1s", Strategy: Tiers,
			Tiers: append(tier[:1:1], weir.Tier{Limit: 5, Duration: time.Second})},
	} {
		got, err := Parse(text, d)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "x", "=", "=1/1m", "a=", "-1/1m", "a=b=1/1m", "1/1m:", "1/1m:wish", "1/1m:tiers",
		"1/1m:log:log", "1/1m,2/2m:log", "1/1us"} {
		_, err := Parse(text, d)
		assert.Error(t, err, text)
	}
	_, err := Parse("1/1m", Defaults{})
	assert.ErrorContains(t, err, `no strategy ""`)
}

func TestCross(t *testing.T) {
	for _, row := range []struct {
		limits, strategies []string
		burst              uint64
		want               []string
	}{
		{[]string{"10/1s", "1000/1s,5000/10s", "20/1m"}, []string{Fixed, Token}, 7,
			[]string{"|10/1s fixed", "|10/1s token burst 7", "|1000/1s,5000/10s tiers", "|20/1m fixed",
				"|20/1m token burst 7"}},
		{[]string{"login=5/1m:log", "9/1s,20/1m", "3/1s"}, []string{Fixed, Leaky}, 4,
			[]string{"login|5/1m log", "|9/1s,20/1m tiers", "|3/1s fixed", "|3/1s leaky burst 4"}},
	} {
		rules, err := Cross(row.limits, row.strategies, row.burst)
		require.NoError(t, err)
		var got []string
		for _, r := range rules {
			got = append(got, r.Name+"|"+r.String())
		}
		assert.Equal(t, row.want, got)
	}
}

func TestCrossRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		limits, strategies []string
		burst              uint64
		want               string
	}{
		"an unknown strategy":   {[]string{"1/1m"}, []string{"wish"}, 0, `no strategy "wish"`},
		"tiers by name":         {[]string{"1/1m"}, []string{Tiers}, 0, `no strategy "tiers"`},
		"an invalid limit":      {[]string{"lots"}, []string{Fixed}, 0, "COUNT/DURATION"},
		"a limit twice":         {[]string{"1/1m", "1/60s"}, []string{Fixed}, 0, "twice"},
		"a strategy twice":      {[]string{"1/1m"}, []string{Log, Log}, 0, "twice"},
		"tiers twice":           {[]string{"1/1s,2/2s", "1/1s,2/2s"}, []string{Fixed}, 0, "twice"},
		"a tier twice":          {[]string{"1/1s,1/1s"}, []string{Fixed}, 0, "1/1s,1/1s"},
		"a window below weir's": {[]string{"1/1us"}, []string{Fixed}, 0, "weir: bad duration: 1µs"},
		"half a millisecond": {[]string{"1/1500us"}, []string{Sliding}, 0,
			"weir: bad duration: 1.5ms"},
		"a window beyond weir's": {[]string{"1/366d"}, []string{Log}, 0, "days"},
		"a burst that nothing uses": {[]string{"1/1m", "2/1m,1/1s"}, []string{Fixed, Sliding, Log}, 3,
			ErrBurst.Error()},
		"a burst that takes too long to refill": {[]string{"1/365d"}, []string{Token}, math.MaxUint64,
			weir.ErrLimit.Error()},
	} {
		_, err := Cross(tc.limits, tc.strategies, tc.burst)
		assert.ErrorContains(t, err, tc.want, name)
	}
}

func FuzzParseLimit(f *testing.F) {
	f.Add("1000/1s,5000/10s")
	f.Add("5/d")
	f.Fuzz(func(t *testing.T, text string) {
		tiers, err := ParseLimit(text)
		if err != nil {
			return
		}
		if len(tiers) == 0 {
			t.Fatalf("%q: no error and no limit", text)
		}
		for _, tier := range tiers {
			if tier.Limit > math.MaxInt64 {
				t.Fatalf("%q: limit %d", text, tier.Limit)
			}
		}
	})
}

// TestAtOnce runs each rule on requests that come at once: at the end of a window and at the start
// of the next for the fixed window, which has both.
func TestAtOnce(t *testing.T) {
	for text, want := range map[string]uint64{
		"20/4s": 20, "20/4s:fixed": 40, "20/4s:log": 20, "20/4s:token": 7, "20/4s:leaky": 1,
		"20/1s,30/10s": 30, "0/1s": 0, "0/1s:token": 0, "0/1s:leaky": 0, "0/1s,5/10s": 0, "5/1s,0/10s": 0,
	} {
		r, err := Parse(text, Defaults{Strategy: Default, Burst: 7})
		require.NoError(t, err)
		assert.Equal(t, want, r.AtOnce(), text)
		now := time.UnixMilli(100_000*4_000 - 1)
		l, err := weir.New(weir.Config{Now: func() time.Time { return now }})
		require.NoError(t, err)
		s, err := On(r, l)
		require.NoError(t, err)
		ask := r.Request()
		ask.Key = "k"
		admitted := uint64(0)
		for range 2 {
			for range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				if r.Strategy == Leaky {
					cancel() // one that would wait is not admitted at once
				}
				if res, err := s.Run(ctx, &ask); err == nil && res.Allowed() {
					admitted++
				}
				cancel()
			}
			now = now.Add(time.Millisecond)
		}
		if r.Strategy != Leaky {
			assert.Equal(t, want, admitted, text)
		}
		require.NoError(t, l.Close())
	}
}

func TestParseCalendar(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	d := Defaults{Strategy: Token, Burst: 7}
	for text, want := range map[string]Rule{
		"10000/month@Europe/Berlin": {Unit: weir.Month, Zone: berlin,
			Tiers: []weir.Tier{{Limit: 10_000, Duration: 31 * 24 * time.Hour}}},
		"5/week:7@UTC": {Unit: weir.Week.From(7), Zone: time.UTC,
			Tiers: []weir.Tier{{Limit: 5, Duration: 7 * 24 * time.Hour}}},
		"5/day:6h@UTC": {Unit: weir.Day.At(6 * time.Hour), Zone: time.UTC,
			Tiers: []weir.Tier{{Limit: 5, Duration: 24 * time.Hour}}},
		"5/month:17:6h30m@UTC": {Unit: weir.Month.From(17).At(390 * time.Minute), Zone: time.UTC,
			Tiers: []weir.Tier{{Limit: 5, Duration: 31 * 24 * time.Hour}}},
		"0/year:229@UTC": {Unit: weir.Year.From(229), Zone: time.UTC,
			Tiers: []weir.Tier{{Limit: 0, Duration: 365 * 24 * time.Hour}}},
	} {
		got, err := Parse("billing="+text, d)
		require.NoError(t, err, text)
		want.Name, want.Limit, want.Strategy = "billing", text, Calendar
		assert.Equal(t, want, got)
		assert.Equal(t, 2*want.Tiers[0].Limit, got.AtOnce())
	}
	for text, want := range map[string]string{
		"20/minute": "20/1m", "20/Hours": "20/1h", "5/sec": "5/1s", "5/day": "5/1d", "5/week": "5/7d",
		"20/month": "20/month@UTC", "20/years": "20/year@UTC", "20/day:6h": "20/day:6h@UTC",
		"20/month:17": "20/month:17@UTC",
	} {
		_, err := Parse(text, d)
		assert.ErrorContains(t, err, "; did you mean "+want+"?")
		_, err = Parse(want, d)
		assert.NoError(t, err)
	}
	for _, text := range []string{
		"1/month@", "1/month@Nowhere", "/month@UTC", "1/@UTC", "1/month:32@UTC", "1/month:0@UTC",
		"1/minute@UTC", "1/1d@UTC", "1/day:24h@UTC", "1/day:6@UTC", "1/hour:30m@UTC", "1/day:6h:17@UTC",
		"1/month@UTC:fixed", "1/month@UTC,5/1s", "5/1s,1/month@UTC", "1@UTC", "-1/month@UTC",
	} {
		_, err := Parse(text, d)
		assert.Error(t, err, text)
	}
	rules, err := Cross([]string{"1/month@UTC", "1/month:2@UTC", "1/month@Europe/Berlin", "1/1m"},
		[]string{Fixed, Log}, 0)
	require.NoError(t, err)
	assert.Len(t, rules, 3+2)
	for same, other := range map[string]string{
		"1/month@UTC": "1/month:1@UTC", "1/day:6h@UTC": "1/day:360m@UTC",
	} {
		_, err = Cross([]string{same, other}, []string{Fixed}, 0)
		assert.ErrorContains(t, err, "twice")
	}
}
