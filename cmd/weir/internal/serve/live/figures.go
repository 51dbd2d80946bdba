package live

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/throttle"
	"github.com/weirgo/weir/rules"
)

// nearLimit is the fraction of a limit above which hits count as near it.
const nearLimit = 0.8

// maxRules bounds the number of rules that have figures.
const maxRules = 10_000

// Figures counts the decisions of rules. It is safe for concurrent use.
type Figures struct {
	counting rules.Config
	rules    atomic.Pointer[map[*rules.Rule]*figure]
	mu       sync.Mutex // held to replace rules
}

// figure holds the counts of one rule.
type figure struct {
	hits, within, near, over, shadow, lost atomic.Uint64

	peeked atomic.Bool
	warned throttle.Throttle
}

// Figure holds the hits of a rule. Hits is Within plus Over; Within includes Near, and Over
// includes Shadowed and Lost. Lost are the hits that a rule which is peeked at denied, and so did
// not count.
type Figure struct{ Hits, Within, Near, Over, Shadowed, Lost uint64 }

func newFigures(counting rules.Config) *Figures {
	f := &Figures{counting: counting}
	f.rules.Store(&map[*rules.Rule]*figure{})
	return f
}

type ruleName struct{ domain, path string }

// follow switches to the rules of set. A rule with the same domain and path keeps its figures.
func (f *Figures) follow(set *rules.Set) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := make(map[ruleName]*figure)
	for r, of := range *f.rules.Load() {
		known[ruleName{r.Domain, r.Path}] = of
	}
	next := make(map[*rules.Rule]*figure)
	for r := range set.All() {
		if len(next) == maxRules {
			break
		}
		of := known[ruleName{r.Domain, r.Path}]
		if of == nil {
			of = new(figure)
		}
		next[r] = of
	}
	f.rules.Store(&next)
}

// Count adds n hits of a rule with the given status, of a request that was denied or not. It
// reports, at most once a minute for each rule, that they are Lost.
func (f *Figures) Count(s *rules.Status, n uint64, denied bool) (lost bool) {
	of := (*f.rules.Load())[s.Rule]
	if of == nil {
		return false
	}
	of.hits.Add(n)
	switch {
	case n == 0 && !of.peeked.Load():
		of.peeked.Store(true)
	case n > 0 && denied && s.Limit != nil && of.peeked.Load() && !f.counting.CountDenied &&
		!s.Rule.Limit.Afterwards:
		of.lost.Add(n)
		_, lost = of.warned.Allow(time.Now(), time.Minute)
	}
	switch s.Reason {
	case rules.Over:
		of.over.Add(n)
	case rules.Shadowed:
		of.over.Add(n)
		of.shadow.Add(n)
	case rules.Within:
		of.within.Add(n)
		if float64(s.Remaining) < float64(s.Limit.Requests)*(1-nearLimit) {
			of.near.Add(n)
		}
	case rules.Unlimited:
		of.within.Add(n)
	}
	return lost
}

// All returns the figures of the rules, in any order.
func (f *Figures) All() iter.Seq2[*rules.Rule, Figure] {
	return func(yield func(*rules.Rule, Figure) bool) {
		for r, of := range *f.rules.Load() {
			now := Figure{
				of.hits.Load(), of.within.Load(), of.near.Load(), of.over.Load(), of.shadow.Load(),
				of.lost.Load(),
			}
			if !yield(r, now) {
				return
			}
		}
	}
}
