package httplimit

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

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
		panic(err) // strings and a number
	}
	return append(body, '\n')
}

// What a denial's body says, for one policy; several have no more to say than that they are
// several.
const (
	detailUsedUp  = "The limit of this policy is used up."
	detailCost    = "This request costs more than the policy ever admits."
	detailSeveral = "The limits of these policies are used up."
)

// deniedProblem is the body of a denial by these policies.
func deniedProblem(status int, detail string, names ...string) []byte {
	return problem{problemQuota, "Quota Exceeded", status, detail, names}.body()
}

// answer answers in the handler's place.
func (m *middleware) answer(w http.ResponseWriter, r *http.Request, f *fields, c *call, now time.Time) {
	if s := m.retryAfter(c, now); s > 0 {
		f.set(fieldRetryAfter, strconv.FormatInt(s, 10))
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

// retryAfter returns the seconds that the client should wait, at least 1; 0 if waiting is of no use
// or of unknown length.
func (m *middleware) retryAfter(c *call, now time.Time) int64 {
	switch {
	case c.outcome == Denied:
		return retryAfter(c.asked, now, c.jitter)
	case c.outcome == Listed && !c.until.IsZero():
		return max(1, ceilSeconds(c.until.Sub(now))) + jitterSeconds(m.Jitter)
	case c.outcome == Busy, c.outcome == Failed && errors.Is(c.err, weir.ErrFull):
		return 1 + jitterSeconds(m.Jitter) // it may pass at any time
	}
	return 0
}

func (m *middleware) problemBody(c *call) []byte {
	switch c.outcome {
	case Denied:
		return c.deniedBody()
	case Listed:
		return problem{problemAbnormal, "Abnormal Usage Detected", c.status, "This caller is on the deny list.", nil}.body()
	case NoKey:
		return problem{problemUntyped, "Bad Request", c.status, "The request does not say who sent it.", nil}.body()
	case Busy:
		return problem{problemCapacity, "Temporary Reduced Capacity", c.status, "Too many requests are in flight.", nil}.body()
	}
	return problem{problemCapacity, "Temporary Reduced Capacity", c.status, "The rate limiter could not decide.", nil}.body()
}

func (c *call) deniedBody() []byte {
	names := c.violated()
	a := &c.asked[c.decider]
	switch {
	case len(names) > 1:
		return deniedProblem(c.status, detailSeveral, names...)
	case a.res.ExpiresAt.IsZero() && a.req.Limit > 0:
		return deniedProblem(c.status, detailCost, names...)
	}
	return a.problem
}

// allowOrigin lets a script of an allowed origin read the answer, unless a CORS middleware has
// decided that already.
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
