package report

import (
	"encoding/json"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirgo/weir/cmd/weir/internal/replay"
)

// The JSON report. Its field names are an interface: fields may be added, not changed.
type (
	jsonReport struct {
		Files      []string       `json:"files"`
		By         string         `json:"by"`
		Lines      uint64         `json:"lines"` // requests + unkeyed + unreadable
		Requests   uint64         `json:"requests"`
		Unkeyed    uint64         `json:"unkeyed"`
		Unreadable jsonUnreadable `json:"unreadable"`
		Late       jsonLate       `json:"late"`
		Callers    int            `json:"callers"`
		First      time.Time      `json:"first"`
		Last       time.Time      `json:"last"`
		Timeline   jsonTimeline   `json:"timeline"`
		Rules      []jsonRule     `json:"rules"`
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
	jsonLate struct {
		Count          uint64  `json:"count"`
		AtWorstSeconds float64 `json:"at_worst_seconds"`
		ReorderSeconds float64 `json:"reorder_seconds"`
	}
	jsonTimeline struct {
		Start        time.Time `json:"start"`
		WidthSeconds float64   `json:"width_seconds"`
		Requests     []uint64  `json:"requests"` // in each bin of that width
	}
	jsonRule struct {
		Limit         string       `json:"limit"`
		Strategy      string       `json:"strategy"`
		Burst         uint64       `json:"burst,omitempty"`
		Admitted      uint64       `json:"admitted"`
		Denied        uint64       `json:"denied"`
		DeniedShare   float64      `json:"denied_share"`   // from 0 to 1
		CallersDenied int          `json:"callers_denied"` // who met at least one denial
		Worst         []jsonCaller `json:"worst"`
		Timeline      []uint64     `json:"denied_timeline"` // in the bins of the report's timeline
	}
	jsonCaller struct {
		Caller      string    `json:"caller"`
		Requests    uint64    `json:"requests"`
		Denied      uint64    `json:"denied"`
		FirstDenied time.Time `json:"first_denied"`
	}
)

// JSON writes the report as one object.
func JSON(w io.Writer, r *replay.Result) error {
	out := jsonReport{
		Files: valid(r.Files), By: string(r.By), Lines: r.Lines, Requests: r.Requests, Unkeyed: r.Unkeyed,
		Unreadable: jsonUnreadable{r.Unreadable.Count, []jsonExample{}},
		Late:       jsonLate{r.Late, r.LateBy.Seconds(), r.Reorder.Seconds()},
		Callers:    r.Callers, First: r.First, Last: r.Last,
		Timeline: jsonTimeline{r.Timeline.Start, r.Timeline.Width.Seconds(), r.Timeline.Rows[0]},
	}
	for _, e := range r.Unreadable.Examples {
		out.Unreadable.Examples = append(out.Unreadable.Examples, jsonExample{utf8Only(e.File), e.Line, e.Reason, utf8Only(e.Text)})
	}
	for i := range r.Rules {
		rr := &r.Rules[i]
		rule := jsonRule{
			Limit: rr.Rule.Limit, Strategy: rr.Rule.Strategy, Burst: rr.Rule.Burst,
			Admitted: admitted(r, rr), Denied: rr.Denied, DeniedShare: share(rr.Denied, r.Requests),
			CallersDenied: rr.Met, Worst: []jsonCaller{}, Timeline: r.Timeline.Rows[1+i],
		}
		for _, c := range rr.Worst {
			rule.Worst = append(rule.Worst, jsonCaller{utf8Only(c.Name), c.Requests, c.Denied, c.FirstDenied})
		}
		out.Rules = append(out.Rules, rule)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(out)
}

func valid(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = utf8Only(n)
	}
	return out
}

// utf8Only writes bytes that are no UTF-8 as \xHH. encoding/json would make the same character of all of them, and one
// caller of many.
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
