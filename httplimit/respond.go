package httplimit

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/weirgo/weir/overload"
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
	detailShare   = "This caller holds its share of what the service can handle at one time."
)

const titleCapacity = "Temporary Reduced Capacity"

// deniedProblem is the body of a denial by these policies.
func deniedProblem(status int, detail string, names ...string) []byte {
	return problem{problemQuota, "Quota Exceeded", status, detail, names}.body()
}

// refusalFields is the number of fields of a refusal besides the style's: Retry-After,
// Cache-Control and Content-Type.
const refusalFields = 3

// setRetryAfter sets Retry-After, unless waiting does not help.
func (c *call) setRetryAfter(f *fields) {
	if wait := c.retryAfter(); wait > 0 && !c.passes() {
		f.set(fieldRetryAfter, strconv.FormatInt(ceilSeconds(wait), 10))
	}
}

// refuse answers in the handler's place.
func (c *call) refuse(w http.ResponseWriter, r *http.Request) {
	f := fields{header: w.Header(), values: make([]string, len(styleFields[c.Headers])+refusalFields)}
	c.setFields(&f)
	c.setRetryAfter(&f)
	f.set(fieldCache, "no-store") // RFC 6585: a cache must not store a 429
	c.CORS.allow(w.Header(), r, c.exposed)
	if c.Respond != nil {
		c.Respond(w, r, c.report())
		return
	}
	f.set(fieldContentType, problemMediaType)
	w.WriteHeader(c.status)
	_, _ = w.Write(c.problemBody()) // an error means that the client is gone
}

func (c *call) problemBody() []byte {
	p := problem{Status: c.status}
	switch c.kind {
	case Denied:
		return c.deniedBody()
	case Listed:
		p.Type, p.Title = problemAbnormal, "Abnormal Usage Detected"
		p.Detail = "This caller is on the deny list."
	case NoKey:
		p.Type, p.Title = problemUntyped, http.StatusText(c.status)
		p.Detail = "The request does not say who sent it."
		if c.verdict != nil && c.verdict.Invalid != nil {
			p.Detail = "This request is refused: " + c.err.Error() + "."
		}
	case Busy:
		if c.full != nil && c.full.Reason == overload.ShareUsed {
			return deniedProblem(c.status, detailShare, shareName)
		}
		p.Type, p.Title, p.Detail = problemCapacity, titleCapacity, "Too many requests are in flight."
	default:
		p.Type, p.Title, p.Detail = problemCapacity, titleCapacity, "The rate limiter could not decide."
	}
	return p.body()
}

func (c *call) deniedBody() []byte {
	names := violated(c.states)
	detail := detailUsedUp
	if c.decider == none { // a Decider has reported no limit
		return deniedProblem(c.status, detail)
	}
	switch s := &c.states[c.decider]; {
	case len(names) > 1:
		detail = detailSeveral
	case s.ask.Never() && s.ask.Request.Limit > 0:
		detail = detailCost
	case s.policy != nil:
		return s.problem
	}
	return deniedProblem(c.status, detail, names...)
}

// violated returns the names of the limits that deny.
func violated(states []state) (names []string) {
	for i := range states {
		if s := &states[i]; s.denied && !s.exempt {
			names = append(names, printableName(s.shown.name))
		}
	}
	return names
}
