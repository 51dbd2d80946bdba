package httpclient

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/doors/structuredfield"
)

// This file reads the limits that servers report. Malformed fields are ignored.

const never = time.Duration(math.MaxInt64)

// statusOverloaded reports an overload; it is not registered. APIs of language models send it.
const statusOverloaded = 529

// pausesOn reports whether one of the retryFields on this status asks for a pause. RFC 9110 defines
// Retry-After for 503 and 413, RFC 6585 for 429, and some APIs send it with the 403 of their abuse
// limits.
func pausesOn(status int) bool {
	switch status {
	case http.StatusForbidden, http.StatusRequestEntityTooLarge,
		http.StatusTooManyRequests, http.StatusServiceUnavailable, statusOverloaded:
		return true
	}
	return false
}

// field is a field that parsePause parses.
type field struct {
	name string
	unit string // of a number without one
}

// retryFields ask for a pause. The first one with a valid value counts, and of that the longest.
var retryFields = []field{
	{"Retry-After-Ms", "ms"},      // OpenAI and Azure, beside a Retry-After that is rounded
	{"X-Ms-Retry-After-Ms", "ms"}, // Azure
	{"Retry-After", "s"},
}

// quotas are the fields that report a quota. If nothing remains the first valid one of resets says
// until when.
var quotas = [...]struct {
	remaining string
	resets    []field
}{
	// The drafts to 06, and GitLab, DigitalOcean and others with an instant.
	{"Ratelimit-Remaining", inSeconds("Ratelimit-Reset")},
	// Most APIs; Reset-After is Discord's.
	{"X-Ratelimit-Remaining", inSeconds("X-Ratelimit-Reset-After", "X-Ratelimit-Reset")},
	// X, Okta and others.
	{"X-Rate-Limit-Remaining", inSeconds("X-Rate-Limit-Reset-After", "X-Rate-Limit-Reset")},
	// OpenAI, Azure, Groq and others: durations.
	{"X-Ratelimit-Remaining-Requests", inSeconds("X-Ratelimit-Reset-Requests")},
	{"X-Ratelimit-Remaining-Tokens", inSeconds("X-Ratelimit-Reset-Tokens")},
	// Anthropic: dates.
	{"Anthropic-Ratelimit-Requests-Remaining", inSeconds("Anthropic-Ratelimit-Requests-Reset")},
	{"Anthropic-Ratelimit-Tokens-Remaining", inSeconds("Anthropic-Ratelimit-Tokens-Reset")},
	{"Anthropic-Ratelimit-Input-Tokens-Remaining",
		inSeconds("Anthropic-Ratelimit-Input-Tokens-Reset")},
	{"Anthropic-Ratelimit-Output-Tokens-Remaining",
		inSeconds("Anthropic-Ratelimit-Output-Tokens-Reset")},
}

// inSeconds returns fields in which a number is one of seconds.
func inSeconds(names ...string) (fields []field) {
	for _, name := range names {
		fields = append(fields, field{name, "s"})
	}
	return fields
}

// resourceField names the resource of the quotas, as GitHub sends it.
const resourceField = "X-Ratelimit-Resource"

// requestedPause returns the pause that the server requests, or 0. The retryFields take precedence
// over quotas. quota reports whether a quota has nothing remaining, which is the reason then.
func requestedPause(resp *http.Response, now time.Time) (d time.Duration, quota bool) {
	now = serverTime(resp.Header, now)
	d, quota = quotaPause(resp.Header, now)
	if pausesOn(resp.StatusCode) {
		if after, ok := firstPause(resp.Header, retryFields, now); ok {
			d = after
		}
	}
	return d, quota
}

// quotaPause returns the longest pause for the quotas with nothing remaining, and whether there are
// any.
func quotaPause(h http.Header, now time.Time) (d time.Duration, quota bool) {
	if age := h.Get("Age"); age != "" && age != "0" {
		return 0, false // from a cache: the figures are an earlier request's
	}
	d = rateLimitPause(strings.Join(h["Ratelimit"], ","), now)
	quota = d > 0
	for _, q := range quotas {
		if nothing(h.Get(q.remaining)) {
			reset, _ := firstPause(h, q.resets, now)
			d, quota = max(d, reset), true
		}
	}
	return d, quota
}

// nothing reports whether a number is 0, with decimals or not (Reddit sends "0.0"), or below.
func nothing(remaining string) bool {
	n, err := strconv.ParseFloat(remaining, 64)
	return err == nil && n <= 0
}

// serverTime returns the server's clock reading, to compare its dates with: the clocks may differ
// by more than the pause.
func serverTime(h http.Header, now time.Time) time.Time {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	return now
}

// firstPause returns the pause of the first field with a valid value.
func firstPause(h http.Header, fields []field, now time.Time) (time.Duration, bool) {
	for _, f := range fields {
		if d, ok := f.longest(h[f.name], now); ok {
			return d, true
		}
	}
	return 0, false
}

// maxValues bounds the values of a field that are parsed.
const maxValues = 16

// longest returns the longest of the valid values of a field that a server, or a proxy before it,
// has sent twice: as two fields, or as a list. A date has a comma too.
func (f *field) longest(lines []string, now time.Time) (longest time.Duration, ok bool) {
	for _, line := range lines[:min(len(lines), maxValues)] {
		if d, valid := parsePause(line, f.unit, now); valid {
			longest, ok = max(longest, d), true
			continue
		}
		parts := strings.SplitN(line, ",", maxValues)
		for i, part := range parts {
			d, valid := parsePause(part, f.unit, now)
			if !valid && i+1 < len(parts) {
				d, valid = parsePause(part+","+parts[i+1], f.unit, now)
			}
			if valid {
				longest, ok = max(longest, d), true
			}
		}
	}
	return longest, ok
}

// A number of at least minInstant seconds is no delta: 31 years from now, or 2001 as an instant.
// Numbers from minMillis on are milliseconds since the epoch, those from tooLarge on neither.
const (
	minInstant = 1e9 * time.Second
	minMillis  = 1e11 // 1973, or 5138 in seconds
	tooLarge   = 1e14 // 5138
)

// parsePause parses the end of a pause in each of the forms that servers use: a number of units
// from now, with or without decimals; a duration in Go's notation; a number of seconds or
// milliseconds since the epoch; or a date. It returns the time from now, the server's clock
// reading: 0 if the instant is past. Numbers that are out of range, infinite or not a number
// saturate.
func parsePause(s, unit string, now time.Time) (time.Duration, bool) {
	s, _, _ = strings.Cut(s, ";") // parameters
	s = strings.Trim(s, structuredfield.Blanks+`"`)
	n, err := strconv.ParseFloat(s, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		if d, ok := parseDuration(s); ok {
			return d, true
		}
		date, ok := parseDate(s)
		return max(0, date.Sub(now)), ok
	}
	if n < 0 {
		return 0, false
	}
	d := duration(n, unit)
	switch {
	case d < minInstant:
		return d, true
	case n < minMillis:
		d = duration(n, "s")
	case n < tooLarge:
		d = duration(n, "ms")
	default:
		return never, true
	}
	return max(0, time.Unix(0, int64(d)).Sub(now)), true
}

// duration returns n units, saturating. It is exact to the nanosecond if n has up to 15 digits.
func duration(n float64, unit string) time.Duration {
	d, err := time.ParseDuration(strconv.FormatFloat(n, 'f', -1, 64) + unit)
	if err != nil {
		return never
	}
	return d
}

// parseDuration parses a duration in Go's notation, such as 1m3.5s. Unlike [time.ParseDuration] it
// saturates.
func parseDuration(s string) (sum time.Duration, ok bool) {
	number := func(c byte) bool { return c == '.' || '0' <= c && c <= '9' }
	for p := (structuredfield.Parser{Rest: s}); p.Rest != ""; {
		n, err := strconv.ParseFloat(p.While(number), 64)
		unit := p.While(func(c byte) bool { return !number(c) })
		_, unknown := time.ParseDuration("1" + unit)
		if errors.Is(err, strconv.ErrSyntax) || unknown != nil {
			return 0, false
		}
		d := duration(n, unit)
		sum += min(d, never-sum)
	}
	return sum, s != ""
}

// parseDate parses a date of HTTP, also one with UTC in place of GMT, or one of RFC 3339, as
// Anthropic sends it, also without seconds, as Atlassian does.
func parseDate(s string) (date time.Time, ok bool) {
	if date, err := http.ParseTime(s); err == nil {
		return date, true
	}
	for _, layout := range [...]string{
		time.RFC3339, "2006-01-02T15:04Z07:00", "Mon, 02 Jan 2006 15:04:05 UTC",
	} {
		if date, err := time.Parse(layout, s); err == nil {
			return date, true
		}
	}
	return date, false
}

// rateLimitPause parses a RateLimit field and returns the longest t of the members with nothing
// remaining.
//
// It accepts the List of the drafts from 08 on ("name";r=0;t=5, …), with names as Tokens too, and
// the Dictionary of draft 07 (limit=10, remaining=0, reset=5). A member whose parameters have other
// types is ignored, but t and reset may be Decimals.
func rateLimitPause(field string, now time.Time) (longest time.Duration) {
	list, ok := structuredfield.ParseList(field)
	if !ok {
		return dictionaryPause(field, now)
	}
	for _, m := range list {
		if m.Value.Kind != structuredfield.String && m.Value.Kind != structuredfield.Token {
			continue
		}
		if r, ok := m.Integer("r"); ok && r == 0 {
			longest = max(longest, numberPause(m.Params["t"], now))
		}
	}
	return longest
}

func dictionaryPause(field string, now time.Time) time.Duration {
	members, ok := structuredfield.ParseDictionary(field)
	if !ok {
		return 0
	}
	remaining, left := members["remaining"]
	if !left || remaining.Value.Kind != structuredfield.Integer || remaining.Value.Num != 0 {
		return 0
	}
	return numberPause(members["reset"].Value, now)
}

// numberPause returns the pause until an Integer or a Decimal, or 0 for other types.
func numberPause(v structuredfield.Bare, now time.Time) time.Duration {
	if v.Kind != structuredfield.Integer && v.Kind != structuredfield.Decimal {
		return 0
	}
	d, _ := parsePause(v.Text, "s", now)
	return d
}
