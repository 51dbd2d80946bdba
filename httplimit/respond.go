package httplimit

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
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

// deniedProblem is the body of a denial by these policies.
func deniedProblem(status int, names ...string) []byte {
	detail := "The limit of this policy is used up."
	if len(names) > 1 {
		detail = "The limits of these policies are used up."
	}
	return problem{problemQuota, "Quota Exceeded", status, detail, names}.body()
}

// answer answers in the handler's place.
func (m *middleware) answer(w http.ResponseWriter, r *http.Request, f *fields, c *call, now time.Time) {
	if s := m.retryAfter(c, now); s > 0 {
		f.set(fieldRetryAfter, strconv.FormatInt(s, 10))
	}
	f.set(fieldCache, "no-store") // RFC 6585: a cache must not store a 429
	if m.Respond != nil {
		m.Respond(w, r, m.report(c))
		return
	}
	f.set(fieldContentType, problemMediaType)
	w.WriteHeader(c.status)
	_, _ = w.Write(m.problemBody(c)) // if the client has gone there is nobody to tell
}

func (m *middleware) retryAfter(c *call, now time.Time) int64 {
	switch {
	case c.outcome == Denied:
		return retryAfter(c.asked, now, c.jitter)
	case c.outcome == Listed && !c.until.IsZero():
		return max(1, ceilSeconds(c.until.Sub(now))) + jitterSeconds(m.Jitter)
	}
	return 0
}

func (m *middleware) problemBody(c *call) []byte {
	switch c.outcome {
	case Denied:
		names := c.violated()
		if len(names) == 1 {
			return c.asked[c.decider].problem
		}
		return deniedProblem(c.status, names...)
	case Listed:
		return problem{problemAbnormal, "Abnormal Usage Detected", c.status, "This caller is on the deny list.", nil}.body()
	case NoKey:
		return problem{problemUntyped, "Bad Request", c.status, "The request does not say who sent it.", nil}.body()
	}
	return problem{problemCapacity, "Temporary Reduced Capacity", c.status, "The rate limiter could not decide.", nil}.body()
}
