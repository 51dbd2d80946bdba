package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/replay"
)

// csvHeader names the columns. What does not apply to a record is empty.
var csvHeader = []string{"record", "limit", "strategy", "burst", "caller", "start", "end", "lines", "unreadable", "unkeyed",
	"late", "callers", "callers_denied", "requests", "admitted", "denied", "denied_share", "first_denied"}

// CSV writes one table of three kinds of records, told apart by the first column, for each rule: one "total", a "caller"
// for each of the worst, and a "bin" for each bin of the timeline.
func CSV(w io.Writer, r *replay.Result) error {
	out := csv.NewWriter(w)
	if err := out.Write(csvHeader); err != nil {
		return err
	}
	for i := range r.Rules {
		rr := &r.Rules[i]
		total := row("total", rr)
		total.span(r.First, r.Last)
		total.count("lines", r.Lines)
		total.count("unreadable", r.Unreadable.Count)
		total.count("unkeyed", r.Unkeyed)
		total.count("late", r.Late)
		total.count("callers", uint64(r.Callers))
		total.count("callers_denied", uint64(rr.Met))
		total.counts(r.Requests, rr.Denied)
		if err := out.Write(total); err != nil {
			return err
		}
		for _, c := range rr.Worst {
			caller := row("caller", rr)
			caller.set("caller", harmless(c.Name))
			caller.counts(c.Requests, c.Denied)
			caller.set("first_denied", c.FirstDenied.Format(time.RFC3339Nano))
			if err := out.Write(caller); err != nil {
				return err
			}
		}
		for b, requests := range r.Timeline.Rows[0] {
			bin := row("bin", rr)
			start := r.Timeline.Start.Add(time.Duration(b) * r.Timeline.Width)
			bin.span(start, start.Add(r.Timeline.Width))
			bin.counts(requests, r.Timeline.Rows[1+i][b])
			if err := out.Write(bin); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// record is a row under csvHeader.
type record []string

func row(kind string, rr *replay.RuleResult) record {
	rec := make(record, len(csvHeader))
	rec.set("record", kind)
	rec.set("limit", rr.Rule.Limit)
	rec.set("strategy", rr.Rule.Strategy)
	if rr.Rule.Burst > 0 {
		rec.count("burst", rr.Rule.Burst)
	}
	return rec
}

func (rec record) set(column, value string) {
	for i, name := range csvHeader {
		if name == column {
			rec[i] = value
		}
	}
}

func (rec record) count(column string, n uint64) { rec.set(column, strconv.FormatUint(n, 10)) }

func (rec record) span(start, end time.Time) {
	rec.set("start", start.Format(time.RFC3339Nano))
	rec.set("end", end.Format(time.RFC3339Nano))
}

func (rec record) counts(requests, denied uint64) {
	rec.count("requests", requests)
	rec.count("admitted", requests-denied)
	rec.count("denied", denied)
	rec.set("denied_share", strconv.FormatFloat(share(denied, requests), 'g', -1, 64))
}

// harmless makes a name safe to open in a spreadsheet, which takes a cell that begins with one of these for a formula.
func harmless(name string) string {
	name = Printable(name)
	if name != "" {
		switch name[0] {
		case '=', '+', '-', '@', '\'':
			return "'" + name
		}
	}
	return name
}
