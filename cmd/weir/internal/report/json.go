package report

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirgo/weir/cmd/weir/internal/replay"
)

// Schema is the name and the version of the JSON report and of the columns of CSV. Adding a field
// or a column does not change the version; removing one, or changing its meaning, does.
// docs/replay.md describes the fields.
const Schema = "weir.replay/1"

type (
	jsonReport struct {
		Schema       string             `json:"schema"`
		Files        []string           `json:"files"`
		EmptyFiles   []string           `json:"empty_files"`
		FailedFiles  []jsonFailure      `json:"failed_files"`
		By           string             `json:"by"`
		Lines        uint64             `json:"lines"` // requests + filtered + unkeyed + unreadable
		Requests     uint64             `json:"requests"`
		Uncounted    uint64             `json:"uncounted"`
		Filtered     uint64             `json:"filtered"`
		Unkeyed      uint64             `json:"unkeyed"`
		Unreadable   jsonUnreadable     `json:"unreadable"`
		Doubts       []string           `json:"doubts"`
		WholeSeconds bool               `json:"whole_seconds"`
		Callers      int                `json:"callers"`
		First        time.Time          `json:"first"`
		Last         time.Time          `json:"last"`
		Timeline     jsonTimeline       `json:"timeline"`
		Assumption   string             `json:"assumption"` // of the counts of denials
		Rules        []jsonRule         `json:"rules"`
		Suggestions  []jsonSuggestion   `json:"suggestions"`
		Apart        replay.Apart       `json:"apart"`               // of requests
		Compared     *replay.Comparison `json:"compared,omitempty"`  // with --compare
		Endpoints    []jsonEndpoint     `json:"endpoints,omitempty"` // with --by-route
		Next         []Step             `json:"next"`
	}
	jsonEndpoint struct {
		Endpoint    string           `json:"endpoint"`
		Requests    uint64           `json:"requests"`
		Callers     int              `json:"callers"`
		Suggestions []jsonSuggestion `json:"suggestions"`
	}
	jsonFailure struct {
		File  string `json:"file"`
		Error string `json:"error"`
		Part  bool   `json:"part"` // the part before the error counts
	}
	jsonUnreadable struct {
		Count    uint64        `json:"count"`
		Examples []jsonExample `json:"examples"`
	}
	jsonExample struct {
		File   string `json:"file"`
		Line   uint64 `json:"line"`
		Reason string `json:"reason"`
		Text   string `json:"text"`
	}
	jsonTimeline struct {
		Start        time.Time `json:"start"`
		WidthSeconds float64   `json:"width_seconds"`
		Requests     []uint64  `json:"requests"` // in each bin of width seconds
	}
	jsonRule struct {
		Name     string `json:"name,omitempty"`
		Limit    string `json:"limit"`
		Strategy string `json:"strategy"`
		Burst    uint64 `json:"burst,omitempty"`
		// a rule of a set in shadow mode, which does not deny requests
		Shadow        bool         `json:"shadow,omitempty"`
		Matched       uint64       `json:"matched"` // requests that the rule applies to
		Admitted      uint64       `json:"admitted"`
		Denied        uint64       `json:"denied"`
		DeniedShare   float64      `json:"denied_share"`   // from 0 to 1
		CallersDenied int          `json:"callers_denied"` // callers with at least one denial
		Worst         []jsonCaller `json:"worst"`
		Timeline      []uint64     `json:"denied_timeline"`    // by bin of the report's timeline
		Replicas      int          `json:"replicas,omitempty"` // instances without a shared store
		Apart         replay.Apart `json:"denied_apart"`       // of denied
		Enforce       string       `json:"enforce"`            // command that enforces the rule; empty if there is none
	}
	jsonCaller struct {
		Caller      string    `json:"caller"`
		Requests    uint64    `json:"requests"`
		Denied      uint64    `json:"denied"`
		FirstDenied time.Time `json:"first_denied"`
	}
	jsonSuggestion struct {
		Strategy        string  `json:"strategy"`
		Burst           uint64  `json:"burst,omitempty"`
		DurationSeconds float64 `json:"duration_seconds"`
		Limit           *uint64 `json:"limit"` // null if no limit is high enough
		// the given share of callers that may be denied, from 0 to 1
		DenyAtMost    float64   `json:"deny_at_most"`
		CallersDenied int       `json:"callers_denied"` // callers with a peak above limit
		Peaks         jsonPeaks `json:"peaks"`
		Histogram     []jsonBin `json:"histogram"`
	}
	jsonPeaks struct {
		P50  *uint64 `json:"p50"`
		P90  *uint64 `json:"p90"`
		P99  *uint64 `json:"p99"`
		P999 *uint64 `json:"p99_9"`
		Max  *uint64 `json:"max"`
	}
	jsonBin struct {
		From    uint64 `json:"from"`
		To      uint64 `json:"to"`
		Callers int    `json:"callers"`
	}
)

// JSON writes the report as one object.
func JSON(w io.Writer, r *replay.Result) error {
	out := jsonReport{
		Schema: Schema, Files: valid(r.Files), EmptyFiles: valid(r.Empty), By: string(r.By), Lines: r.Lines,
		Requests:  r.Requests,
		Uncounted: r.Uncounted, Filtered: r.Filtered, Unkeyed: r.Unkeyed, WholeSeconds: r.Coarse,
		Doubts: valid(r.Doubts), Assumption: Assumption(r),
		Unreadable: jsonUnreadable{r.Unreadable.Count, []jsonExample{}},
		Callers:    r.Callers, First: r.First, Last: r.Last,
		Timeline: jsonTimeline{r.Timeline.Start, r.Timeline.Width.Seconds(), r.Timeline.Rows[0]},
		Rules:    []jsonRule{}, Suggestions: []jsonSuggestion{}, FailedFiles: []jsonFailure{},
		Apart: r.Apart, Compared: jsonCompared(r.Compared), Next: append([]Step{}, Next(r)...),
	}
	for _, f := range r.Failed {
		out.FailedFiles = append(out.FailedFiles, jsonFailure{utf8Only(f.Name), utf8Only(f.Err.Error()), f.Part})
	}
	for _, e := range r.Unreadable.Examples {
		out.Unreadable.Examples = append(out.Unreadable.Examples,
			jsonExample{utf8Only(e.File), e.Line, e.Reason, utf8Only(e.Text)})
	}
	for i := range r.Rules {
		out.Rules = append(out.Rules, jsonRuleOf(r, i))
	}
	for _, s := range r.Suggestions {
		out.Suggestions = append(out.Suggestions, jsonSuggestionOf(s, r.Suggest.Share))
	}
	for _, e := range r.Endpoints {
		one := jsonEndpoint{utf8Only(e.Name), e.Requests, e.Callers, []jsonSuggestion{}}
		for _, s := range e.Suggestions {
			one.Suggestions = append(one.Suggestions, jsonSuggestionOf(s, r.Suggest.Share))
		}
		out.Endpoints = append(out.Endpoints, one)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(out)
}

func jsonRuleOf(r *replay.Result, i int) jsonRule {
	rr := &r.Rules[i]
	out := jsonRule{
		Name: utf8Only(rr.Rule.Name), Limit: rr.Rule.Limit, Strategy: rr.Rule.Strategy, Burst: rr.Rule.Burst,
		Shadow: rr.Shadow, Matched: rr.Matched,
		Admitted: admitted(rr), Denied: rr.Denied, DeniedShare: share(rr.Denied, rr.Matched),
		Replicas: rr.Replicas, Apart: rr.Apart, CallersDenied: rr.Met, Worst: []jsonCaller{}, Timeline: r.Timeline.Rows[1+i],
	}
	out.Enforce, _ = Enforce(r, rr)
	for _, c := range rr.Worst {
		out.Worst = append(out.Worst, jsonCaller{utf8Only(c.Name), c.Requests, c.Denied, c.FirstDenied})
	}
	return out
}

// jsonCompared returns c with names that are UTF-8.
func jsonCompared(c *replay.Comparison) *replay.Comparison {
	if c == nil {
		return nil
	}
	out := *c
	for i := range out.Only {
		out.Names[i] = utf8Only(c.Names[i])
		callers := slices.Clone(c.Only[i].Callers) // paths are escaped
		for k := range callers {
			callers[k].Name = utf8Only(callers[k].Name)
		}
		out.Only[i].Callers = callers
	}
	return &out
}

func jsonSuggestionOf(s replay.Suggestion, share float64) jsonSuggestion {
	out := jsonSuggestion{
		Strategy: s.Strategy, Burst: s.Burst, DurationSeconds: s.Duration.Seconds(), Limit: orNull(s.Limit),
		DenyAtMost: share, CallersDenied: s.Denied, Histogram: []jsonBin{},
		Peaks: jsonPeaks{orNull(s.Peaks.P50), orNull(s.Peaks.P90), orNull(s.Peaks.P99), orNull(s.Peaks.P999),
			orNull(s.Peaks.Max)},
	}
	for _, b := range s.Peaks.Histogram {
		out.Histogram = append(out.Histogram, jsonBin(b))
	}
	return out
}

// orNull returns n, or nil if no limit is high enough.
func orNull(n uint64) *uint64 {
	if n == replay.NoLimit {
		return nil
	}
	return &n
}

func valid(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = utf8Only(n)
	}
	return out
}

// utf8Only replaces invalid UTF-8 by \xHH. encoding/json would replace all invalid bytes by the
// same character, and so merge callers.
func utf8Only(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	const hex = "0123456789abcdef"
	var b strings.Builder
	var w int
	for ; len(s) > 0; s = s[w:] {
		var r rune
		if r, w = utf8.DecodeRuneInString(s); r == utf8.RuneError && w == 1 {
			b.WriteString(`\x`)
			b.WriteByte(hex[s[0]>>4])
			b.WriteByte(hex[s[0]&15])
			continue
		}
		b.WriteString(s[:w])
	}
	return b.String()
}
