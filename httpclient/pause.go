package httpclient

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/structuredfield"
)

// This file reads the limits that servers report. Malformed fields are ignored.

const never = time.Duration(math.MaxInt64)

// pausesOn reports whether a Retry-After on this status asks for a pause. RFC 9110 defines it for
// 503 and 413, RFC 6585 for 429, and some APIs send it with the 403 of their abuse limits.
func pausesOn(status int) bool {
	switch status {
	case http.StatusForbidden, http.StatusRequestEntityTooLarge,
		http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// requestedPause returns the pause that the server requests, or 0. Retry-After takes precedence.
func requestedPause(resp *http.Response, now time.Time) time.Duration {
	h := resp.Header
	if pausesOn(resp.StatusCode) {
		if d, ok := parseRetryAfter(h.Get("Retry-After"), serverTime(h, now)); ok {
			return d
		}
	}
	if age := h.Get("Age"); age != "" && age != "0" {
		return 0 // from a cache: the figures are an earlier request's
	}
	if values := h["Ratelimit"]; len(values) > 0 {
		return rateLimitPause(strings.Join(values, ","))
	}
	if h.Get("Ratelimit-Remaining") == "0" {
		d, _ := parseSeconds(h.Get("Ratelimit-Reset"))
		return d
	}
	for _, prefix := range legacyPrefixes {
		if zero(h.Get(prefix + "Remaining")) {
			return legacyPause(h, prefix, serverTime(h, now))
		}
	}
	return 0
}

// legacyPrefixes begin the fields that most APIs send, and those of others, such as X and Okta.
var legacyPrefixes = [...]string{"X-Ratelimit-", "X-Rate-Limit-"}

// zero reports whether s is the number 0, with decimals or not: Reddit sends "0.0".
func zero(s string) bool {
	digits, decimals, _ := strings.Cut(s, ".")
	return digits != "" && strings.Trim(digits+decimals, "0") == ""
}

// serverTime returns the server's clock reading, to compare its dates with: the clocks may differ
// by more than the pause.
func serverTime(h http.Header, now time.Time) time.Time {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	return now
}

// parseRetryAfter parses a Retry-After field (RFC 9110 section 10.2.3): seconds, or a date.
func parseRetryAfter(s string, now time.Time) (time.Duration, bool) {
	s = strings.Trim(s, structuredfield.Blanks)
	if d, ok := parseSeconds(s); ok {
		return d, true
	}
	date, err := http.ParseTime(s)
	if err != nil {
		return 0, false
	}
	return max(0, date.Sub(now)), true
}

// parseSeconds parses digits as seconds, saturating.
func parseSeconds(s string) (time.Duration, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return never, true // digits only, so it is out of range
	}
	return seconds(n), true
}

// legacyPause parses the field Reset-After, which has the seconds from now, or else Reset, which
// servers send in several forms: seconds from now, seconds or milliseconds since the epoch, or a
// date. now is the server's clock reading.
func legacyPause(h http.Header, prefix string, now time.Time) time.Duration {
	if d, ok := parseDecimal(h.Get(prefix + "Reset-After")); ok {
		return d
	}
	reset := h.Get(prefix + "Reset")
	d, ok := parseDecimal(reset)
	switch {
	case !ok:
		return max(0, parseDate(reset, now).Sub(now))
	case d < 1e9*time.Second: // 31 years from now, or 2001
		return d
	case d < never: // before 2262; milliseconds since the epoch saturate
		return max(0, time.Unix(0, int64(d)).Sub(now))
	}
	ms, err := strconv.ParseInt(reset, 10, 64)
	if err != nil {
		return 0
	}
	return max(0, time.UnixMilli(ms).Sub(now))
}

// parseDate parses a date of HTTP or, as Atlassian sends it, of ISO 8601; otherwise it returns now.
func parseDate(s string, now time.Time) time.Time {
	if date, err := http.ParseTime(s); err == nil {
		return date
	}
	if date, err := time.Parse(time.RFC3339, s); err == nil {
		return date
	}
	return now
}

// parseDecimal parses seconds with decimals, as Discord sends them, saturating.
func parseDecimal(s string) (time.Duration, bool) {
	digits, decimals, _ := strings.Cut(s, ".")
	d, ok := parseSeconds(digits)
	fraction, valid := parseSeconds("0" + decimals)
	if !ok || !valid {
		return 0, false
	}
	for range decimals {
		fraction /= 10
	}
	return max(d, d+fraction), true // the sum may overflow
}

// rateLimitPause parses a RateLimit field and returns the longest t of the members with nothing
// remaining.
//
// It accepts the List of the drafts from 08 on ("name";r=0;t=5, …), with names as Tokens too, and
// the Dictionary of draft 07 (limit=10, remaining=0, reset=5). A member whose parameters have other
// types is ignored.
func rateLimitPause(field string) time.Duration {
	list, ok := structuredfield.ParseList(field)
	if !ok {
		return dictionaryPause(field)
	}
	var longest int64
	for _, m := range list {
		if m.Value.Kind != structuredfield.String && m.Value.Kind != structuredfield.Token {
			continue
		}
		if r, ok := m.Integer("r"); !ok || r > 0 {
			continue
		}
		if t, ok := m.Integer("t"); ok {
			longest = max(longest, t)
		}
	}
	return seconds(longest)
}

func dictionaryPause(field string) time.Duration {
	members, ok := structuredfield.ParseDictionary(field)
	if !ok {
		return 0
	}
	remaining, left := members["remaining"]
	reset, ends := members["reset"]
	if !left || !ends || remaining.Value != (structuredfield.Bare{Kind: structuredfield.Integer}) ||
		reset.Value.Kind != structuredfield.Integer {
		return 0
	}
	return seconds(max(0, reset.Value.Num))
}

// seconds converts n, which is not negative, saturating.
func seconds(n int64) time.Duration {
	if n > int64(never/time.Second) {
		return never
	}
	return time.Duration(n) * time.Second
}
