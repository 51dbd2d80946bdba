package report

import (
	"encoding/json"
	"io"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/replay"
)

// Schema is the name and the version of the JSON report. Adding a field does not change the
// version; removing one, or changing its meaning, does. docs/replay.md describes the fields.
const Schema = "weir.replay/1"

// The JSON report has the fields of a replay.Result, and what is worked out from it.
type (
	jsonReport struct {
		Schema string    `json:"schema"`
		Files  []string  `json:"files"`
		By     replay.By `json:"by"`
		*replay.Result
		FailedFiles []jsonFailure    `json:"failed_files"`
		Timeline    jsonTimeline     `json:"timeline"`
		Assumption  string           `json:"assumption"` // of the counts of denials
		Rules       []jsonRule       `json:"rules"`
		Suggestions []jsonSuggestion `json:"suggestions"`
		Endpoints   []jsonEndpoint   `json:"endpoints,omitempty"` // with --by-route
		Next        []Step           `json:"next"`
	}
	jsonFailure struct {
		replay.Failure
		Error string `json:"error"`
	}
	jsonTimeline struct {
		Start        time.Time `json:"start"`
		WidthSeconds float64   `json:"width_seconds"`
		Requests     []uint64  `json:"requests"` // in each bin of width seconds
	}
	jsonRule struct {
		*replay.RuleResult
		Admitted   uint64   `json:"admitted"`
		DeniedPart float64  `json:"denied_share"`    // from 0 to 1
		Timeline   []uint64 `json:"denied_timeline"` // by bin of the report's timeline
		// command that enforces the rule; empty if there is none
		Enforce string `json:"enforce"`
	}
	jsonEndpoint struct {
		replay.Endpoint
		Suggestions []jsonSuggestion `json:"suggestions"`
	}
	jsonSuggestion struct {
		replay.Suggestion
		DurationSeconds float64 `json:"duration_seconds"`
		// the given fraction of callers that may be denied, from 0 to 1
		DenyAtMost float64 `json:"deny_at_most"`
	}
)

// JSON writes the report as one object.
func JSON(w io.Writer, r *replay.Result) error {
	out := jsonReport{
		Schema: Schema, Files: r.Files, By: r.By, Result: r, FailedFiles: []jsonFailure{},
		Timeline:   jsonTimeline{r.Timeline.Start, r.Timeline.Width.Seconds(), r.Timeline.Rows[0]},
		Assumption: Assumption(r), Rules: []jsonRule{}, Suggestions: jsonSuggestions(r, r.Suggestions),
		Next: append([]Step{}, Next(r)...),
	}
	for _, f := range r.Failed {
		out.FailedFiles = append(out.FailedFiles, jsonFailure{f, f.Err.Error()})
	}
	for i := range r.Rules {
		rr := &r.Rules[i]
		command, _ := Enforce(r, rr)
		out.Rules = append(out.Rules, jsonRule{rr, rr.Admitted(), fraction(rr.Denied, rr.Matched),
			r.Timeline.Rows[1+i], command})
	}
	for _, e := range r.Endpoints {
		out.Endpoints = append(out.Endpoints, jsonEndpoint{e, jsonSuggestions(r, e.Suggestions)})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(out)
}

func jsonSuggestions(r *replay.Result, all []replay.Suggestion) []jsonSuggestion {
	out := []jsonSuggestion{}
	for _, s := range all {
		out = append(out, jsonSuggestion{s, s.Duration.Seconds(), r.Suggest.DenyAtMost})
	}
	return out
}
