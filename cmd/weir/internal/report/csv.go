package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/replay"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/cmd/weir/internal/screen"
)

// The columns of a rule.Rule and of counts.
const (
	ruleColumns  = "name limit strategy burst "
	countColumns = " requests admitted denied denied_share"
)

// counts are the requests of a row.
type counts struct{ requests, denied uint64 }

// burst is the size of a bucket, if it is not 0.
type burst uint64

// csvTables are the tables that CSV writes, by name. All rows of a table have the same kind.
var csvTables = []struct {
	name    string
	columns string // separated by spaces
	rows    func(r *replay.Result, add func(cells ...any))
}{
	{"limits",
		ruleColumns + "start end lines unreadable unkeyed filtered uncounted callers callers_denied" +
			countColumns + " shadow replicas denied_answered_429",
		func(r *replay.Result, add func(...any)) {
			for _, rr := range r.Rules {
				add(rr.Rule, r.First, r.Last, r.Lines, r.Unreadable.Count, r.Unkeyed, r.Filtered, r.Uncounted,
					r.Callers, rr.Met, counts{rr.Matched, rr.Denied}, rr.Shadow, max(1, rr.Replicas),
					rr.Apart.Answered)
			}
		}},
	{"callers", ruleColumns + "caller" + countColumns + " first_denied",
		func(r *replay.Result, add func(...any)) {
			for _, rr := range r.Rules {
				for _, c := range rr.Worst {
					add(rr.Rule, c.Name, counts{c.Requests, c.Denied}, c.FirstDenied)
				}
			}
		}},
	{"timeline", ruleColumns + "start end" + countColumns, func(r *replay.Result, add func(...any)) {
		for i, rr := range r.Rules {
			for b, requests := range r.Timeline.Rows[0] {
				denied := r.Timeline.Rows[1+i][b]
				add(rr.Rule, r.Timeline.At(b), r.Timeline.At(b+1), counts{requests, denied})
			}
		}
	}},
	{"suggest", "strategy burst duration_seconds limit deny_at_most callers callers_denied " +
		"p50 p90 p99 p99_9 max",
		func(r *replay.Result, add func(...any)) {
			for _, s := range r.Suggestions {
				p := s.Peaks
				add(s.Strategy, burst(s.Burst), s.Duration.Seconds(), s.Limit, r.Suggest.DenyAtMost, r.Callers,
					s.Denied, p.P50, p.P90, p.P99, p.P999, p.Max)
			}
		}},
	{"compared", "only by caller_or_path denied", func(r *replay.Result, add func(...any)) {
		for i, one := range r.Compared.Only {
			for _, t := range one.Callers {
				add(r.Compared.Names[i], "caller", t.Name, t.Denied)
			}
			for _, t := range one.Paths {
				add(r.Compared.Names[i], "path", t.Name, t.Denied)
			}
		}
	}},
	{"endpoints", "endpoint requests callers strategy burst duration_seconds limit callers_denied",
		func(r *replay.Result, add func(...any)) {
			for _, e := range r.Endpoints {
				for _, s := range e.Suggestions {
					add(e.Name, e.Requests, e.Callers, s.Strategy, burst(s.Burst), s.Duration.Seconds(),
						s.Limit, s.Denied)
				}
			}
		}},
}

// CSVTables returns the names of the tables.
func CSVTables() []string {
	var names []string
	for _, t := range csvTables {
		names = append(names, t.name)
	}
	return names
}

// CSV writes one of the tables: a header, then a row for each limit, for each of its worst callers,
// for each bin of its timeline, or for each suggestion. A cell that does not apply is empty.
func CSV(w io.Writer, r *replay.Result, table string) error {
	i := slices.Index(CSVTables(), table)
	if i < 0 {
		return fmt.Errorf("csv tables are %s, not %q", strings.Join(CSVTables(), ", "), table)
	}
	out := csv.NewWriter(w)
	// Write's errors are in out.Error too.
	_ = out.Write(append([]string{"schema"}, strings.Fields(csvTables[i].columns)...))
	csvTables[i].rows(r, func(row ...any) {
		_ = out.Write(append([]string{path.Base(Schema)}, cells(row...)...)) // the version
	})
	out.Flush()
	return out.Error()
}

func cells(row ...any) (texts []string) {
	for _, v := range row {
		text := fmt.Sprint(v)
		switch v := v.(type) {
		case rule.Rule:
			texts = append(texts, cells(v.Name, v.Limit, v.Strategy, burst(v.Burst))...)
			continue
		case counts:
			texts = append(texts, cells(v.requests, v.requests-v.denied, v.denied,
				fraction(v.denied, v.requests))...)
			continue
		case string:
			text = harmless(v)
		case time.Time:
			text = v.Format(time.RFC3339Nano)
		case burst, replay.Peak:
			if v == burst(0) || v == replay.NoLimit {
				text = ""
			}
		}
		texts = append(texts, text)
	}
	return texts
}

// harmless makes a name safe to open in a spreadsheet, which evaluates cells that begin with one of
// these characters as formulas.
func harmless(name string) string {
	name = screen.Printable(name)
	if name != "" && strings.IndexByte("=+-@'", name[0]) >= 0 {
		return "'" + name
	}
	return name
}
