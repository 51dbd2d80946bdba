package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

// maxProse is how many lines of a frame are sentences.
const maxProse = 6

// Frame writes what a terminal shows of a log that is followed, as much of it as fits: the last
// minute and its busiest callers, then what the limits deny, then whom, and notes.
func Frame(w io.Writer, r *replay.Result, on screen.Terminal) {
	var b strings.Builder
	prose := []string{
		headline(r) + ", from " + stamp(r.First) + " UTC",
		minuteLine(r.Minute),
	}
	for i, line := range prose {
		prose[i] = short(line, on.Width)
	}
	prose[1] = on.Paint(screen.Bold, prose[1])
	for _, doubt := range Notes(r)[:len(r.Doubts)] {
		prose = append(prose, strings.Split(wrap("note: "+doubt, "", on), "\n")...)
	}
	if len(prose) > maxProse {
		prose = prose[:maxProse]
		last := &prose[maxProse-1]
		*last = short(*last, on.Width-2) + " …"
	}
	b.WriteString(strings.Join(prose, "\n") + "\n")
	list := func(t *table) {
		if len(t.Rows) > 0 {
			b.WriteString("\n")
			t.write(&b, on.Width)
		}
	}
	list(minuteTable(r))
	if len(r.Rules) > 0 {
		list(rulesTable(r))
	}
	for i := range r.Rules {
		if shown(r, i) && len(r.Rules[i].Worst) > 0 {
			fmt.Fprintf(&b, "\n%s\n", on.Paint(screen.Bold, full(&r.Rules[i])))
			worstTable(i, &r.Rules[i]).write(&b, on.Width)
		}
	}
	for i, note := range Notes(r)[len(r.Doubts):] {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString(wrap("note: "+note, "", on) + "\n")
	}
	_, _ = io.WriteString(w, on.Fit(b.String())) // as what Text writes
}

// minuteLine says what was in the last minute.
func minuteLine(m *replay.Minute) string {
	line := fmt.Sprintf("last minute, to %s: %s", m.To.Format("15:04:05"), plural(m.Requests,
		"request"))
	if m.Requests == 0 {
		return line
	}
	line += fmt.Sprintf(" (%s/s) by %s", some(float64(m.Requests)/60), met(m.Callers))
	if m.Denied > 0 {
		line += fmt.Sprintf(", %s denied", percent(m.Denied, m.Requests))
	}
	if m.Failed > 0 {
		line += fmt.Sprintf(", %s answered 5xx", percent(m.Failed, m.Requests))
	}
	return line
}

// minuteTable has the busiest callers of the last minute.
func minuteTable(r *replay.Result) *table {
	m := r.Minute
	t := newTable("The busiest callers of the last minute", "busiest, last minute", "requests",
		"share")
	limits := len(r.Rules) > 0
	if limits {
		t.Columns = append(t.Columns, column{Name: "denied"})
	}
	t.Columns = append(t.Columns, column{Name: "5xx"})
	for _, c := range m.Busiest {
		cells := []string{screen.Printable(c.Name), count(c.Requests), percent(c.Requests, m.Requests)}
		if limits {
			cells = append(cells, count(c.Denied))
		}
		t.add(append(cells, count(c.Failed))...)
	}
	return t
}

// minuteOf writes the last minute of a log that was followed.
func minuteOf(w io.Writer, r *replay.Result, on screen.Terminal) {
	if r.Minute == nil {
		return
	}
	fmt.Fprintf(w, "\n%s\n", on.Paint(screen.Bold, minuteLine(r.Minute)))
	if t := minuteTable(r); len(t.Rows) > 0 {
		fmt.Fprintln(w)
		t.write(w, on.Width)
	}
}
