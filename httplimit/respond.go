package httplimit

import "encoding/json"

// Problem types (RFC 9457): the first three are of the RateLimit draft, section 5.
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

// violated returns the names of the limits that deny.
func violated(states []state) (names []string) {
	for i := range states {
		if s := &states[i]; s.denied && !s.exempt {
			names = append(names, printableName(s.shown.name))
		}
	}
	return names
}
