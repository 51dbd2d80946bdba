package httplimit

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weirgo/weir/internal/structuredfield"
)

// This file writes the fields that report limits to clients. Package httpclient reads those that
// servers send.

// HeaderStyle is the set of fields that report the limit to the client. Retry-After is not among
// them: a denial has it in every style, unless the request can never pass.
//
// The remainder is Limit minus the count, or for a token bucket its burst minus the count. It is
// meaningless for a Strategy that ignores the request's Limit, such as tiers: use HeadersNone.
//
// If another middleware has set a field, a second line is added. Informational answers (1xx) carry
// none of the fields. Scripts in browsers see a field only if Access-Control-Expose-Headers names
// it; see [CORS].
type HeaderStyle uint8

const (
	// HeadersDraft sends RateLimit-Policy and RateLimit as in
	// draft-ietf-httpapi-ratelimit-headers-11, with all policies:
	//
	//	Ratelimit-Policy: "burst";q=10;w=1, "daily";q=1000;w=86400
	//	Ratelimit: "burst";r=9;t=1, "daily";r=412;t=36000
	//
	// r is the remainder, and t the seconds until it grows: until the window ends for a fixed
	// window, until the oldest hit counts less for a sliding one. A Strategy of another package
	// that is no [weir.Forecaster] has the time until all of the limit is available, except when
	// nothing remains. On a denial only the policies that denied have a t, so that Retry-After is
	// never earlier than t.
	//
	// Concurrency has the unit qu="concurrent-requests" and no w, and a t only on a denial: a
	// second, as nobody knows when a place is free.
	//
	// The draft may still change, and this style then changes with it. A Duration that is not a
	// whole number of seconds has no w, since the draft cannot express it.
	HeadersDraft HeaderStyle = iota

	// HeadersLegacy sends X-RateLimit-Limit (a token bucket's burst), X-RateLimit-Remaining and
	// X-RateLimit-Reset (the t above, in seconds since the epoch, as GitHub does), and on a denial
	// X-Ratelimit-Retry-After (in seconds from now), of the deciding policy. Concurrency has no
	// X-RateLimit-Reset.
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
	fresh  bool // header was empty; no key is added twice
}

func newFields(header http.Header, values []string) fields {
	return fields{header: header, values: values, fresh: len(header) == 0}
}

func (f *fields) add(key, value string) {
	if !f.fresh {
		if old := f.header[key]; len(old) > 0 {
			f.header[key] = append(old, value)
			return
		}
	}
	f.set(key, value)
}

func (f *fields) set(key, value string) {
	i := f.used
	if i == len(f.values) {
		f.header[key] = []string{value} // a field beyond len(values) costs an allocation
		return
	}
	f.used++
	f.values[i] = value
	f.header[key] = f.values[i : i+1 : i+1]
}

// setFields sets the fields of the style from the answers in c.
func (m *middleware) setFields(f *fields, c *call) {
	if m.Headers == HeadersDraft || c.outcome == Denied {
		m.setQuotas(c)
	}
	switch s := &c.states[c.decider]; {
	case m.Headers == HeadersDraft:
		line := m.policyLine
		if line == "" {
			c.line = c.quotas.appendPolicies(c.line[:0])
			line = string(c.line)
		}
		if line == "" {
			return
		}
		f.add(fieldPolicy, line)
		c.line = c.quotas.appendRemaining(c.line[:0], c.jitter)
		switch {
		case c.outcome == Denied:
			f.add(fieldRateLimit, c.lineString())
		case len(c.line) > 0:
			f.add(fieldRateLimit, string(c.line))
		}
	case !s.ask.Decided():
	case m.Headers == HeadersLegacy:
		s.setLegacyFields(f, m.retryAfter(c))
	case m.Headers == HeadersOriginal:
		s.setOriginalFields(f)
	}
}

// setQuotas sets the quotas of c to the states of the policies.
func (m *middleware) setQuotas(c *call) {
	for i := range c.quotas {
		q, s := &c.quotas[i], &c.states[i]
		if q.exempt = s.ask.Exempt; s.varies {
			q.Limit, q.Duration, q.Name, q.item = s.Limit, s.Duration, s.Name, s.item
		}
		q.undecided, q.Denied = !s.ask.Decided(), s.ask.Denies()
		if q.Remaining, q.Reset = s.ask.Remaining(), m.resetIn(s); s.holds {
			q.SetPlaces(s.ask.Result.ExpiresAt.IsZero())
		}
		if s.Alternate && !q.exempt {
			c.quotas[:i].yield(q)
		}
	}
}

// yield leaves out either other, or the quota of its name in q, of which there is at most one.
func (q Quotas) yield(other *Quota) {
	for i := range q {
		if q[i].exempt || q[i].Name != other.Name {
			continue
		}
		if other.binds(&q[i]) {
			q[i].exempt = true
		} else {
			other.exempt = true
		}
		return
	}
}

// binds reports whether q keeps a client waiting for longer than other, or has less remaining.
func (q *Quota) binds(other *Quota) bool {
	switch {
	case q.undecided != other.undecided:
		return other.undecided
	case q.Denied != other.Denied:
		return q.Denied
	case !q.Denied:
		return q.Remaining < other.Remaining
	}
	return other.Reset >= 0 && (q.Reset < 0 || q.Reset > other.Reset)
}

// resetIn returns the time until resetAt, or -1 for never: since the decision, if the Strategy says
// how long its Result holds, and else from now.
func (m *middleware) resetIn(s *policyState) time.Duration {
	left := s.ask.Left()
	switch at := s.resetAt(); {
	case at.IsZero():
		return -1
	case left <= 0:
		left = m.until(at)
	case !s.more.IsZero():
		left += at.Sub(s.ask.Result.ExpiresAt)
	}
	return max(0, left)
}

// appendBypassed appends the RateLimit-Bypassed field: the names of the policies that gave no
// Result.
func appendBypassed(dst []byte, states []policyState) []byte {
	for i := range states {
		if states[i].ask.Err == nil {
			continue
		}
		if len(dst) > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, structuredfield.Quote(states[i].Name)...)
	}
	return dst
}

func (s *policyState) setLegacyFields(f *fields, wait int64) {
	f.add(fieldLegacyLimit, strconv.FormatUint(s.ask.Most(), 10))
	f.add(fieldLegacyRemaining, strconv.FormatUint(s.ask.Remaining(), 10))
	if reset := s.resetAt(); !reset.IsZero() && !s.holds {
		f.add(fieldLegacyReset, strconv.FormatInt(ceilTime(reset).Unix(), 10))
	}
	if wait > 0 {
		f.add(fieldLegacyRetryAfter, strconv.FormatInt(wait, 10))
	}
}

func (s *policyState) setOriginalFields(f *fields) {
	res := &s.ask.Result
	f.add(fieldOriginalTotal, strconv.FormatUint(res.TotalRequests, 10))
	f.add(fieldOriginalState, res.State.String())
	if end := res.ExpiresAt; !end.IsZero() {
		f.add(fieldOriginalExpires, ceilTime(end).UTC().Format(time.RFC3339))
	}
}

// until returns the time from the present to t. time.Until takes 60 % of the time of time.Now for a
// t with a monotonic reading, such as package weir's.
func (m *middleware) until(t time.Time) time.Duration {
	if m.realTime {
		return time.Until(t)
	}
	return t.Sub(m.Now())
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

// ceilTime rounds up to a whole second.
func ceilTime(t time.Time) time.Time { return t.Add(time.Second - 1).Truncate(time.Second) }

// jitterSeconds returns a random number of whole seconds, 0 to d, each as likely.
func jitterSeconds(d time.Duration) int64 {
	if d < time.Second {
		return 0
	}
	return rand.Int64N(int64(d/time.Second) + 1)
}
