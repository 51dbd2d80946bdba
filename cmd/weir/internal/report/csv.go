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
)

// The columns of ruleCells and countCells.
const (
	ruleColumns  = "name limit strategy burst "
	countColumns = " requests admitted denied denied_share"
)

// csvTables are the tables that CSV writes, by name. All rows of a table have the same kind.
var csvTables = []struct {
	name    string
	columns string // separated by spaces
	rows    func(r *replay.Result, add func(cells ...any))
}{
	{"limits",
		ruleColumns + "start end lines unreadable unkeyed filtered uncounted callers callers_denied" +
			countColumns + " shadow replicas denied_crawled denied_answered_429",
		func(r *replay.Result, add func(...any)) {
			for i := range r.Rules {
				rr := &r.Rules[i]
				cells := append(ruleCells(rr.Rule), r.First, r.Last, r.Lines, r.Unreadable.Count, r.Unkeyed,
					r.Filtered, r.Uncounted, r.Callers, rr.Met)
				cells = append(append(cells, countCells(rr.Matched, rr.Denied)...), rr.Shadow)
				add(append(cells, max(1, rr.Replicas), rr.Apart.Crawled, rr.Apart.Answered)...)
			}
		}},
	{"callers", ruleColumns + "caller" + countColumns + " first_denied",
		func(r *replay.Result, add func(...any)) {
			for i := range r.Rules {
				for _, c := range r.Rules[i].Worst {
					cells := append(ruleCells(r.Rules[i].Rule), c.Name)
					cells = append(cells, countCells(c.Requests, c.Denied)...)
					add(append(cells, c.FirstDenied)...)
				}
			}
		}},
	{"timeline", ruleColumns + "start end" + countColumns, func(r *replay.Result, add func(...any)) {
		for i := range r.Rules {
			for b, requests := range r.Timeline.Rows[0] {
				cells := append(ruleCells(r.Rules[i].Rule), r.Timeline.At(b), r.Timeline.At(b+1))
				add(append(cells, countCells(requests, r.Timeline.Rows[1+i][b])...)...)
			}
		}
	}},
	{"suggest", "strategy burst duration_seconds limit deny_at_most callers callers_denied " +
		"p50 p90 p99 p99_9 max",
		func(r *replay.Result, add func(...any)) {
			for _, s := range r.Suggestions {
				p := s.Peaks
				add(s.Strategy, burstCell(s.Burst), s.Duration.Seconds(), s.Limit, r.Suggest.Share, r.Callers,
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
					add(e.Name, e.Requests, e.Callers, s.Strategy, burstCell(s.Burst), s.Duration.Seconds(),
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
	csvTables[i].rows(r, func(cells ...any) {
		row := []string{path.Base(Schema)} // the version
		for _, c := range cells {
			row = append(row, cell(c))
		}
		_ = out.Write(row)
	})
	out.Flush()
	return out.Error()
}

func cell(v any) string {
	switch v := v.(type) {
	case string:
		return harmless(v)
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case replay.Peak:
		if v == replay.NoLimit {
			return ""
		}
	}
	return fmt.Sprint(v)
}

func ruleCells(l rule.Rule) []any { return []any{l.Name, l.Limit, l.Strategy, burstCell(l.Burst)} }

func burstCell(burst uint64) any {
	if burst == 0 {
		return ""
	}
	return burst
}

func countCells(requests, denied uint64) []any {
	return []any{requests, requests - denied, denied, share(denied, requests)}
}

// harmless makes a name safe to open in a spreadsheet, which evaluates cells that begin with one of
// these characters as formulas.
func harmless(name string) string {
	name = Printable(name)
	if name != "" && strings.IndexByte("=+-@'", name[0]) >= 0 {
		return "'" + name
	}
	return name
}
