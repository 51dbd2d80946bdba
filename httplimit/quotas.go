package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Quotas are the states of the limits on one request, for middlewares that decide by themselves and
// answer as [New]'s does.
type Quotas []Quota

// Quota is the state of one limit.
type Quota struct {
	// Name appears in the RateLimit fields and in the problem. Bytes that are no printable ASCII
	// are replaced by "?", and names over 64 bytes are cut.
	Name string

	Limit     uint64
	Duration  time.Duration
	Remaining uint64
	Reset     time.Duration // until more remains or, if Denied, until the request would pass
	Denied    bool
}

// SetFields adds the fields of [HeadersDraft] for the quotas: RateLimit-Policy and RateLimit. If a
// quota is Denied, only the items of denied quotas have a t.
func (q Quotas) SetFields(h http.Header) {
	if len(q) == 0 {
		return
	}
	var policies, limits []byte
	denied := q.denied()
	for i := range q {
		if i > 0 {
			policies, limits = append(policies, ", "...), append(limits, ", "...)
		}
		name := printableName(q[i].Name)
		policies = appendPolicy(policies, name, q[i].Limit, q[i].Duration)
		limits = append(append(limits, quote(name)...), ";r="...)
		limits = strconv.AppendUint(limits, min(q[i].Remaining, maxInteger), 10)
		if t := ceilSeconds(q[i].Reset); !denied || q[i].Denied {
			limits = strconv.AppendInt(append(limits, ";t="...), max(1, t), 10)
		}
	}
	h.Add(fieldPolicy, string(policies))
	h.Add(fieldRateLimit, string(limits))
}

func (q Quotas) denied() bool {
	for i := range q {
		if q[i].Denied {
			return true
		}
	}
	return false
}

// Deny answers a denied request with status, the quotas' fields, Retry-After, and a problem that
// names the denied quotas.
func (q Quotas) Deny(w http.ResponseWriter, status int) {
	var names []string
	var longest int64
	for i := range q {
		if q[i].Denied {
			names = append(names, printableName(q[i].Name))
			longest = max(longest, 1, ceilSeconds(q[i].Reset))
		}
	}
	detail := detailUsedUp
	if len(names) > 1 {
		detail = detailSeveral
	}
	q.SetFields(w.Header())
	if longest > 0 {
		w.Header().Set(fieldRetryAfter, strconv.FormatInt(longest, 10))
	}
	writeProblem(w, status, deniedProblem(status, detail, names...))
}

// Undecided answers 503 to a request that could not be decided.
func Undecided(w http.ResponseWriter) {
	const status = http.StatusServiceUnavailable
	writeProblem(w, status, problem{problemCapacity, titleCapacity, status, detailUndecided, nil}.body())
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
