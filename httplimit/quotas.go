package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/structuredfield"
)

// Quotas are the states of the limits on one request, for middlewares that decide by themselves and
// answer as [New]'s does, by SetFields and Deny, or [Undecided].
type Quotas []Quota

// Quota is the state of one limit.
type Quota struct {
	// Name appears in the RateLimit fields and in the problem. Bytes that are no printable ASCII
	// are replaced by "?", and names over 64 bytes are cut.
	Name string

	Limit     uint64
	Duration  time.Duration
	Remaining uint64
	Denied    bool

	// Reset is the time until more remains or, if Denied, until the request would pass; negative for
	// never.
	Reset time.Duration

	// InFlight reports that Limit is of requests in flight at one time, so that Duration has no
	// meaning.
	InFlight bool

	exempt, undecided bool   // what the fields leave out: all, and what remains
	item              string // computed before: `"name";r=`
}

// retryPlace is how long a client waits that has no place: one may be free at any time.
const retryPlace = time.Second

// SetPlaces makes q the state of a limit on requests in flight, of which nobody knows when more of
// it is free: a client that is Denied may try again in a second, and never if its request cannot
// pass.
func (q *Quota) SetPlaces(never bool) {
	q.InFlight = true
	if q.Reset = -1; q.Denied && !never {
		q.Reset = retryPlace
	}
}

// SetFields adds the fields of [HeadersDraft] for the quotas: RateLimit-Policy and RateLimit. If a
// quota is Denied, only the items of denied quotas have a t.
func (q Quotas) SetFields(h http.Header) {
	if len(q) == 0 {
		return
	}
	h.Add(fieldPolicy, string(q.appendPolicies(nil)))
	h.Add(fieldRateLimit, string(q.appendRemaining(nil, 0)))
}

// appendPolicies appends the RateLimit-Policy field: a List of Strings with Parameters.
func (q Quotas) appendPolicies(dst []byte) []byte {
	for i := range q {
		if q[i].exempt {
			continue
		}
		dst = append(appendComma(dst), structuredfield.Quote(printableName(q[i].Name))...)
		dst = append(dst, ";q="...)
		dst = strconv.AppendUint(dst, min(q[i].Limit, structuredfield.MaxInteger), 10)
		if q[i].InFlight {
			dst = append(dst, `;qu="concurrent-requests"`...)
		} else if d := q[i].Duration; d >= time.Second && d%time.Second == 0 {
			dst = append(dst, ";w="...)
			dst = strconv.AppendInt(dst, int64(d/time.Second), 10)
		}
	}
	return dst
}

// appendRemaining appends the RateLimit field.
func (q Quotas) appendRemaining(dst []byte, jitter int64) []byte {
	denied := q.denied()
	for i := range q {
		if q[i].exempt || q[i].undecided {
			continue
		}
		if dst = appendComma(dst); q[i].item != "" {
			dst = append(dst, q[i].item...)
		} else {
			dst = append(dst, itemOf(printableName(q[i].Name))...)
		}
		dst = strconv.AppendUint(dst, min(q[i].Remaining, structuredfield.MaxInteger), 10)
		if q[i].Reset < 0 || denied && !q[i].Denied {
			continue
		}
		t := ceilSeconds(q[i].Reset)
		if denied {
			t = max(1, t) + jitter
		}
		dst = append(dst, ";t="...)
		dst = strconv.AppendInt(dst, t, 10)
	}
	return dst
}

// appendComma separates the items of a List.
func appendComma(dst []byte) []byte {
	if len(dst) > 0 {
		dst = append(dst, ", "...)
	}
	return dst
}

func itemOf(name string) string { return structuredfield.Quote(name) + ";r=" }

func (q Quotas) denied() bool {
	for i := range q {
		if q[i].Denied {
			return true
		}
	}
	return false
}

// retryAfter returns the seconds after which the same request passes every quota, at least 1; 0 if
// none is Denied, or one of them never lets it pass.
func (q Quotas) retryAfter(jitter int64) int64 {
	var longest int64
	for i := range q {
		switch {
		case !q[i].Denied:
			continue
		case q[i].Reset < 0:
			return 0
		}
		longest = max(longest, 1, ceilSeconds(q[i].Reset))
	}
	if longest > 0 {
		longest += jitter
	}
	return longest
}

// violated returns the names of the quotas that are Denied.
func (q Quotas) violated() (names []string) {
	for i := range q {
		if q[i].Denied && !q[i].exempt {
			names = append(names, printableName(q[i].Name))
		}
	}
	return names
}

// Deny answers a denied request with status, the quotas' fields, Retry-After, and a problem that
// names the denied quotas.
func (q Quotas) Deny(w http.ResponseWriter, status int) {
	names, detail := q.violated(), detailUsedUp
	if len(names) > 1 {
		detail = detailSeveral
	}
	q.SetFields(w.Header())
	if wait := q.retryAfter(0); wait > 0 {
		w.Header().Set(fieldRetryAfter, strconv.FormatInt(wait, 10))
	}
	writeProblem(w, status, deniedProblem(status, detail, names...))
}

// Undecided answers 503 to a request that could not be decided.
func Undecided(w http.ResponseWriter) {
	p := problem{problemCapacity, titleCapacity, http.StatusServiceUnavailable, detailUndecided, nil}
	writeProblem(w, p.Status, p.body())
}

func writeProblem(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set(fieldCache, "no-store") // RFC 6585: a cache must not store a 429
	w.Header().Set(fieldContentType, problemMediaType)
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client is gone
}

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
