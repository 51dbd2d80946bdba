package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// This file reads what servers say about their limits. What is malformed is ignored, as if it had not been said.

const never = time.Duration(math.MaxInt64)

// askedPause returns how long the server asks to be left alone; 0: it does not. Retry-After takes precedence.
func askedPause(resp *http.Response, now time.Time) time.Duration {
	h := resp.Header
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		if d, ok := parseRetryAfter(h.Get(fieldRetryAfter), serverTime(h, now)); ok {
			return d
		}
	}
	if age := h.Get("Age"); age != "" && age != "0" {
		return 0 // out of a cache: the figures are of another request, long ago
	}
	if values := h[fieldRateLimit]; len(values) > 0 {
		return rateLimitPause(strings.Join(values, ","))
	}
	if h.Get("Ratelimit-Remaining") == "0" {
		d, _ := parseSeconds(h.Get("Ratelimit-Reset"))
		return d
	}
	if h.Get(fieldLegacyRemaining) == "0" {
		return legacyPause(h.Get(fieldLegacyReset), now)
	}
	return 0
}

// serverTime returns the server's own reading of the clock, which a date of his is to be compared with: his clock and
// ours may differ by more than the pause.
func serverTime(h http.Header, now time.Time) time.Time {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	return now
}

// parseRetryAfter parses a Retry-After field (RFC 9110 section 10.2.3): seconds, or a date.
func parseRetryAfter(s string, now time.Time) (time.Duration, bool) {
	s = strings.Trim(s, " \t")
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
	if err != nil || n > int64(never/time.Second) {
		return never, true // digits only: it is out of range
	}
	return time.Duration(n) * time.Second, true
}

// legacyPause reads X-RateLimit-Reset, one name with several meanings: seconds from now, seconds since the epoch, the
// same in milliseconds, or a date.
func legacyPause(s string, now time.Time) time.Duration {
	d, ok := parseSeconds(s)
	n := int64(d / time.Second)
	switch {
	case !ok:
		if date, err := http.ParseTime(s); err == nil {
			return max(0, date.Sub(now))
		}
		return 0
	case n < 1e9: // 31 years from now, or 2001
		return d
	case n < 1e12 && d != never:
		return max(0, time.Unix(n, 0).Sub(now))
	}
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return max(0, time.UnixMilli(ms).Sub(now))
}

// rateLimitPause reads a RateLimit field: the longest t of those that have nothing remaining.
//
// It takes the List of Items of the drafts from 08 on ("name";r=0;t=5, …), and the Dictionary of draft 07 (limit=10,
// remaining=0, reset=5).
func rateLimitPause(field string) time.Duration {
	items, ok := parseItems(field)
	if !ok {
		return 0
	}
	var longest, reset time.Duration
	exhausted := false // in the form of draft 07
	for _, it := range items {
		if it.params["r"] == "0" {
			t, _ := parseSeconds(it.params["t"])
			longest = max(longest, t)
		}
		switch it.name {
		case "remaining":
			exhausted = it.value == "0"
		case "reset":
			reset, _ = parseSeconds(it.value)
		}
	}
	if exhausted {
		longest = max(longest, reset)
	}
	return longest
}
