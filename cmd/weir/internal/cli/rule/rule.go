// Package rule parses limits of the command line and makes strategies from them. A limit is written
//
//	[NAME=]COUNT/DURATION[,COUNT/DURATION...][:STRATEGY]
//	[NAME=]COUNT/UNIT[:ANCHOR][:TIME]@ZONE
//
// such as 100/1m, login=5/1m:log, 1000/1s,5000/10s or 10000/month:17@Europe/Berlin.
package rule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/calendar"
)

// The names of the strategies.
const (
	Fixed   = "fixed"
	Sliding = "sliding"
	Log     = "log"
	Token   = "token"
	Leaky   = "leaky"

	// These cannot be given by name.
	Tiers    = "tiers"    // a limit with several tiers
	Calendar = "calendar" // a limit in windows of the calendar
)

// Titles are the full names of the strategies.
var Titles = map[string]string{
	Fixed: "fixed window", Sliding: "sliding window", Log: "sliding log", Token: "token bucket",
	Leaky: "leaky bucket", Tiers: "tiers", Calendar: "calendar",
}

// Default is the strategy of limits that name none: it admits no burst of twice the limit where two
// windows meet.
const Default = Sliding

// Strategies are the names that can be given.
var Strategies = []string{Fixed, Sliding, Log, Token, Leaky}

// Rule is a limit and a strategy.
type Rule struct {
	Name string `json:"name,omitempty"` // may be empty
	// COUNT/DURATION as the user wrote it, or several of them
	Limit    string `json:"limit"`
	Strategy string `json:"strategy"` // one of the names
	// size of a token bucket or of a leaky bucket's queue; 0 means the limit
	Burst uint64      `json:"burst,omitempty"`
	Tiers []weir.Tier `json:"-"` // one, unless Strategy is Tiers

	// Of a Calendar, whose tier is as long as most of its windows.
	Unit weir.CalendarUnit `json:"-"`
	Zone *time.Location    `json:"-"`
}

// String returns the limit, the strategy and the burst.
func (r Rule) String() string {
	s := r.Limit + " " + r.Strategy
	if r.Burst > 0 {
		s += " burst " + strconv.FormatUint(r.Burst, 10)
	}
	return s
}

// AtOnce returns how many requests of one caller the rule admits within a moment, at most.
func (r Rule) AtOnce() uint64 {
	switch first := r.Tiers[0].Limit; {
	case first == 0: // whatever the burst
		return 0
	case r.Strategy == Fixed, r.Strategy == Calendar: // where two windows meet
		return 2 * first
	case r.Strategy == Leaky:
		return 1
	case r.Strategy == Tiers:
		return atOnce(r.Tiers)
	case r.Burst > 0:
		return r.Burst
	default:
		return first
	}
}

// atOnce returns the least that tiers admit at once. The shortest may be one slice of time, which
// is a fixed window.
func atOnce(tiers []weir.Tier) uint64 {
	shortest := slices.MinFunc(tiers, func(a, b weir.Tier) int {
		return cmp.Compare(a.Duration, b.Duration)
	})
	least := 2 * shortest.Limit
	for _, t := range tiers {
		if t != shortest {
			least = min(least, t.Limit)
		}
	}
	return least
}

// Defaults apply to a limit that does not name its strategy, and to the strategies' sizes.
type Defaults struct {
	Strategy string // one of Strategies
	Burst    uint64 // size of a token bucket; 0 means the limit
	Queue    uint64 // size of a leaky bucket's queue; 0 means the limit
}

// Parse parses one limit. It fails if the text is not a limit or if weir rejects it.
func Parse(text string, d Defaults) (Rule, error) {
	r, err := parse(text)
	if err != nil {
		return Rule{}, err
	}
	if r.Strategy == "" {
		if err := checkStrategy(d.Strategy); err != nil {
			return Rule{}, err
		}
	}
	r = r.with(d)
	return r, r.check()
}

// parse parses one limit. Its strategy is empty if d would choose it, and it has no burst.
func parse(text string) (Rule, error) {
	var r Rule
	rest := text
	if name, limit, named := strings.Cut(text, "="); named {
		if name == "" {
			return r, fmt.Errorf("limit %q: the name before the equals sign is empty", text)
		}
		r.Name, rest = name, limit
	}
	if strings.Contains(rest, "@") {
		err := r.parseCalendar(rest)
		return r, err
	}
	if count, per, ok := strings.Cut(rest, "/"); ok && strings.Contains(per, ":") {
		if _, err := calendar.ParseUnit(per); err == nil {
			return r, fmt.Errorf("limit %q: a window of the calendar needs a time zone; "+
				"did you mean %s/%s@UTC?", text, count, per)
		}
	}
	limit, strategy, own := strings.Cut(rest, ":")
	tiers, err := ParseLimit(limit)
	if err != nil {
		return r, err
	}
	r.Limit, r.Strategy, r.Tiers = limit, strategy, tiers
	switch several := len(tiers) > 1; {
	case own && several:
		return r, fmt.Errorf("limit %q: several tiers cannot have a strategy", text)
	case own:
		if err := checkStrategy(strategy); err != nil {
			return r, fmt.Errorf("limit %q: %w", text, err)
		}
	case several:
		r.Strategy = Tiers
	}
	return r, nil
}

// parseCalendar parses a limit in windows of the calendar.
func (r *Rule) parseCalendar(text string) error {
	limit, per, _ := strings.Cut(text, "/")
	unit, place, _ := strings.Cut(per, "@")
	count, err := parseCount(limit, text)
	if err != nil {
		return err
	}
	u, err := calendar.ParseUnit(unit)
	if err != nil {
		return fmt.Errorf("limit %q: %w", text, err)
	}
	zone, err := time.LoadLocation(place)
	if err != nil || place == "" {
		return fmt.Errorf("limit %q: no time zone %q: want one such as Europe/Berlin, and no strategy "+
			"after it", text, place)
	}
	r.Limit, r.Strategy, r.Unit, r.Zone = text, Calendar, weir.CalendarUnit(u), zone
	r.Tiers = []weir.Tier{{Limit: count, Duration: u.Length()}}
	return nil
}

func checkStrategy(name string) error {
	if !slices.Contains(Strategies, name) {
		return fmt.Errorf("no strategy %q: want one of %s", name, strings.Join(Strategies, ", "))
	}
	return nil
}

// with applies the defaults.
func (r Rule) with(d Defaults) Rule {
	r.Strategy = cmp.Or(r.Strategy, d.Strategy)
	switch r.Strategy {
	case Token:
		r.Burst = d.Burst
	case Leaky:
		r.Burst = d.Queue
	}
	return r
}

// Cross returns a Rule for each limit with each strategy, in that order. A limit that names its
// strategy, or that has several tiers, gives one Rule. burst is the size of token buckets and of
// leaky buckets' queues. Cross fails if a limit or a strategy is invalid, if a Rule occurs twice,
// if weir rejects one, or if there is a burst and no strategy that uses it.
func Cross(limits, strategies []string, burst uint64) ([]Rule, error) {
	for _, s := range strategies {
		if err := checkStrategy(s); err != nil {
			return nil, err
		}
	}
	var rules []Rule
	for _, text := range limits {
		r, err := parse(text)
		if err != nil {
			return nil, err
		}
		each := strategies
		if r.Strategy != "" {
			each = []string{r.Strategy}
		}
		for _, s := range each {
			rules = append(rules, r.with(Defaults{Strategy: s, Burst: burst, Queue: burst}))
		}
	}
	for i, r := range rules {
		if slices.ContainsFunc(rules[:i], r.countsAs) {
			return nil, fmt.Errorf("%s is given twice", r)
		}
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", r, err)
		}
	}
	if burst > 0 && !slices.ContainsFunc(rules, Rule.HasBurst) {
		return nil, ErrBurst
	}
	return rules, nil
}

// countsAs reports whether two rules with the same burst are one.
func (r Rule) countsAs(o Rule) bool {
	return o.Strategy == r.Strategy && slices.Equal(o.Tiers, r.Tiers) &&
		o.Unit.String() == r.Unit.String() && o.Zone.String() == r.Zone.String()
}

// ErrBurst means that a burst was given and no strategy uses it.
var ErrBurst = errors.New("burst applies only to the strategies token and leaky, and neither is " +
	"given")

// HasBurst reports whether the rule's strategy has a Burst.
func (r Rule) HasBurst() bool { return r.Strategy == Token || r.Strategy == Leaky }

// ParseLimit parses one limit, or several separated by commas. A duration may be in days, such as
// 7d, and a leading 1 may be omitted: 100/m is 100/1m.
func ParseLimit(text string) ([]weir.Tier, error) {
	var tiers []weir.Tier
	for part := range strings.SplitSeq(text, ",") {
		count, per, ok := strings.Cut(strings.TrimSpace(part), "/")
		if !ok {
			return nil, fmt.Errorf("limit %q: want COUNT/DURATION, such as 100/1m", text)
		}
		limit, err := parseCount(count, text)
		if err != nil {
			return nil, err
		}
		d, err := ParseDuration(per)
		if err != nil {
			return nil, fmt.Errorf("limit %q: %w%s", text, err, meant(count, per))
		}
		tiers = append(tiers, weir.Tier{Limit: limit, Duration: d})
	}
	return tiers, nil
}

// meant returns how a limit in words is written, such as 20/1m for 20/minute, or nothing.
func meant(count, per string) string {
	word := strings.ToLower(strings.TrimSuffix(per, "s"))
	written, ok := map[string]string{
		"sec": "1s", "second": "1s", "min": "1m", "minute": "1m", "hr": "1h", "hour": "1h",
		"day": "1d", "week": "7d", "month": "month@UTC", "year": "year@UTC",
	}[word]
	if !ok {
		return ""
	}
	return "; did you mean " + count + "/" + written + "?"
}

func parseCount(count, text string) (uint64, error) {
	n, err := strconv.ParseUint(count, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("limit %q: %q is not a count from 0 to %d", text, count, math.MaxInt64)
	}
	return n, nil
}

const maxDays = 365

// ParseDuration parses a duration as time.ParseDuration does, or a number of days, such as 7d. A
// leading 1 may be omitted: m is 1m.
func ParseDuration(s string) (time.Duration, error) {
	given := s
	if s != "" && s[0] >= 'a' && s[0] <= 'z' {
		s = "1" + s
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil || n > maxDays {
			return 0, fmt.Errorf("%q is not a number of days up to %d", given, maxDays)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 500ms, 30s, 1m, 1h30m or 7d", given)
	}
	return d, nil
}

// Request returns a Request for the rule's strategy, without the key.
func (r Rule) Request() weir.Request {
	return weir.Request{Limit: r.Tiers[0].Limit, Duration: r.Tiers[0].Duration}
}

// ErrLeakyOnRedis means that On was given a redislimit.Store for a leaky bucket.
var ErrLeakyOnRedis = errors.New("strategy " + Leaky + " makes requests wait in this process, " +
	"which Redis cannot; choose another with --redis")

// On returns r's strategy on s, a weir.Limiter or a redislimit.Store.
func On[F, S, L, T, M, C weir.Strategy](r Rule, s interface {
	FixedWindow() F
	SlidingWindow() S
	SlidingLog() L
	TokenBucket(burst uint64) T
	Tiers(tiers ...weir.Tier) M
	Calendar(unit weir.CalendarUnit, zone *time.Location) C
}) (weir.Strategy, error) {
	switch r.Strategy {
	case Fixed:
		return s.FixedWindow(), nil
	case Sliding:
		return s.SlidingWindow(), nil
	case Log:
		return s.SlidingLog(), nil
	case Token:
		return s.TokenBucket(r.Burst), nil
	case Tiers:
		return s.Tiers(r.Tiers...), nil
	case Calendar:
		return s.Calendar(r.Unit, r.Zone), nil
	case Leaky:
		if l, ok := any(s).(*weir.Limiter); ok {
			return l.LeakyBucket(r.Queue()), nil
		}
		return nil, ErrLeakyOnRedis
	}
	return nil, fmt.Errorf("no strategy %q", r.Strategy)
}

// Queue returns the size of a leaky bucket's queue.
func (r Rule) Queue() int {
	return int(min(cmp.Or(r.Burst, r.Tiers[0].Limit), math.MaxInt32))
}

// check returns an error if weir rejects the rule.
func (r Rule) check() error {
	l, err := weir.New(weir.Config{})
	if err != nil {
		return err
	}
	defer l.Close()
	s, err := On(r, l)
	if err != nil {
		return err
	}
	of := weir.CounterOf(s)
	op := &weir.Op{Counter: of, Verb: weir.OpPeek, Request: r.Request()}
	op.Key = "any"
	of.Do(context.Background(), []*weir.Op{op})
	return op.Err
}
