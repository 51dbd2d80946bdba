package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

var update = flag.Bool("update", false, "write the golden files anew")

// hostile are names of callers that attack the reader of a report.
var hostile = []string{
	"\x1b]0;owned\x07\x1b[2J\r\nfake line",
	`<script>alert(1)</script><img src="http://evil.example/x">`,
	"=HYPERLINK(\"http://evil.example\",\"free\")",
	"+1", "-1", "@SUM(A1)", "'quoted",
	"caf\u00e9 \u202egnp.exe\u2066",
	`\xff\xfe broken`,
	strings.Repeat("/very-long", 60),
}

// example returns a result with three rules and hostile callers.
func example() *replay.Result {
	first := time.Date(2026, 11, 20, 11, 53, 7, 0, time.UTC)
	var requests, few, many, none []uint64
	for i := range 90 {
		n := uint64(20 + i%9*5)
		requests, few, many, none = append(requests, n), append(few, uint64(i%30/29)),
			append(many, n*uint64(i%10)/10), append(none, 0)
	}
	var callers []replay.Caller
	for i, name := range hostile {
		callers = append(callers, replay.Caller{Name: name, Requests: uint64(1500 - 100*i),
			Denied: uint64(1400 - 140*i), FirstDenied: first.Add(time.Duration(i) * time.Second)})
	}
	routes := []replay.Route{{Name: hostile[1], Requests: 900, Denied: 800}, {Name: hostile[9], Requests: 7}}
	opened := slices.Clone(callers)
	for i := range opened {
		at := first.Truncate(time.Minute)
		opened[i].Detail = &replay.Detail{Routes: routes, Busiest: []replay.Window{
			{From: at, Requests: uint64(77 - i), Denied: uint64(57 - i)}, {From: at.Add(time.Minute), Requests: 3}},
			Timeline: &replay.Timeline{Start: at, Width: 30 * time.Second,
				Rows: [][]uint64{{20, 0, uint64(60 - i)}, {0, 0, uint64(57 - i)}}}}
	}
	sum := func(row []uint64) (n uint64) {
		for _, v := range row {
			n += v
		}
		return n
	}
	var only []replay.Count
	for i, name := range hostile {
		only = append(only, replay.Count{Name: name, Denied: uint64(900 - i)})
	}
	apart := replay.Apart{Answered: 1234}
	tier := []weir.Tier{{Limit: 20, Duration: time.Minute}}
	return &replay.Result{
		Config: replay.Config{
			Files: []string{"logs/\x1b[31maccess.log", replay.Stdin}, By: replay.ByIPPath, IPv6Bits: 48,
			Args:   []string{"--by", "ip+path", "--ipv6-prefix", "48", "--count-if", "401,5xx"},
			Filter: replay.Filter{CountIf: &replay.Statuses{Text: "401,5xx"}},
			Suggest: &replay.Suggest{Strategies: []string{rule.Fixed, rule.Token}, Burst: 7, DenyAtMost: 0.001,
				Durations: []time.Duration{time.Second, time.Minute}},
		},
		Empty: []string{"logs/\x1b[31mempty.log"},
		Failed: []replay.Failure{{Name: "logs/\x1b[31mcut.gz",
			Err:  errors.New("\x1b[31mcut.gz: unexpected EOF"),
			Part: true}},
		Lines: sum(requests) + 7 + 12 + 5, Requests: sum(requests), Unkeyed: 12, Filtered: 5,
		Uncounted: 1,
		Unreadable: replay.Unreadable{Count: 7, Examples: []replay.Example{
			{File: "logs/\x1b[31maccess.log", Line: 3, Reason: "the line is empty", Text: ""},
			{File: "-", Line: 4711, Reason: "broken JSON", Text: "{\"\x00\x1b[2J<b>\u202e" +
				strings.Repeat("y", 150)},
		}},
		Coarse: true, Callers: 1234,
		First: first, Last: first.Add(89 * time.Second),
		Timeline: &replay.Timeline{Start: first, Width: time.Second,
			Rows: [][]uint64{requests, few, many, none, few}},
		Apart: apart,
		Compared: &replay.Comparison{Names: [2]string{"20/1m fixed", "\x1b[31mnew.yaml"}, Both: 1000,
			Only: [2]replay.OnlyOne{
				{Callers: []replay.Count{}, Routes: []replay.Count{}},
				{Denied: 9000, Met: 10, Callers: only, Routes: []replay.Count{{Name: "/login", Denied: 8999}}}}},
		Endpoints: []replay.Endpoint{
			{Name: "GET /users/{id}", Requests: 3000, Callers: 400,
				Suggestions: slices.Repeat([]replay.Suggestion{
					suggestionOf(rule.Fixed, 0, time.Minute, 75, 400, 700, 300)}, 4)},
			{Name: "P\x1b[2J<b>T /" + strings.Repeat("long/", 30), Requests: 900, Callers: 12,
				Suggestions: slices.Repeat([]replay.Suggestion{{Limit: replay.NoLimit,
					Histogram: []replay.PeakBin{}}}, 4)},
			{Name: "assets", Requests: 12, Callers: 3}},
		Rules: []replay.RuleResult{
			{Rule: rule.Rule{Limit: "20/1m", Strategy: rule.Fixed, Tiers: tier}, Matched: sum(requests),
				Denied: sum(few), Met: 1, Worst: callers[:1]},
			{Rule: rule.Rule{Name: "it's \x1b[1m", Limit: "20/1m", Strategy: rule.Token, Burst: 1000,
				Tiers: tier}, Matched: sum(requests), Denied: sum(many), Met: 900, Worst: opened,
				Routes: routes},
			{Rule: rule.Rule{Limit: "900/500ms", Strategy: rule.Fixed,
				Tiers: []weir.Tier{{Limit: 900, Duration: 500 * time.Millisecond}}}, Matched: sum(requests),
				Worst: []replay.Caller{}},
			{Rule: rule.Rule{Limit: "20/1m", Strategy: rule.Fixed, Tiers: tier}, Matched: sum(requests),
				Denied: sum(few), Met: 1, Worst: callers[:1], Replicas: 3, Apart: apart},
		},
		Doubts: []string{},
		Suggestions: []replay.Suggestion{
			suggestionOf(rule.Fixed, 0, time.Second, 5, 40, 900, 300, 31, 2, 1),
			suggestionOf(rule.Fixed, 0, time.Hour, 75, 400, 700, 300, 120, 80, 20, 9, 4, 0, 1),
			suggestionOf(rule.Token, 7, time.Minute, 9, 12, 1200, 33, 0, 1),
			{Strategy: rule.Token, Burst: 7, Duration: 90 * time.Minute, Limit: replay.NoLimit, Denied: 1234,
				Peaks: replay.Peaks{P50: replay.NoLimit, P90: replay.NoLimit, P99: replay.NoLimit,
					P999: replay.NoLimit, Max: replay.NoLimit}, Histogram: []replay.PeakBin{}},
		},
	}
}

// loadExample returns a result of what was in flight, of hostile callers.
func loadExample() *replay.Result {
	first := time.Date(2026, 11, 20, 11, 53, 7, 0, time.UTC)
	rows := make([][]uint64, 3)
	var peaks []uint64
	requests, refused := uint64(0), uint64(0)
	for i := range uint64(90) {
		all, no := 200+i%9*50, i%10/7*(i+9)
		requests, refused = requests+all, refused+no
		rows[0], rows[1], rows[2] = append(rows[0], all), append(rows[1], no), append(rows[2], all*30_000)
		peaks = append(peaks, 20+i%9)
	}
	var callers []replay.CallerLoad
	for i, name := range hostile {
		callers = append(callers, replay.CallerLoad{Name: name, Requests: uint64(1500 - 100*i), Most: uint64(20 - i),
			Time: replay.Seconds(700*time.Second) >> i, Share: 1 / float64(uint64(2)<<i),
			GuardRefusals: replay.GuardRefusals{Full: uint64(40 - i), ShareUsed: uint64(400 - 40*i)}})
	}
	ms := func(n int) replay.Seconds { return replay.Seconds(n) * replay.Seconds(time.Millisecond) }
	timeline := &replay.Timeline{Start: first, Width: time.Second, Rows: rows}
	return &replay.Result{
		Config: replay.Config{Files: []string{"logs/\x1b[31maccess.log"}, By: replay.ByUser,
			Overload: &replay.Overload{RefuseAtMost: .001}},
		Empty: []string{}, Doubts: []string{}, Unreadable: replay.Unreadable{Examples: []replay.Example{}},
		Lines: requests + 12 + 3, Requests: requests, Coarse: true, Callers: 1234,
		First: first, Last: first.Add(89 * time.Second), Timeline: timeline,
		Load: &replay.Load{Untimed: 12, Upgraded: 3, Whole: true, Long: 2, LongShare: .2,
			Average: 12.345, Peak: 28, PeakAt: first.Add(8 * time.Second),
			Took:    replay.Took{P50: ms(12), P90: ms(45), P99: ms(1234), Max: replay.Seconds(3 * time.Minute)},
			Curve:   &replay.Curve{Timeline: timeline, Peaks: peaks},
			Busiest: callers, Refused: callers[:3],
			Guard: replay.GuardLoad{GuardRefusals: replay.GuardRefusals{Full: refused / 3, ShareUsed: refused - refused/3},
				Met: 9, Goal: ms(23) + 456789, Lowest: 4, Last: 100, State: "full, quick enough"},
			Throughput: 812.4, Fits: &replay.Fixed{Most: 20, Refused: 345}, Least: &replay.Fixed{Most: 27, Refused: 3}},
	}
}

func suggestionOf(strategy string, burst uint64, d time.Duration, limit, most replay.Peak,
	callers ...int) replay.Suggestion {
	s := replay.Suggestion{Strategy: strategy, Burst: burst, Duration: d, Limit: limit, Denied: 1,
		Peaks: replay.Peaks{P50: 1, P90: 2, P99: limit, P999: limit, Max: most}}
	from, to := replay.Peak(1), replay.Peak(1)
	for _, n := range callers {
		bin := replay.PeakBin{From: from, To: to, Callers: n}
		if from <= limit && limit < to {
			bin.To = limit
		}
		s.Histogram = append(s.Histogram, bin)
		s.Curve = append(s.Curve, replay.Point{Limit: bin.To, Denied: 1234 - 1234*len(s.Curve)/len(callers)})
		if from = bin.To + 1; from > to {
			to *= 2
		}
	}
	return s
}

// forms returns the report in each form.
var forms = map[string]func(io.Writer, *replay.Result) error{
	"report.txt": func(w io.Writer, r *replay.Result) error {
		Text(w, r, screen.Terminal{})
		return nil
	},
	"color.txt": func(w io.Writer, r *replay.Result) error {
		Text(w, r, screen.Terminal{Width: 100, Colors: true})
		return nil
	},
	"report.json": JSON,
	"report.html": HTML,
}

func render(t *testing.T, form string) string {
	t.Helper()
	var b bytes.Buffer
	if load, ok := strings.CutPrefix(form, "load "); ok {
		require.NoError(t, forms[load](&b, loadExample()))
	} else {
		require.NoError(t, forms[form](&b, example()))
	}
	return b.String()
}

// rendered are the forms of both examples.
func rendered() (all []string) {
	for form := range forms {
		all = append(all, form, "load "+form)
	}
	return all
}

func TestGolden(t *testing.T) {
	for _, name := range rendered() {
		t.Run(name, func(t *testing.T) {
			got := render(t, name)
			path := filepath.Join("testdata", strings.ReplaceAll(name, " ", ".")+".golden")
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, string(want), got, "if this is intended, run go test -update")
		})
	}
}

// TestNoFormHoldsControlCharacters checks that no form contains control characters from the log,
// which a terminal would obey.
func TestNoFormHoldsControlCharacters(t *testing.T) {
	colors := regexp.MustCompile(`\x1b\[(0|1|3[1-3]|9[12]|38;5;\d+)m`)
	for _, name := range rendered() {
		got := colors.ReplaceAllString(render(t, name), "")
		assert.NotRegexp(t, `[\x00-\x09\x0b-\x1f\x7f]`, got, name)
		if !strings.HasSuffix(name, ".json") { // is read by programs
			assert.NotContains(t, got, "\u202e", name)
			assert.NotContains(t, got, "\u2066", name)
		}
	}
	assert.NotContains(t, render(t, "report.txt"), "\x1b", "without colors there are no escapes")
	assert.Contains(t, render(t, "color.txt"), "\x1b[31m")
}

func TestHTMLIsSelfContainedAndInert(t *testing.T) {
	isInert(t, render(t, "report.html"))
	isInert(t, render(t, "load report.html"))
}

func isInert(t *testing.T, got string) {
	t.Helper()
	before, rest, found := strings.Cut(got, "<script>")
	require.True(t, found)
	text, after, _ := strings.Cut(rest, "</script>")
	sum := sha256.Sum256([]byte(text))
	assert.Contains(t, html.UnescapeString(before),
		"script-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'\"", "the only script is that of the page")
	assert.NotContains(t, text, "innerHTML")
	got = before + after
	for _, bad := range []string{"<script", "<img", "<link", "<iframe", "<form", "javascript:",
		"@import", "url("} {
		assert.NotContains(t, strings.ReplaceAll(got, "url(#denied)", ""), bad)
	}
	assert.NotRegexp(t, `<[^>]* on[a-z]+=`, got, "no event handlers")
	assert.NotRegexp(t, `(href|src|action)="?http`, got)
	assert.Equal(t, strings.Count(got, "<a "), strings.Count(got, `<a href="#limit-`), "links lead to the page itself")
	assert.Contains(t, got, "default-src 'none'", "the browser is told so, too")
	assert.Contains(t, got, "&lt;script&gt;")
}

// TestHTMLIsWellFormed checks the structure of the page and of its drawings, which html/template
// does not.
func TestHTMLIsWellFormed(t *testing.T) {
	assert.Equal(t, 4+10+3+3, drawings(t, render(t, "report.html")),
		"one for each rule, each caller that opens, and two for each suggestion of a limit")
	assert.Equal(t, 2, drawings(t, render(t, "load report.html")))
}

// drawings checks a page and returns how many drawings it has.
func drawings(t *testing.T, page string) int {
	t.Helper()
	got := regexp.MustCompile(`(?s)<script>.*</script>`).ReplaceAllString(page, "")
	d := xml.NewDecoder(strings.NewReader(got))
	d.Strict = false
	d.AutoClose = xml.HTMLAutoClose
	d.Entity = xml.HTMLEntity
	depth, svgs := 0, 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			depth++
			if e.Name.Local == "svg" && slices.ContainsFunc(e.Attr, func(a xml.Attr) bool {
				return a.Name.Local == "viewBox"
			}) {
				svgs++
			}
		case xml.EndElement:
			depth--
		}
	}
	assert.Zero(t, depth)
	assert.NotContains(t, got, "NaN")
	assert.NotContains(t, got, "Inf")
	return svgs
}

// TestNamesStayApart checks that different names stay different.
func TestNamesStayApart(t *testing.T) {
	var got jsonReport
	require.NoError(t, json.Unmarshal([]byte(render(t, "report.json")), &got))
	for i, c := range got.Rules[1].Worst {
		assert.Equal(t, hostile[i], c.Name, "a program gets the exact name")
		assert.Equal(t, hostile[i], got.Compared.Only[1].Callers[i].Name)
	}
}

// TestLimitsStayApart checks that names of rules that differ in the end of a path differ in the
// table, with the limit whole, and that no name is cut where the output is no terminal.
func TestLimitsStayApart(t *testing.T) {
	r := &replay.Result{Timeline: &replay.Timeline{Rows: [][]uint64{{1}, {0}, {0}, {0}, {0}}}}
	for _, l := range []rule.Rule{
		{Name: `endpoint="GET /blog/geekery/a-long-title-of-one.html",masked_remote_address`, Limit: "12 per minute"},
		{Name: `endpoint="GET /blog/geekery/a-long-title-of-two.html",masked_remote_address`, Limit: "1 per minute"},
		{Name: `user="ann",path="/` + strings.Repeat("very-", 6) + `long"`, Limit: "unlimited"},
		{Name: "without-a-value-" + strings.Repeat("very-", 6) + "long", Limit: "20/1m"},
	} {
		r.Rules = append(r.Rules, replay.RuleResult{Rule: l})
	}
	for _, c := range []struct {
		on   screen.Terminal
		want []string
	}{
		{screen.Terminal{Width: 80}, []string{
			`endpoint="GET /…f-one.htm… 12 per minute`, `endpoint="GET /…f-two.html… 1 per minute`,
			`user="ann",path="/very-very-v… unlimited`, `without-a-value-very-very-very-ve… 20/1m`}},
		{screen.Terminal{Width: 120}, []string{
			`endpoint="GET /b…e-of-one.html",masked_remote_address 12 per minute`,
			`endpoint="GET /b…le-of-two.html",masked_remote_address 1 per minute`,
			heading(r.Rules[2].Rule), heading(r.Rules[3].Rule)}},
		{screen.Terminal{}, []string{heading(r.Rules[0].Rule), heading(r.Rules[1].Rule)}},
	} {
		var b bytes.Buffer
		Text(&b, r, c.on)
		for _, want := range c.want {
			assert.Contains(t, b.String(), "\n  "+want+"  ")
		}
	}
}

// TestTablesOfDenialsHaveThem checks that windows and routes without a denial are left out. The
// busiest windows stay if none of them has one: a caller's denials may be in others.
func TestTablesOfDenialsHaveThem(t *testing.T) {
	rr := &replay.RuleResult{}
	at := time.Date(2026, 11, 20, 11, 53, 0, 0, time.UTC)
	of := func(denied ...uint64) *table {
		c := replay.Caller{Detail: &replay.Detail{}}
		for _, n := range denied {
			c.Busiest = append(c.Busiest, replay.Window{From: at, Requests: 9, Denied: n})
		}
		return busiestTable(c, rr)
	}
	some, all, none := of(4, 0, 2), of(4, 2), of(0, 0)
	assert.Equal(t, "The busiest windows of 1m, those with denials", some.Caption)
	assert.Equal(t, all.Rows, some.Rows)
	assert.Equal(t, "The busiest windows of 1m", all.Caption)
	assert.Equal(t, "The busiest windows of 1m", none.Caption)
	assert.Len(t, none.Rows, 2)
	routes := routesTable([]replay.Route{{Name: "GET /a", Requests: 9, Denied: 4}, {Name: "GET /b", Requests: 9}})
	assert.Equal(t, [][]string{{"GET /a", "9", "4", "44.4 %"}}, routes.Rows)
}

// TestNotesOnWholeSeconds checks that a replay is said to spread them, and a Follower is not.
func TestNotesOnWholeSeconds(t *testing.T) {
	r := &replay.Result{Coarse: true, Rules: []replay.RuleResult{{Rule: rule.Rule{Strategy: rule.Sliding,
		Tiers: []weir.Tier{{Limit: 5, Duration: time.Second}}}}}}
	const estimate = ": what limits on a second or less would do is an estimate, except for fixed windows of 1s"
	assert.Equal(t, []string{"the log has whole seconds, over which each caller's requests were spread evenly" +
		estimate}, Notes(r))
	r.Moved = &replay.Moved{Late: 9448, LateBy: 59 * time.Second, Ahead: 1}
	assert.Equal(t, []string{"9,448 requests were older than one before, by up to 59s; " +
		"each counts at the time of that one, and without --follow they are sorted",
		"1 request was over an hour in the future; each counts at the time of the one before",
		"the log has whole seconds, at whose beginning requests count" + estimate}, Notes(r))
}

func TestPercentNeverRoundsToNothingOrAll(t *testing.T) {
	for _, tc := range []struct {
		part, whole uint64
		want        string
	}{
		{0, 0, "0 %"}, {0, 9, "0 %"}, {1, 1e6, "<0.01 %"}, {1, 1000, "0.10 %"}, {5, 100, "5.00 %"},
		{25, 100, "25.0 %"},
		{994, 1000, "99.40 %"}, {1e6 - 1, 1e6, ">99.99 %"}, {9, 9, "100 %"},
	} {
		assert.Equal(t, tc.want, percent(tc.part, tc.whole), "%d of %d", tc.part, tc.whole)
	}
}

// TestChartOfSmallCounts checks that the labels of small counts are the counts and that the bars
// are beside the axis.
func TestChartOfSmallCounts(t *testing.T) {
	line := &replay.Timeline{Start: time.Unix(0, 0).UTC(), Width: time.Second,
		Rows: [][]uint64{{1, 0, 2, 3, 1}, {0, 0, 0, 1, 1}}}
	var b bytes.Buffer
	chart(&b, denials(line.Coarser(66), 0), screen.Terminal{Width: 80})
	want := `  requests per 1s:  █ admitted  ░ denied
  4 ┤
    │
  3 ┤
    │                                       ░░░░░░░░░░░░░
  2 ┤                                       ░░░░░░░░░░░░░
    │                          ██████████████████████████
  1 ┤                          ██████████████████████████
    │█████████████             ██████████████████████████░░░░░░░░░░░░░
  0 ┤█████████████             ██████████████████████████░░░░░░░░░░░░░
     1970-01-01 00:00:00                           1970-01-01 00:00:05
`
	assert.Equal(t, want, b.String())
}

// TestBar checks that denied requests take at least one line, even one request in a million, and
// that admitted requests below them do too.
func TestBar(t *testing.T) {
	for _, tc := range []struct {
		admitted, denied, top uint64
		want                  string
	}{
		{0, 0, 8, "        "}, {8, 0, 8, "████████"}, {4, 0, 8, "████    "},
		{4, 4, 8, "████░░░░"},
		{0, 8, 8, "░░░░░░░░"},
		{1, 0, 64, "▁       "}, {1, 0, 1 << 40, "▁       "},
		{1<<40 - 1, 1, 1 << 40, "███████░"},
		{1, 1, 1 << 40, "░       "}, {9, 0, 16, "████▄   "},
	} {
		assert.Equal(t, tc.want, string(bar(tc.admitted, tc.denied, tc.top)), "%+v", tc)
	}
}

func TestEnforce(t *testing.T) {
	r := &replay.Result{Config: replay.Config{By: replay.ByIP}}
	for want, l := range map[string]rule.Rule{
		"--limit 20/1m":                   {Limit: "20/1m", Strategy: rule.Sliding},
		"--limit 20/1m:fixed":             {Limit: "20/1m", Strategy: rule.Fixed},
		"--limit 'it'\\''s=20/1m:log'":    {Name: "it's", Limit: "20/1m", Strategy: rule.Log},
		"--limit 20/1m:token --burst 7":   {Limit: "20/1m", Strategy: rule.Token, Burst: 7},
		"--limit a=20/1m:leaky --queue 7": {Name: "a", Limit: "20/1m", Strategy: rule.Leaky, Burst: 7},
		"--limit 20/1m,5/1s":              {Limit: "20/1m,5/1s", Strategy: rule.Tiers},
	} {
		got, _ := Enforce(r, &replay.RuleResult{Rule: l})
		assert.Equal(t, "weir proxy --upstream http://127.0.0.1:9000 "+want, got)
	}
	r = &replay.Result{Config: replay.Config{By: replay.ByIPPath, IPv6Bits: 48,
		Filter: replay.Filter{CountIf: &replay.Statuses{Text: "401,5xx"}}}}
	got, _ := Enforce(r, &replay.RuleResult{Rule: rule.Rule{Limit: "1/1s", Strategy: rule.Default}})
	assert.Equal(t,
		"weir proxy --upstream http://127.0.0.1:9000 --limit 1/1s --count-if 401,5xx --by "+
			"ip+path --ipv6-prefix 48", got)
}

func TestDurationText(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Second: "1s", time.Minute: "1m",
		time.Hour:      "1h",
		24 * time.Hour: "1d", 7 * 24 * time.Hour: "7d",
		90 * time.Minute: "1h30m", 1500 * time.Millisecond: "1.5s", 10 * time.Minute: "10m",
		36 * time.Hour: "36h", 90 * time.Second: "1m30s"} {
		got := durationText(d)
		assert.Equal(t, want, got)
		back, err := rule.ParseDuration(got)
		require.NoError(t, err)
		assert.Equal(t, d, back)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567",
		1<<64 - 1: "18,446,744,073,709,551,615"} {
		assert.Equal(t, want, count(n))
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 500 * time.Millisecond: "500ms",
		time.Second:             "1s",
		90 * time.Second:        "1m 30s",
		time.Hour + time.Second: "1h", 26 * time.Hour: "1d 2h", 4000 * 24 * time.Hour: "4,000d"} {
		assert.Equal(t, want, span(d))
	}
}

// TestNiceTop checks that the labels of the value axis are round and that no value is above the
// axis.
func TestNiceTop(t *testing.T) {
	for _, n := range []uint64{0, 1, 4, 5, 9, 31, 33, 160, 161, 99999, 1e18, 1<<64 - 1} {
		top := niceTop(n)
		assert.GreaterOrEqual(t, top, n)
		if n > 0 && n < 1e18 {
			assert.LessOrEqual(t, top, max(4, n*2))
			assert.Zero(t, top%4)
		}
	}
}

// TestPageIsReadByEveryone checks what an accessibility checker and a reader without a mouse need:
// the verdict first, a table behind each chart, captions and scopes, and colors that are far apart.
func TestPageIsReadByEveryone(t *testing.T) {
	got := render(t, "report.html")
	verdict, suggested := strings.Index(got, "met a denial"), strings.Index(got, "Suggested limits")
	assert.Contains(t, got, "<b>900 callers</b> <span>met a denial (72.9 %)")
	assert.True(t, 0 < verdict && verdict < suggested, "the verdict comes before the suggestions")
	assert.Equal(t, 1, strings.Count(got, "<details open>"), "one suggestion is open")
	assert.Equal(t, strings.Count(got, "<table"), strings.Count(got, "<caption>"))
	assert.NotRegexp(t, "<th(?: class=[^>]*)?>", got, "each th has a scope")
	assert.Equal(t, strings.Count(got, "<svg viewBox"),
		strings.Count(got, `<div class="numbers" tabindex="0"`))
	values := regexp.MustCompile(`<title>([^<]*)</title></rect>`).FindAllString(got, -1)
	rows := regexp.MustCompile(`(?s)class="numbers".*?</table>`).FindAllString(got, -1)
	assert.Equal(t, len(values), strings.Count(strings.Join(rows, ""), `<th scope="row"`),
		"all values are in a table")
	themes := regexp.MustCompile(`:root \{ ?[^}]*\}`).FindAllString(got, -1)
	require.Len(t, themes, 2, "light and dark")
	for _, css := range themes {
		color := func(name string) float64 {
			m := regexp.MustCompile(`--` + name + `: #([0-9a-f]+)`).FindStringSubmatch(css)
			require.NotNil(t, m, name)
			return luminance(t, m[1])
		}
		for _, pair := range []struct {
			a, b  string
			least float64
		}{{"ok", "no", 3}, {"ok", "card", 3}, {"no", "card", 3}, {"ink", "card", 4.5},
			{"soft", "card", 4.5},
			{"soft", "bg", 4.5}, {"bad", "card", 4.5}} {
			a, b := color(pair.a), color(pair.b)
			assert.GreaterOrEqual(t, (max(a, b)+.05)/(min(a, b)+.05), pair.least, "%s on %s in %.40s",
				pair.a, pair.b, css)
		}
	}
}

// luminance returns the relative luminance of a color, as WCAG defines it.
func luminance(t *testing.T, hex string) float64 {
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	n, err := strconv.ParseUint(hex, 16, 24)
	require.NoError(t, err)
	var sum float64
	for i, weight := range []float64{.2126, .7152, .0722} {
		c := float64(n>>(16-8*i)&255) / 255
		if c <= .04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

func FuzzShort(f *testing.F) {
	f.Add("päth")
	f.Fuzz(func(t *testing.T, s string) {
		if n := len([]rune(short(s, 20))); n > 20 {
			t.Fatalf("short left %d runes", n)
		}
	})
}
