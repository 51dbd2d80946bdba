// Package rule reads limits as a person writes them, 100/1m or 1000/1s,5000/10s, and makes strategies of them.
package rule

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir"
)

// The names of the strategies.
const (
	Fixed   = "fixed"
	Sliding = "sliding"
	Log     = "log"
	Token   = "token"
	Leaky   = "leaky"
	Tiers   = "tiers" // what a limit of several tiers is counted by; it is not given by name
)

// Strategies are the names that can be given.
var Strategies = []string{Fixed, Sliding, Log, Token, Leaky}

// Rule is one limit counted in one way.
type Rule struct {
	Limit    string      // as it was given
	Strategy string      // one of the names
	Burst    uint64      // of a token bucket, and how deep a leaky bucket's queue is; 0: the limit. 0 for the others
	Tiers    []weir.Tier // one, unless Strategy is Tiers
}

// String returns the rule in a few words.
func (r Rule) String() string {
	s := r.Limit + " " + r.Strategy
	if r.Burst > 0 {
		s += " burst " + strconv.FormatUint(r.Burst, 10)
	}
	return s
}

// Cross returns a Rule for each limit by each strategy, in that order. A limit of several tiers makes one Rule whatever
// the strategies. It fails if a limit or a strategy is no such thing, if a Rule comes out twice, or if weir refuses one.
func Cross(limits, strategies []string, burst uint64) ([]Rule, error) {
	for _, s := range strategies {
		if !slices.Contains(Strategies, s) {
			return nil, fmt.Errorf("no strategy %q: there are %s, and a limit of several tiers", s, strings.Join(Strategies, ", "))
		}
	}
	var rules []Rule
	for _, text := range limits {
		tiers, err := ParseLimit(text)
		if err != nil {
			return nil, err
		}
		if len(tiers) > 1 {
			rules = append(rules, Rule{Limit: text, Strategy: Tiers, Tiers: tiers})
			continue
		}
		for _, s := range strategies {
			r := Rule{Limit: text, Strategy: s, Tiers: tiers}
			if s == Token || s == Leaky {
				r.Burst = burst
			}
			rules = append(rules, r)
		}
	}
	for i, r := range rules {
		if slices.ContainsFunc(rules[:i], func(o Rule) bool { return o.Strategy == r.Strategy && slices.Equal(o.Tiers, r.Tiers) }) {
			return nil, fmt.Errorf("%s is asked for twice", r)
		}
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", r, err)
		}
	}
	return rules, nil
}

// ParseLimit reads one limit or several, separated by commas. A duration may be of days, 7d, and its 1 may be left out:
// 100/m is 100/1m.
func ParseLimit(text string) ([]weir.Tier, error) {
	var tiers []weir.Tier
	for part := range strings.SplitSeq(text, ",") {
		count, per, ok := strings.Cut(strings.TrimSpace(part), "/")
		if !ok {
			return nil, fmt.Errorf("limit %q: want COUNT/DURATION, such as 100/1m", text)
		}
		limit, err := strconv.ParseUint(count, 10, 63)
		if err != nil {
			return nil, fmt.Errorf("limit %q: %q is not a count from 0 to %d", text, count, math.MaxInt64)
		}
		d, err := parseDuration(per)
		if err != nil {
			return nil, fmt.Errorf("limit %q: %w", text, err)
		}
		tiers = append(tiers, weir.Tier{Limit: limit, Duration: d})
	}
	return tiers, nil
}

const maxDays = 365

func parseDuration(s string) (time.Duration, error) {
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

// On makes the rule's strategy on l, and the Request to ask it with, which lacks only the key.
func (r Rule) On(l *weir.Limiter) (weir.Strategy, weir.Request, error) {
	ask := weir.Request{Limit: r.Tiers[0].Limit, Duration: r.Tiers[0].Duration}
	switch r.Strategy {
	case Fixed:
		return l.FixedWindow(), ask, nil
	case Sliding:
		return l.SlidingWindow(), ask, nil
	case Log:
		return l.SlidingLog(), ask, nil
	case Token:
		return l.TokenBucket(r.Burst), ask, nil
	case Leaky:
		return l.LeakyBucket(r.Queue()), ask, nil
	case Tiers:
		s, err := l.Tiers(r.Tiers...)
		return s, ask, err
	}
	return nil, ask, fmt.Errorf("no strategy %q", r.Strategy)
}

// Queue is how deep a leaky bucket's queue is.
func (r Rule) Queue() int {
	depth := r.Burst
	if depth == 0 {
		depth = r.Tiers[0].Limit
	}
	return int(min(depth, math.MaxInt32))
}

// check asks weir whether it takes the rule: it knows the bounds.
func (r Rule) check() error {
	l, err := weir.New(weir.Config{})
	if err != nil {
		return err
	}
	defer l.Close()
	s, ask, err := r.On(l)
	if err != nil {
		return err
	}
	ask.Key = "any"
	_, err = s.(weir.Peeker).Peek(context.Background(), &ask)
	return err
}
