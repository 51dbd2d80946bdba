package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/routes"
	"github.com/weirgo/weir/overload"
)

// Overload says whether only requests that fit are admitted. It is a flag, which has no value, or
// the Goal.
type Overload struct {
	On   bool
	Goal time.Duration // how long a request may take while the upstream is full; 0: it is learnt
}

// Learn is the value of a flag that was given without one.
const Learn = "learn"

// Set implements pflag.Value. A file in YAML says true.
func (o *Overload) Set(text string) error {
	switch text {
	case Learn, "true":
		*o = Overload{On: true}
		return nil
	case "", "false":
		*o = Overload{}
		return nil
	}
	goal, err := time.ParseDuration(text)
	if err != nil || goal <= 0 {
		return fmt.Errorf("want how long a request may take, such as 250ms, or no value, not %q", text)
	}
	*o = Overload{On: true, Goal: goal}
	return nil
}

// Type implements pflag.Value.
func (o *Overload) Type() string { return "overload" }

// String returns o as Set takes it.
func (o *Overload) String() string {
	switch {
	case !o.On:
		return ""
	case o.Goal == 0:
		return Learn
	}
	return o.Goal.String()
}

// Classed is a part of the traffic that is of a class.
type Classed struct {
	Pattern string // of http.ServeMux
	Class   overload.Class
}

// ParseClass parses PATTERN=CLASS.
func ParseClass(text string) (Classed, error) {
	i := strings.LastIndexByte(text, '=')
	if i <= 0 {
		return Classed{}, fmt.Errorf("class %q: want PATTERN=CLASS, such as \"POST /login=critical\"",
			text)
	}
	name := strings.TrimSpace(text[i+1:])
	class, err := overload.ParseClass(name)
	if err != nil {
		return Classed{}, fmt.Errorf("class %q: want sheddable, normal or critical, not %q", text, name)
	}
	return Classed{strings.TrimSpace(text[:i]), class}, nil
}

// classes finds the class of a request by its path.
type classes struct {
	table *routes.Table
	of    map[string]overload.Class // by the pattern
}

// newClasses returns those of all, or nil if there are none.
func newClasses(all []Classed) (*classes, error) {
	if len(all) == 0 {
		return nil, nil
	}
	c := &classes{of: make(map[string]overload.Class)}
	var list []routes.Route
	for i, one := range all {
		c.of[one.Pattern] = one.Class
		list = append(list, routes.Route{Pattern: one.Pattern})
		var err error
		c.table, err = routes.New(list, routes.Keys{Pattern: true})
		if err != nil {
			text := strings.Replace(err.Error(), "route ", "class of ", 1)
			return nil, &cli.FlagError{Flags: []string{"class"}, Item: i, Err: errors.New(text)}
		}
	}
	return c, nil
}

// find returns the class of a request, whose escaped path this is, or false if no pattern matches.
// Of several readings of the path it is the least important: no spelling makes a request critical.
func (c *classes) find(r *http.Request, path string) (least overload.Class, ok bool) {
	var t routes.Targets
	if err := c.table.Read(&t, r, path); err != nil {
		return overload.Sheddable, true
	}
	least = overload.Critical
	for _, target := range t.List {
		class, known := c.of[target.Pattern]
		ok = ok || known
		least = min(least, class)
	}
	return least, ok
}

// checkOverload fails for classes that have no effect, or that cannot be told apart.
func checkOverload(c *Config) (err error) {
	if len(c.Classes) > 0 && !c.Overload.On {
		return &cli.FlagError{Flags: []string{"class"},
			Err: errors.New("--class has no effect without --overload: give that too")}
	}
	c.classes, err = newClasses(c.Classes)
	return err
}

// setOverload makes the guard of an upstream that is full. It goes on with that of the
// configuration before, if the goal is the same.
func setOverload(p *Proxy) (err error) {
	if !p.cfg.Overload.On {
		return nil
	}
	p.full = p.before().full
	if p.full == nil || p.before().cfg.Overload != p.cfg.Overload {
		p.full, err = overload.New(p.limiter, overload.Config{Goal: p.cfg.Overload.Goal})
	}
	return err
}

// overloaded is what the guard of an upstream has learnt and refused.
type overloaded struct {
	Limit     int                          `json:"limit"` // of requests in flight
	InFlight  int                          `json:"in_flight"`
	LatencyMs float64                      `json:"latency_ms"` // 0: it is not known yet, as are the next two
	GoalMs    float64                      `json:"goal_ms"`
	PerSecond float64                      `json:"per_second"` // requests that ended
	Learnt    bool                         `json:"learnt"`     // the goal; or it was given
	State     string                       `json:"state"`
	Refused   map[string]map[string]uint64 `json:"refused"` // by class, and by reason
}

// overloadedOf returns the figures of the guard, or nil without one.
func overloadedOf(p *Proxy) *overloaded {
	if p.full == nil {
		return nil
	}
	s := p.full.Stats()
	o := &overloaded{Limit: s.Limit, InFlight: s.InFlight, LatencyMs: ms(s.Latency),
		GoalMs:    ms(s.Goal),
		PerSecond: s.Throughput, Learnt: p.cfg.Overload.Goal == 0, State: s.State,
		Refused: make(map[string]map[string]uint64)}
	for class, reasons := range s.Refused {
		of := make(map[string]uint64)
		for reason, n := range reasons {
			of[reason.String()] = n
		}
		o.Refused[class.String()] = of
	}
	return o
}

// classOf returns httplimit's Class: that of the patterns, or of the rule that limits a request.
// nil: all are normal.
func classOf(p *Proxy) func(*http.Request) overload.Class {
	if p.full == nil || p.cfg.classes == nil && p.ruled == nil {
		return nil
	}
	byRule := func(*http.Request) overload.Class { return overload.Normal }
	if p.ruled != nil {
		byRule = p.ruled.class(p.ip)
	}
	if p.cfg.classes == nil {
		return byRule
	}
	return func(r *http.Request) overload.Class {
		class, ok := p.cfg.classes.find(r, recordOf(r.Context()).path)
		if !ok {
			class = byRule(r)
		}
		return class
	}
}
