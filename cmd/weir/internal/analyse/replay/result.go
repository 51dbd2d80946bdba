package replay

import (
	"cmp"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
)

// worse sorts callers, the worst first.
func worse(a, b Caller) int {
	return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Requests, a.Requests),
		a.FirstDenied.Compare(b.FirstDenied), cmp.Compare(a.Name, b.Name))
}

// Apart counts requests that a limit is perhaps not for.
type Apart struct {
	Answered uint64 `json:"answered_429"` // requests that the server answered with 429
}

func (a *Apart) count(m marks) {
	a.Answered += uint64(m & answered / answered)
}

func (a *Apart) add(o Apart) { a.Answered += o.Answered }

// Result is what a replay found. All its text is UTF-8: of what a log has, other bytes are written
// \xHH. The JSON report has its fields under the names in their tags.
type Result struct {
	Config `json:"-"`
	Empty  []string  `json:"empty_files"` // files without a line
	Failed []Failure `json:"-"`
	// the sum of Requests, Filtered, Unkeyed and Unreadable.Count
	Lines     uint64 `json:"lines"`
	Requests  uint64 `json:"requests"`  // decided on
	Uncounted uint64 `json:"uncounted"` // requests whose status does not count
	Filtered  uint64 `json:"filtered"`  // left out by the filter
	// without the field that callers are keyed by; not decided on
	Unkeyed    uint64     `json:"unkeyed"`
	Unreadable Unreadable `json:"unreadable"`
	Coarse     bool       `json:"whole_seconds"` // some times of the log are whole seconds
	Callers    int        `json:"callers"`
	First      time.Time  `json:"first"` // time of the first request
	Last       time.Time  `json:"last"`  // time of the last request
	Timeline   *Timeline  `json:"-"`
	Apart      Apart      `json:"apart"` // of Requests
	// the requests that a Follower moved to another time; nil if the Result is not of one
	Moved *Moved `json:"moved,omitempty"`
	// the last minute of a Follower; likewise
	Minute *Minute `json:"last_minute,omitempty"`
	// with Config.ByEndpoint, in place of Suggestions; the most requested first
	Endpoints   []Endpoint   `json:"-"`
	Names       []string     `json:"-"` // of all endpoints, also those without a suggestion
	Suggestions []Suggestion `json:"-"` // sorted by strategy, then by duration

	// Rules are as in Config.Rules; for a RuleSet, the whole set, then each rule; then those of
	// Replicas.
	Rules []RuleResult `json:"-"`

	Compared *Comparison `json:"compared,omitempty"` // nil without Config.Compare
	Load     *Load       `json:"overload,omitempty"` // nil without Config.Overload

	// Doubts say why the callers are probably not the clients. Unread is set if the first of them is
	// that too many lines could not be read. Doubtful is set if there are some, unless Config.Force
	// is: then nothing is suggested.
	Doubts   []string `json:"doubts"`
	Unread   bool     `json:"-"`
	Doubtful bool     `json:"-"`
}

// count adds the numbers of c to those of r.
func (r *Result) count(c *content) {
	r.Lines += c.lines - c.directives
	r.Requests += uint64(len(c.records))
	r.Uncounted += c.uncounted
	r.Filtered += c.filtered
	r.Unkeyed += c.unkeyed
	if r.Load != nil {
		r.Load.Untimed += c.untimed
		r.Load.Upgraded += c.upgraded
	}
	r.Coarse = r.Coarse || c.coarse
}

// RuleResult counts what one rule would have denied.
type RuleResult struct {
	rule.Rule
	Set      *RuleSet `json:"-"`                  // that the rule is of; nil if it is a limit
	Replicas int      `json:"replicas,omitempty"` // how many instances decided; 0 means one
	Apart    Apart    `json:"denied_apart"`       // of Denied
	// requests that the rule applies to: all, except for a rule of a RuleSet
	Matched uint64 `json:"matched"`
	Denied  uint64 `json:"denied"`         // of the matched requests
	Met     int    `json:"callers_denied"` // callers with at least one denial

	// Shadow is set if Denied counts requests that the rule would deny if it were not in shadow mode.
	Shadow bool `json:"shadow,omitempty"`

	// Worst are the Config.Top callers with the most denials; ties go to the most requests, then to
	// the earliest denial.
	Worst []Caller `json:"worst"`

	// Routes are the Config.Top routes with the most denials, with Config.Routes. A rule of a set has
	// none: the whole set has them.
	Routes []Route `json:"routes,omitempty"`
}

// Admitted returns how many of the matched requests the rule would have admitted.
func (r *RuleResult) Admitted() uint64 { return r.Matched - r.Denied }

// Window returns the windows in which a rule's callers are looked at: as long as the limit is for,
// or a minute if it is for the units of a calendar, or for several durations.
func (r *RuleResult) Window() (length time.Duration, limit uint64) {
	if len(r.Rule.Tiers) != 1 || r.Rule.Strategy == rule.Calendar {
		return time.Minute, 0
	}
	return r.Rule.Tiers[0].Duration, r.Rule.Tiers[0].Limit
}

// Caller is one caller's part of a RuleResult.
type Caller struct {
	Name        string    `json:"caller"`
	Requests    uint64    `json:"requests"`
	Denied      uint64    `json:"denied"`
	FirstDenied time.Time `json:"first_denied"`
	*Detail               // nil without Config.Routes

	number int // until details, with Config.Routes
}
