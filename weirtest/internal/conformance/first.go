package conformance

import (
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
