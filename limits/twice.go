package limits

import (
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/forlimits"
)

// count identifies the count that an Attempt is on.
type count struct {
	forlimits.Counts
	key      string
	limit    uint64
	duration time.Duration
}

// checkCounts fails if two of the Attempts are on one count.
func (l Attempts) checkCounts() error {
	i, j := l.twice()
	if j == 0 {
		return nil
	}
	return fmt.Errorf("limits: %d and %d, %s and %s, are on one count, from which a request takes "+
		"once: leave one out, or give it a name of its own by .Named(…): %w",
		i, j, l[i].name(), l[j].name(), weir.ErrLimit)
}

// twice returns the places of the first two Attempts that are on one count, or zeros.
func (l Attempts) twice() (first, second int) {
	const few = 4
	if len(l) > few {
		return l.twiceOfMany()
	}
	for j := range l {
		if l[j].several() != nil {
			return l.twiceOfMany()
		}
		for i := range j {
			if l[i].Request.Key == l[j].Request.Key && l[i].sameCount(&l[j]) {
				return i, j
			}
		}
	}
	return 0, 0
}

// twiceOfMany is twice, for limits in an All among them too.
func (l Attempts) twiceOfMany() (first, second int) {
	var seen places[count]
	for j := range l {
		parts := l[j : j+1]
		if of := l[j].several(); of != nil {
			parts = of.ask(nil, &l[j].Request)
		}
		for i := range parts {
			c := parts[i].count()
			if c.Of == nil {
				continue
			}
			if first := seen.last(c); first >= 0 {
				return first, j
			}
			seen.note(c, j)
		}
	}
	return 0, 0
}

// several returns the strategy of an All that is asked, or nil.
func (l *Attempt) several() *all {
	of, _ := l.strategy.(*all)
	return of
}

// sameCount reports whether two Attempts with one key are on one count.
func (l *Attempt) sameCount(m *Attempt) bool {
	if l.of != nil && m.of != nil && l.of.counts.Bound && m.of.counts.Bound { // as most often
		return l.of.counts == m.of.counts
	}
	a := l.count()
	return a.Of != nil && a == m.count()
}

func (l *Attempt) count() count {
	c := count{key: l.Request.Key}
	if l.of != nil {
		c.Counts = l.of.counts
	} else {
		c.Counts = inside.CountsOf(l.strategy)
	}
	if !c.Bound {
		c.limit, c.duration = l.Request.Limit, l.Request.Duration
	}
	return c
}

// name describes the limit.
func (l *Attempt) name() string {
	if l.of != nil && l.of.limit != nil {
		return l.of.limit.String()
	}
	return fmt.Sprintf("%s, %d in %v", weir.NameOf(l.strategy), l.Request.Limit, l.Request.Duration)
}
