package report

import (
	"encoding/json"
	"io"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
)

// Schema is the name and the version of the JSON report. Adding a field does not change the
// version; removing one, or changing its meaning, does. docs/internals/replay-json.md describes the
// fields.
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
		Load        *jsonLoad        `json:"overload,omitempty"`  // with --overload
		Next        []Step           `json:"next"`
	}
	jsonFailure struct {
		replay.Failure
		Error string `json:"error"`
	}
	jsonTimeline struct {
		Start        time.Time `json:"start"`
		WidthSeconds float64   `json:"width_seconds"`
		Requests     []uint64  `json:"requests"`         // in each bin of width seconds
		Denied       []uint64  `json:"denied,omitempty"` // of a caller
	}
	jsonLoad struct {
		*replay.Load
		Goal         replay.Seconds `json:"goal_seconds,omitempty"` // the given one
		RefuseAtMost float64        `json:"refuse_at_most"`         // by Least, from 0 to 1
		Curve        jsonCurve      `json:"in_flight"`
	}
	jsonCurve struct {
		jsonTimeline
		Refused []uint64  `json:"refused"` // of Requests, by the guard
		Average []float64 `json:"average"` // in flight, as is Peak
		Peak    []uint64  `json:"peak"`
	}
	jsonRule struct {
		*replay.RuleResult
		Admitted   uint64       `json:"admitted"`
		Worst      []jsonCaller `json:"worst"`
		Window     float64      `json:"window_seconds,omitempty"` // of the callers' busiest
		DeniedPart float64      `json:"denied_share"`             // from 0 to 1
		Timeline   []uint64     `json:"denied_timeline"`          // by bin of the report's timeline
		// command that enforces the rule; empty if there is none
		Enforce string `json:"enforce"`
	}
	jsonCaller struct {
		*replay.Caller
		Timeline *jsonTimeline `json:"timeline,omitempty"`
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
		Timeline:   timelineOf(r.Timeline),
		Assumption: Assumption(r), Rules: []jsonRule{}, Suggestions: jsonSuggestions(r, r.Suggestions),
		Next: append([]Step{}, Next(r)...),
	}
	for _, f := range r.Failed {
		out.FailedFiles = append(out.FailedFiles, jsonFailure{f, f.Err.Error()})
	}
	if l := r.Load; l != nil {
		curve := jsonCurve{timelineOf(l.Curve.Timeline), l.Curve.Rows[replay.CurveRefused], nil,
			l.Curve.Peaks}
		for i := range l.Curve.Bins() {
			curve.Average = append(curve.Average, roundTo(l.Curve.Average(i), 6))
		}
		out.Load = &jsonLoad{l, replay.Seconds(r.Overload.Goal), r.Overload.RefuseAtMost, curve}
	}
	for i := range r.Rules {
		rr := &r.Rules[i]
		one := jsonRule{RuleResult: rr, Admitted: rr.Admitted(), Worst: []jsonCaller{},
			DeniedPart: fraction(rr.Denied, rr.Matched), Timeline: r.Timeline.Rows[1+i]}
		one.Enforce, _ = Enforce(r, rr)
		for k := range rr.Worst {
			c := jsonCaller{Caller: &rr.Worst[k]}
			if c.Detail != nil {
				length, _ := rr.Window()
				of := timelineOf(c.Detail.Timeline)
				of.Denied, c.Timeline, one.Window = c.Detail.Timeline.Rows[1], &of, length.Seconds()
			}
			one.Worst = append(one.Worst, c)
		}
		out.Rules = append(out.Rules, one)
	}
	for _, e := range r.Endpoints {
		out.Endpoints = append(out.Endpoints, jsonEndpoint{e, jsonSuggestions(r, e.Suggestions)})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(out)
}

func timelineOf(t *replay.Timeline) jsonTimeline {
	return jsonTimeline{Start: t.Start, WidthSeconds: t.Width.Seconds(), Requests: t.Rows[0]}
}

func jsonSuggestions(r *replay.Result, all []replay.Suggestion) []jsonSuggestion {
	out := []jsonSuggestion{}
	for _, s := range all {
		out = append(out, jsonSuggestion{s, s.Duration.Seconds(), r.Suggest.DenyAtMost})
	}
	return out
}
