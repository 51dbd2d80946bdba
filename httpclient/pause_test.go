package httpclient

import (
	"math"
	"math/big"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// now is the clock's reading in this file.
var now = time.Date(2026, 11, 20, 12, 0, 5, 0, time.UTC)

// Each row has a field and the pause that it asks for: -1 if it is malformed.
func TestParsePause(t *testing.T) {
	const bad = -1
	for _, row := range []struct {
		field, unit string
		want        time.Duration
	}{
		{"0", "s", 0}, {"-0", "s", 0}, {"7", "s", 7 * time.Second}, {"2.0", "s", 2 * time.Second},
		{"2.", "s", 2 * time.Second}, {".5", "s", 500 * time.Millisecond}, {" 7\t", "s", 7 * time.Second},
		{"0.503", "s", 503 * time.Millisecond}, {"0.000000001", "s", 1}, {"1e-10", "s", 0},
		{"503.25", "ms", 503250 * time.Microsecond}, {"1e3", "ms", time.Second},
		{"", "s", bad}, {"-1", "s", bad}, {"1,5", "s", bad}, {"soon", "s", bad}, {".", "s", bad},
		{"1 2", "s", bad}, {"1.2.3", "s", bad}, {"-Inf", "s", bad}, {"-1e400", "s", bad},
		{"NaN", "s", never}, {"nan", "ms", never}, {"inf", "s", never}, {"+Infinity", "s", never},
		{"1e400", "s", never}, {"99999999999999999999", "s", never}, {"9223372036854775807", "s", never},
		{"999999999", "s", 999999999 * time.Second},
		{"1000000000", "s", 0}, // in 2001
		{"1795176030", "s", 25 * time.Second}, {"1795176030.25", "s", 25250 * time.Millisecond},
		{"1795176005", "s", 0}, {"1795176004", "s", 0}, {"946684799000", "s", 0},
		{"1795176030000", "s", 25 * time.Second}, {"1795176030000", "ms", 25 * time.Second},
		{"1795176030", "ms", 1795176030 * time.Millisecond}, // 21 days
		{"1.79517603e9", "s", 25 * time.Second},
		{"4102444800", "s", time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Sub(now)},
		{"100000000000000", "s", never},
		{"1s", "s", time.Second}, {"1m3s", "s", 63 * time.Second}, {"6m0s", "s", 6 * time.Minute},
		{"2m59.56s", "s", 179560 * time.Millisecond}, {"20ms", "s", 20 * time.Millisecond},
		{"1h", "ms", time.Hour}, {"12\u00b5s", "s", 12 * time.Microsecond},
		{"300000h", "s", 300000 * time.Hour}, {"9999999999h", "s", never}, {"2562047h60m", "s", never},
		{"-1m", "s", bad}, {"1m-3s", "s", bad}, {"1m3", "s", bad}, {"m", "s", bad}, {"1m 3s", "s", bad},
		{"5 minutes", "s", bad},
		{"Fri, 20 Nov 2026 12:00:30 GMT", "s", 25 * time.Second},
		{"Fri, 20 Nov 2026 12:00:30 UTC", "s", 25 * time.Second},
		{"Friday, 20-Nov-26 12:00:30 GMT", "s", 25 * time.Second},
		{"Fri Nov 20 12:00:30 2026", "s", 25 * time.Second},
		{"Fri, 31 Dec 1999 23:59:59 GMT", "s", 0}, {"Fri, 31 Dec 1999 23:59 GMT", "s", bad},
		{"2026-11-20T12:00:30Z", "s", 25 * time.Second},
		{"2026-11-20T13:00:30.5+01:00", "ms", 25500 * time.Millisecond},
		{"2026-11-20T12:01Z", "s", 55 * time.Second}, {"2026-11-20", "s", bad},
	} {
		d, ok := parsePause(row.field, row.unit, now)
		if row.want == bad {
			assert.False(t, ok, "%q", row.field)
			row.want = 0
		} else {
			assert.True(t, ok, "%q", row.field)
		}
		assert.Equal(t, row.want, d, "%q %s", row.field, row.unit)
	}
}

// FuzzParsePause checks that no field causes a panic or a negative pause, and compares numbers with
// exact arithmetic.
func FuzzParsePause(f *testing.F) {
	for _, s := range []string{"", "0", "120", "-1", "1.5", " 7 ", "99999999999999999999",
		"9223372036", "9223372037", "NaN", "-Inf", "1e400", "0.503", "1795176030.25", "1795176030000",
		"100000000000000", "1m3.5s", "9999999999h", "1.2.3s", "12\u00b5s",
		"Fri, 31 Dec 1999 23:59:59 GMT", "Friday, 31-Dec-99 23:59:59 GMT", "2026-11-20T12:00Z", "soon"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	digits := regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,3})?$`)
	f.Fuzz(func(t *testing.T, s string, millis bool) {
		unit, nanos := "s", int64(time.Second)
		if millis {
			unit, nanos = "ms", int64(time.Millisecond)
		}
		d, ok := parsePause(s, unit, now)
		require.GreaterOrEqual(t, d, time.Duration(0))
		if !ok {
			require.Zero(t, d)
		}
		if digits.MatchString(s) {
			require.True(t, ok)
			require.Equal(t, exactPause(s, nanos), d)
		}
	})
}

// exactPause is parsePause for digits with or without decimals, of a unit of so many nanoseconds.
func exactPause(s string, nanos int64) time.Duration {
	n, _ := new(big.Rat).SetString(s)
	times := func(nanos int64) *big.Int {
		product := new(big.Rat).Mul(n, new(big.Rat).SetInt64(nanos))
		return new(big.Int).Quo(product.Num(), product.Denom())
	}
	d := times(nanos)
	if d.Cmp(big.NewInt(1e18)) < 0 {
		return time.Duration(d.Int64())
	}
	if d = times(1e9); n.Cmp(new(big.Rat).SetInt64(1e11)) >= 0 {
		d = times(1e6)
	}
	if !d.IsInt64() {
		d.SetInt64(math.MaxInt64)
	}
	return time.Duration(max(0, d.Int64()-now.UnixNano()))
}

// FuzzRequestedPause checks that no response causes a panic or a negative pause, or asks for a
// pause by a quota with something remaining.
func FuzzRequestedPause(f *testing.F) {
	f.Add(429, "7", `"a";r=0;t=5`, "0", "6", "2000000000", "", "")
	f.Add(200, "", "limit=1, remaining=0, reset=7", "0", "x", "99999999999999", "0",
		"Fri, 20 Nov 2026 12:00:05 GMT")
	f.Add(503, "Sat", `"a\"b";r=0;t=5;pk=:YQ==:, tok;r=1`, "-1", "1m3s", "9223372036854775807", "3", "x")
	f.Add(529, "NaN", "", "0.0", "2026-11-20T12:00:30Z", "", "", "")
	f.Fuzz(func(t *testing.T, status int,
		after, limit, remaining, reset, resetAfter, age, date string) {
		resp := &http.Response{StatusCode: status, Header: http.Header{
			"Retry-After": {after}, "Age": {age}, "Date": {date},
		}}
		for _, q := range quotas {
			resp.Header.Set(q.remaining, remaining)
			for i, f := range q.resets {
				resp.Header.Set(f.name, []string{reset, resetAfter}[i])
			}
		}
		if limit != "" {
			resp.Header["Ratelimit"] = []string{limit}
		}
		d, quota := requestedPause(resp, now)
		require.GreaterOrEqual(t, d, time.Duration(0))
		if limit == "" && !nothing(remaining) {
			require.False(t, quota)
		}
		if !quota && !pausesOn(status) {
			require.Zero(t, d)
		}
	})
}
