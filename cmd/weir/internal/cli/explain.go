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
	if x.Full != nil && !x.Full.Refuses {
		x.Notes = append(x.Notes, "the upstream: "+x.Full.Says)
	}
	if l := x.Listed; l != nil {
		left := "without end"
		if l.Until != 0 {
			left = "for another " + rest(l.Until-x.Now)
		}
		x.Notes = append(x.Notes, fmt.Sprintf("deny list: %s %s, by %s, %s", l.Kind, l.Name, l.By, left))
	}
	if x.Sent != nil {
		x.Notes = append(x.Notes, x.Sent.note(x.Listed != nil))
	}
}

// verdict says whether a request of the caller passes now.
func (x *Explained) verdict() string {
	switch {
	case x.Exempt:
		return "passes: its address is exempt from all limits"
	case x.Listed != nil:
		return "is refused: the deny list has it"
	case x.Full != nil && x.Full.Refuses:
		return "is refused: " + x.Full.Says
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

// Explained is why a caller is limited, or why it is not: what a server answers with to
// GET /-/explain. Times are in ms since the Unix epoch.
type Explained struct {
	ID     string   `json:"id,omitempty"` // of a key
	Name   string   `json:"name"`         // the key, or the descriptor
	Now    int64    `json:"now"`
	Says   string   `json:"says"`             // whether a request passes now, as of Name
	Notes  []string `json:"notes,omitempty"`  // what else to know
	Exempt bool     `json:"exempt,omitempty"` // no limit applies to its address
	Shadow bool     `json:"shadow,omitempty"` // it passes whatever is said below
	Alone  bool     `json:"alone,omitempty"`  // Redis is down: Used counts the shares of others, too
	Listed *Listed  `json:"listed,omitempty"` // the entry of the deny list that refuses it
	Full   *Full    `json:"full,omitempty"`   // of an upstream with --overload
	Limits []Held   `json:"limits,omitempty"`
	Rules  bool     `json:"rules,omitempty"` // further limits are rules, which count descriptors

	// How often it was denied since the start: at least Denials-Error times.
	Denials uint64   `json:"denials"`
	Error   uint64   `json:"error,omitempty"`
	Last    []Denial `json:"last,omitempty"` // the latest denials, the last one first

	Sent *Sent `json:"sent,omitempty"` // in the last minute

	Steps string `json:"steps,omitempty"` // how a descriptor was looked up in the rules
}

// Sent is what a caller sent in the last minute: shares are from 0 to 1.
type Sent struct {
	N        uint64     `json:"n"`
	Share    float64    `json:"share"`    // of all requests
	Denied   float64    `json:"denied"`   // of its own, as are the next two
	Turned   float64    `json:"turned"`   // the upstream answered with 4xx
	Failed   float64    `json:"failed"`   // with 5xx, or not
	Upstream float64    `json:"upstream"` // of all time of the upstream
	Agents   int        `json:"agents"`   // different user agents, about
	Paths    int        `json:"paths"`
	Admitted []Admitted `json:"admitted,omitempty"` // some of the last ones, the last one first
}

// Admitted is a request that was admitted.
type Admitted struct {
	At    int64  `json:"at"`
	Of    string `json:"of"` // a method and a path
	Agent string `json:"agent"`
}

// note says what a denial of the caller takes away, or has taken.
func (s *Sent) note(listed bool) string {
	of := fmt.Sprintf("%.0f %% of all requests and %.0f %% of the upstream's time",
		100*s.Share, 100*s.Upstream)
	takes := "to deny it takes away " + of
	if listed {
		takes = "it still sends " + of
	}
	return fmt.Sprintf("in the last minute: %s, %.0f %% of them denied, with about %s and %s; %s",
		some(s.N, "request"), 100*s.Denied, some(uint64(s.Agents), "user agent"),
		some(uint64(s.Paths), "path"), takes)
}

// some writes a number of things.
func some(n uint64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprint(n, " ", thing, "s")
}

// Full is what is in flight, and what the caller has of it.
type Full struct {
	Refuses bool   `json:"refuses"` // a normal request of the caller
	Says    string `json:"says"`
}

// Held is what a limit holds of a caller.
type Held struct {
	Name     string `json:"name"`
	Limit    string `json:"limit"`
	Counting string `json:"counting,omitempty"` // the strategy
	Route    string `json:"route,omitempty"`    // empty: all requests, or those of no other route
	AtOnce   uint64 `json:"at_once"`            // the most that passes within a moment
	Used     uint64 `json:"used"`
	Left     uint64 `json:"left"`

	Passes int64  `json:"passes,omitempty"` // when a request passes; 0: now
	Busy   bool   `json:"busy,omitempty"`   // one passes when another of the caller's has ended
	Never  bool   `json:"never,omitempty"`  // none passes
	Error  string `json:"error,omitempty"`  // why none of this is known
	When   string `json:"when"`             // all of this in words
}
