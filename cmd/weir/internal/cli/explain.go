package cli

import (
	"fmt"
	"strings"
	"time"
)

// Tell says in words what x is made of, for the page and for weir why.
func (x *Explained) Tell() {
	for i := range x.Limits {
		x.Limits[i].When = x.Limits[i].when(x.Now)
	}
	x.Says = x.verdict()
	if x.Shadow {
		x.Notes = append(x.Notes, "the server is in shadow mode: every request passes all the same")
	}
	if x.Alone {
		x.Notes = append(x.Notes,
			"Redis is down: this process decides, and what others may use counts as used")
	}
	if l := x.Listed; l != nil {
		left := "without end"
		if l.Until != 0 {
			left = "for another " + rest(l.Until-x.Now)
		}
		x.Notes = append(x.Notes, fmt.Sprintf("deny list: %s %s, by %s, %s", l.Kind, l.Name, l.By, left))
	}
}

// verdict says whether a request of the caller passes now.
func (x *Explained) verdict() string {
	switch {
	case x.Exempt:
		return "passes: its address is exempt from all limits"
	case x.Listed != nil:
		return "is refused: the deny list has it"
	}
	said := "passes"
	if x.Rules {
		said = "is not on the deny list, and limited by rules: ask for a descriptor, KEY=VALUE"
	}
	var last int64
	for i := range x.Limits {
		switch h := &x.Limits[i]; {
		case h.Error != "":
			return "may pass or not: a limit cannot tell"
		case h.Never:
			return "is denied: " + h.Name + " admits nothing"
		case h.Busy:
			if last == 0 {
				said = "is denied by " + h.Name + ", and passes " + h.When
			}
		case h.Passes > last:
			last = h.Passes
			said = "is denied by " + h.Name + ", and passes " + h.When
			if !strings.Contains(h.Name, h.Route) {
				said += ", on " + h.Route
			}
		}
	}
	return said
}

// when says when a request passes the limit.
func (h *Held) when(now int64) string {
	switch {
	case h.Error != "":
		return "not known: " + h.Error
	case h.Never:
		return "never"
	case h.Busy:
		return "when another of its requests has ended"
	case h.Passes == 0:
		return "now"
	}
	return "in " + rest(h.Passes-now)
}

// rest says how long ms are, rounded up: to seconds from one on.
func rest(ms int64) string {
	d := time.Duration(max(ms, 1)) * time.Millisecond
	if d > time.Second {
		d = (d + time.Second - 1).Truncate(time.Second)
	}
	return d.String()
}
