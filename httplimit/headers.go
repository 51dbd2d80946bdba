package httplimit

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/doors/structuredfield"
)

// This file writes the fields that report limits to clients. Package httpclient reads those that
// servers send.

// HeaderStyle is the set of fields that report the limit to the client. Retry-After is not among
// them: a denial has it in every style, unless the request can never pass.
//
// The remainder is Limit minus the count, or for a token bucket its burst minus the count; of tiers
// it is the binding one's.
//
// If another middleware has set a field, a second line is added; of two guards with HeadersLegacy,
// one around the other, the limit with less remaining is reported. Informational answers (1xx)
// carry none of the fields. Scripts in browsers see a field only if Access-Control-Expose-Headers
// names it; see [CORS].
type HeaderStyle uint8

const (
	// HeadersDraft sends RateLimit-Policy and RateLimit as in
	// draft-ietf-httpapi-ratelimit-headers-11, with all policies:
	//
	//	Ratelimit-Policy: "burst";q=10;w=1, "daily";q=1000;w=86400
	//	Ratelimit: "burst";r=9;t=1, "daily";r=412;t=36000
	//
	// r is the remainder, and t the seconds until it grows: until the window ends for a fixed
	// window, until the oldest hit counts less for a sliding one. A Strategy that counts elsewhere
	// and cannot [weir.OpForecast] has the time until all of the limit is available, except when
	// nothing remains. On a refusal only the policies that denied have a t, so that Retry-After is
	// never earlier than t.
	//
	// Concurrency has the unit qu="concurrent-requests" and no w, and a t only on a denial: a
	// second, as nobody knows when a place is free. So has the share of a caller that Overload
	// refuses, and no other answer has it.
	//
	// The draft may still change, and this style then changes with it. A Duration that is not a
	// whole number of seconds has no w, since the draft cannot express it.
	HeadersDraft HeaderStyle = iota

	// HeadersLegacy sends X-RateLimit-Limit (a token bucket's burst, or the binding tier's),
	// X-RateLimit-Remaining and X-RateLimit-Reset (the t above, in seconds since the epoch, as GitHub
	// does), and on a denial X-Ratelimit-Retry-After (in seconds from now), of the deciding policy.
	// Concurrency has no X-RateLimit-Reset.
	HeadersLegacy

	// HeadersOriginal sends Rate-Limiting-Total-Requests, Rate-Limiting-State ("Allow" or "Deny")
	// and Rate-Limiting-Expires-At (RFC 3339, rounded up to a second) of the deciding policy, as
	// the Go limiter over Redis did that weir.Strategy comes from.
	HeadersOriginal

	// HeadersNone sends no field: the figures can help an attacker.
	HeadersNone

	headerStyles = iota
)

// styleFields are the fields of each style, by the keys of http.Header.
var styleFields = [headerStyles][]string{
	HeadersDraft:    {fieldPolicy, fieldRateLimit},
	HeadersLegacy:   {fieldLegacyLimit, fieldLegacyRemaining, fieldLegacyReset, fieldLegacyRetryAfter},
	HeadersOriginal: {fieldOriginalTotal, fieldOriginalState, fieldOriginalExpires},
}

// Fields returns the names of the style's fields, as the keys of an http.Header.
func (s HeaderStyle) Fields() []string {
	if s >= headerStyles {
		return nil
	}
	return slices.Clone(styleFields[s])
}

// The keys of http.Header, in the canonical form that Get and Add use.
const (
	fieldRateLimit   = "Ratelimit"
	fieldPolicy      = "Ratelimit-Policy"
	fieldBypassed    = "Ratelimit-Bypassed"
	fieldRetryAfter  = "Retry-After"
	fieldCache       = "Cache-Control"
	fieldContentType = "Content-Type"

	fieldLegacyLimit      = "X-Ratelimit-Limit"
	fieldLegacyRemaining  = "X-Ratelimit-Remaining"
	fieldLegacyReset      = "X-Ratelimit-Reset"
	fieldLegacyRetryAfter = "X-Ratelimit-Retry-After"

	fieldOriginalTotal   = "Rate-Limiting-Total-Requests"
	fieldOriginalState   = "Rate-Limiting-State"
	fieldOriginalExpires = "Rate-Limiting-Expires-At"
)

// fields adds to a header, with one allocation for the slices of all values. Each value is in a
// slice without spare capacity, so that a handler that appends to one does not overwrite another.
type fields struct {
	header http.Header
	values []string
	used   int
}

// others reports whether the header may have fields that were not added here.
func (f *fields) others() bool { return len(f.header) > f.used }

// add adds a line to a field.
func (f *fields) add(key, value string) {
	if f.others() {
		if old := f.header[key]; len(old) > 0 {
			f.header[key] = append(old, value)
			return
		}
	}
	i := f.used
	if i == len(f.values) {
		f.header[key] = []string{value} // a field beyond len(values) costs an allocation
		return
	}
	f.used++
	f.values[i] = value
	f.header[key] = f.values[i : i+1 : i+1]
}

// set replaces a field.
func (f *fields) set(key, value string) {
	if f.others() {
		delete(f.header, key)
	}
	f.add(key, value)
}

// concurrent is the unit of a limit on requests in flight.
const concurrent = `;qu="concurrent-requests"`

// appendPolicies appends the RateLimit-Policy field: a List of Strings with Parameters.
func appendPolicies(dst []byte, states []state) []byte {
	for i := range states {
		s := &states[i].shown
		if states[i].exempt {
			continue
		}
		dst = append(appendComma(dst), structuredfield.Quote(printableName(s.name))...)
		dst = append(dst, ";q="...)
		dst = strconv.AppendUint(dst, min(s.limit, structuredfield.MaxInteger), 10)
		if s.inFlight {
			dst = append(dst, concurrent...)
		} else if d := s.duration; d >= time.Second && d%time.Second == 0 {
			dst = append(dst, ";w="...)
			dst = strconv.AppendInt(dst, int64(d/time.Second), 10)
		}
	}
	return dst
}

// appendRemaining appends the RateLimit field, with a comma before each item. If the request is
// refused, only the limits that denied it have a time, to which the jitter is added.
func appendRemaining(dst []byte, states []state, refused bool, jitter time.Duration) []byte {
	for i := range states {
		s := &states[i]
		if s.exempt || s.undecided {
			continue
		}
		if s.shown.item != "" {
			dst = append(dst, s.shown.item...)
		} else {
			dst = append(dst, itemOf(printableName(s.shown.name))...)
		}
		dst = strconv.AppendUint(dst, min(s.remaining, structuredfield.MaxInteger), 10)
		if s.reset < 0 || refused && !s.denied {
			continue
		}
		t := s.reset
		if refused {
			t = spread(max(time.Millisecond, t), jitter)
		}
		dst = append(dst, ";t="...)
		dst = strconv.AppendInt(dst, ceilSeconds(t), 10)
	}
	return dst
}

// comma separates the items of a List.
const comma = ", "

func appendComma(dst []byte) []byte {
	if len(dst) > 0 {
		dst = append(dst, comma...)
	}
	return dst
}

// itemOf returns the beginning of an item of RateLimit, with a comma before it.
func itemOf(name string) string { return comma + structuredfield.Quote(name) + ";r=" }

// printableName returns name in a form that is valid in a field.
func printableName(name string) string {
	if len(name) > maxNameLen {
		name = name[:maxNameLen]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
}

// appendBypassed appends the RateLimit-Bypassed field: the names of the policies that gave no
// Result.
func appendBypassed(dst []byte, states []state) []byte {
	for i := range states {
		if states[i].ask.Op.Err == nil {
			continue
		}
		dst = append(appendComma(dst), structuredfield.Quote(printableName(states[i].shown.name))...)
	}
	return dst
}

// ceilSeconds rounds up to whole seconds, so that a client that waits for them is not early.
// Negative durations become 0.
func ceilSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return max(s, 0)
}

// onWall returns t as the wall clock has it now.
func onWall(g *Guard, t time.Time) time.Time {
	if !g.realTime || t.Round(0) == t { //nolint:staticcheck // equal: t has no monotonic reading
		return t
	}
	now := time.Now()
	return dated(t, now, t.Sub(now))
}

// dated returns t, which is left from now, with the date that it has by the wall clock of now.
// After a suspend or a step of the wall clock the date of a limiter's instant is off, and its
// distance to the present is not. A difference of less than a second is no step: it would change
// the end of a window from one response to the next.
func dated(t, now time.Time, left time.Duration) time.Time {
	wall := now.Add(left).Round(0)
	if wall.Sub(t.Round(0)).Abs() < time.Second {
		return t
	}
	return wall
}

// ceilTime rounds up to a whole second.
func ceilTime(t time.Time) time.Time { return t.Add(time.Second - 1).Truncate(time.Second) }
