package conformance

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// failure is a broken law, with the history that shows it.
type failure struct {
	message  string
	origin   time.Time
	events   []event
	baseline []event // the history that it is compared with, if any
}

// Error returns the message and the history as a table.
func (b *failure) Error() string {
	if len(b.events) == 0 {
		return b.message
	}
	var s strings.Builder
	s.WriteString(b.message + "\n")
	if b.baseline != nil {
		b.table(&s, b.baseline)
		s.WriteString("and then, on a new strategy:\n")
	}
	b.table(&s, b.events)
	lines := strings.Split(s.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

func (b *failure) table(s *strings.Builder, events []event) {
	w := tabwriter.NewWriter(s, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "at\tcall\tkey\tlimit\tcost\tverdict\ttotal\texpires")
	for i, e := range events {
		if n := len(events); n > longest && i >= longest/2 && i < n-longest/2 {
			if i == longest/2 {
				fmt.Fprintf(w, "…\t%d more\n", n-longest)
			}
			continue
		}
		e.row(w, b.origin)
	}
	w.Flush()
}

// longest is the number of events above which a table omits the middle.
const longest = 30
