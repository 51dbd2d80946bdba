package conformance

import (
	"fmt"
	"reflect"
	"time"

	"github.com/weirgo/weir"
)

// The laws without which the others say nothing.

// runs checks that valid requests are decided, and not changed: those of every kind of Cost, and
// unless they would wait those that are denied too.
func runs(s *suite) {
	for _, d := range s.Durations {
		for _, limit := range s.Limits {
			for _, cost := range []uint64{0, 1, s.Burst(limit)} {
				r := weir.Request{Key: key, Limit: limit, Duration: d, Cost: cost, Meta: "meta"}
				s.try(func(tr *trial) {
					tr.run(r)
					if !s.Waits {
						tr.run(costing(r, s.Burst(limit)))
						tr.run(r)
					}
				})
			}
		}
	}
}

// describesItself checks that the About of a Counter is its own: with the About of another one its
// Do is never called. A type that embeds a Counter and has another Run is none.
func describesItself(s *suite) {
	c, ok := s.offers.(weir.Counter)
	of := reflect.TypeOf(c)
	if !ok || reflect.TypeOf(weir.CounterOf(c)) == of || embedsCounter(of) {
		return
	}
	panic(&failure{message: fmt.Sprintf("the strategy is a %T, and its About is of a %T, so that "+
		"its Do is never called: a wrapper makes an About its own by About.By", c, c.About().Of)})
}

// embedsCounter reports whether a type, or one that it points to, embeds a Counter.
func embedsCounter(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		f := t.Field(i)
		counter := reflect.TypeFor[weir.Counter]()
		if f.Anonymous && (f.Type.Implements(counter) || reflect.PointerTo(f.Type).Implements(counter)) {
			return true
		}
	}
	return false
}

// readsClock checks that a Result is by the suite's clock, and not by the real one, which is
// decades ahead of it.
func readsClock(s *suite) {
	s.try(func(tr *trial) {
		res, now, real := tr.run(s.request(s.Limits[0])), tr.clock.Now(), time.Now()
		if at := res.ExpiresAt; !at.IsZero() && at.Sub(real).Abs() < at.Sub(now).Abs() {
			panic(&failure{message: "the strategy does not read the clock that newStrategy is given: " +
				"ExpiresAt is " + at.UTC().Format(time.DateTime) + ", by the real clock, and that " +
				"clock is at " + now.UTC().Format(time.DateTime)})
		}
	})
}
