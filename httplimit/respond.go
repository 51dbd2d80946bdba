package httplimit

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/weirgo/weir"
)

// Problem types (RFC 9457): the first three are those of the RateLimit draft, section 5.
const (
	problemQuota     = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	problemAbnormal  = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
	problemCapacity  = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	problemUntyped   = "about:blank"
	problemMediaType = "application/problem+json"
)

// problem is the body of an answer.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

func (p problem) body() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // cannot happen: strings and a number
	}
	return append(body, '\n')
}

// The details of a denial.
const (
	detailUsedUp  = "The limit of this policy is used up."
	detailCost    = "This request costs more than the policy ever admits."
	detailSeveral = "The limits of these policies are used up."
)

const (
	titleCapacity   = "Temporary Reduced Capacity"
	detailUndecided = "The rate limiter could not decide."
)

// deniedProblem is the body of a denial by these policies.
func deniedProblem(status int, detail string, names ...string) []byte {
	return problem{problemQuota, "Quota Exceeded", status, detail, names}.body()
}

// answer answers in the handler's place.
func (m *middleware) answer(w http.ResponseWriter, r *http.Request, f *fields, c *call) {
	if wait := m.retryAfter(c); wait > 0 {
		f.set(fieldRetryAfter, strconv.FormatInt(wait, 10))
	}
	f.set(fieldCache, "no-store") // RFC 6585: a cache must not store a 429
	m.allowOrigin(w.Header(), r)
	if m.Respond != nil {
		m.Respond(w, r, m.report(c))
		return
	}
	f.set(fieldContentType, problemMediaType)
	w.WriteHeader(c.status)
	_, _ = w.Write(m.problemBody(c)) // an error means that the client is gone
}

// retryAfter returns the seconds to wait, at least 1; 0 if waiting does not help or its length is
// unknown.
func (m *middleware) retryAfter(c *call) int64 {
	switch {
	case c.outcome == Denied:
		return c.quotas.retryAfter(c.jitter)
	case c.outcome == Listed && !c.until.IsZero():
		return max(1, ceilSeconds(m.until(c.until))) + jitterSeconds(m.Jitter)
	case c.outcome == Busy, c.outcome == Failed && errors.Is(c.err, weir.ErrFull):
		return 1 + jitterSeconds(m.Jitter) // a retry may pass at any time
	}
	return 0
}

func (m *middleware) problemBody(c *call) []byte {
	p := problem{Status: c.status}
	switch c.outcome {
	case Denied:
		return c.deniedBody()
	case Listed:
		p.Type, p.Title = problemAbnormal, "Abnormal Usage Detected"
		p.Detail = "This caller is on the deny list."
	case NoKey:
		p.Type, p.Title, p.Detail = problemUntyped, "Bad Request", "The request does not say who sent it."
	case Busy:
		p.Type, p.Title, p.Detail = problemCapacity, titleCapacity, "Too many requests are in flight."
	default:
		p.Type, p.Title, p.Detail = problemCapacity, titleCapacity, detailUndecided
	}
	return p.body()
}

func (c *call) deniedBody() []byte {
	names := c.quotas.violated()
	s := &c.states[c.decider]
	switch {
	case len(names) > 1:
		return deniedProblem(c.status, detailSeveral, names...)
	case s.ask.Result.ExpiresAt.IsZero() && s.ask.Request.Limit > 0:
		return deniedProblem(c.status, detailCost, names...)
	}
	return s.problem
}

// allowOrigin lets scripts of an allowed origin read the answer, unless a CORS middleware has set
// its fields already.
func (m *middleware) allowOrigin(h http.Header, r *http.Request) {
	if len(m.CORS.Origins) == 0 || h.Get("Access-Control-Allow-Origin") != "" {
		return
	}
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	switch {
	case origin == "":
		return
	case slices.Contains(m.CORS.Origins, "*"):
		h.Set("Access-Control-Allow-Origin", "*")
	case slices.Contains(m.CORS.Origins, origin):
		h.Set("Access-Control-Allow-Origin", origin)
		if m.CORS.Credentials {
			h.Set("Access-Control-Allow-Credentials", "true")
		}
	default:
		return
	}
	h.Set("Access-Control-Expose-Headers", m.exposed)
}
