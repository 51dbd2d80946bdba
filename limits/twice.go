package limits

import (
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// count identifies the count that an Attempt is on.
type count struct {
	of       any
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
			if l[i].sameCount(&l[j]) {
				return i, j
			}
		}
	}
	return 0, 0
}

// twiceOfMany is twice, for limits in a Several among them too.
func (l Attempts) twiceOfMany() (first, second int) {
	var seen places[count]
	for j := range l {
		parts := l[j : j+1]
		if of := l[j].several(); of != nil {
			parts = of.ask(nil, &l[j].Request)
		}
		for i := range parts {
			c := parts[i].count()
			if c.of == nil {
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

// several returns the Several that is asked, or nil.
func (l *Attempt) several() *Several {
	of, _ := l.Counter.(*Several)
	return of
}

// sameCount reports whether two Attempts are on one count.
func (l *Attempt) sameCount(m *Attempt) bool {
	if l.Key != m.Key || l.about == nil || m.about == nil || l.about.Counts == nil {
		return false
	}
	return l.about == m.about && l.about.Bound || l.count() == m.count()
}

func (l *Attempt) count() (c count) {
	if l.about == nil {
		return c
	}
	c = count{of: l.about.Counts, key: l.Key}
	if !l.about.Bound {
		c.limit, c.duration = l.Limit, l.Duration
	}
	return c
}

// name describes the limit.
func (l *Attempt) name() string {
	if l.limit != nil {
		return l.limit.String()
	}
	if of := l.several(); of != nil {
		return of.String()
	}
	return fmt.Sprintf("%v, %d in %v", l.about, l.Limit, l.Duration)
}
