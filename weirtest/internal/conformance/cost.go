package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir"
)

func costing(r weir.Request, cost uint64) weir.Request {
	r.Cost = cost
	return r
}

// exact checks that exactly the limit is admitted, to sequential and to concurrent callers.
func exact(s *suite) {
	for _, limit := range slices.Sorted(slices.Values(s.Limits)) { // the shortest history first
		exactInTurn(s, limit)
	}
	if s.Inexact {
		return
	}
	for range s.Histories {
		exactAtOnce(s, s.dice.pick())
	}
	for range (s.Histories + 9) / 10 {
		exactForOne(s)
	}
}

// exactForOne has two callers run a request at one instant of which one fits, with many keys, every
// second of them known before. A strategy that reads a count and then writes it admits both for
// some.
func exactForOne(s *suite) {
	limit := slices.Max(s.Limits)
	most := s.Burst(limit)
	s.try(func(tr *trial) {
		var requests [pairs]weir.Request
		for i := range requests {
			r := s.request(limit)
			r.Key, r.Cost = key+strconv.Itoa(i), most
			if i%2 == 0 && most > 1 {
				tr.admits(costing(r, most-1), "the key is new")
				r.Cost = 1
			}
			requests[i] = r
		}
		pair := crowd{suite: s, callers: 2}
		admitted := pair.inStep(tr, &requests)
		pair.checkError(tr)
		for i, r := range requests {
			if n := admitted[i].Load(); n != 1 {
				tr.failf("two concurrent requests of cost %d, limit %d, of which one fits: "+
					"%d were admitted, must be 1", r.Cost, limit, n)
			}
		}
	})
}

// pairs is how many keys a trial of exactForOne has.
const pairs = 64

// inStep has every caller run the requests, each when all are ready, and returns how many were
// admitted of each.
func (c *crowd) inStep(s weir.Strategy, requests *[pairs]weir.Request) *[pairs]atomic.Int32 {
	admitted := new([pairs]atomic.Int32)
	var ready atomic.Int32
	c.each(1, func() (failed error) {
		for i, r := range requests {
			all := c.callers * int32(i+1)
			if ready.Add(1) == all { // the others see it later, by about as much
				for range i * 7 % 200 {
					ready.Load()
				}
			}
			for spins := 0; ready.Load() < all; spins++ {
				if spins > 1000 { // they are not on two processors
					runtime.Gosched()
				}
			}
			was := r
			switch res, err := s.Run(context.Background(), &r); {
			case err != nil:
				failed = err
			case res == nil:
				failed = errNothing
			case r != was:
				failed = errors.New("its Request was changed: " + difference(was, r))
			case res.Allowed():
				admitted[i].Add(1)
			}
		}
		return failed
	})
	return admitted
}

var errNothing = errors.New("neither a Result nor an error")

// portion splits burst into at most 200 requests of equal cost. It returns the cost and how many
// fit.
func portion(burst uint64) (cost, fit uint64) {
	cost = (burst + 199) / 200
	return cost, burst / cost
}

func exactInTurn(s *suite, limit uint64) {
	cost, fit := portion(s.Burst(limit))
	r := costing(s.request(limit), cost)
	s.try(func(tr *trial) {
		for n := range fit {
			tr.admits(r, fmt.Sprintf("it is number %d, and %d fit", n+1, fit))
		}
		tr.denies(r, fmt.Sprintf("%d were admitted, and no more fit", fit))
	})
}

// exactAtOnce makes more concurrent requests than fit, with a sweep running.
func exactAtOnce(s *suite, limit uint64) {
	cost, fit := portion(s.Burst(limit))
	r := costing(s.request(limit), cost)
	s.try(func(tr *trial) {
		crowd := crowd{suite: s, callers: 4}
		if s.Sweep != nil {
			crowd.Go(func() { s.Sweep() })
		}
		crowd.run(tr, r, int(fit)/2+1)
		crowd.check(tr, r, fit)
	})
}

// crowd is a group of concurrent callers.
type crowd struct {
	sync.WaitGroup
	suite    *suite
	callers  int32
	ready    atomic.Int32
	mu       sync.Mutex
	admitted []uint64 // TotalRequests of each admission
	failed   error    // guarded by mu
}

// each calls do so many times in every caller, and returns when all are done.
func (c *crowd) each(times int, do func() error) {
	c.suite.crowded.Store(true)
	defer c.suite.crowded.Store(false)
	for range c.callers {
		c.Go(func() {
			c.meet()
			for range times {
				if err := do(); err != nil {
					c.mu.Lock()
					c.failed = err
					c.mu.Unlock()
				}
			}
		})
	}
	c.Wait()
}

// meet returns when all callers have called it. It spins: waking up takes longer than the race that
// is looked for.
func (c *crowd) meet() {
	c.ready.Add(1)
	for c.ready.Load() < c.callers {
		runtime.Gosched()
	}
}

// run makes every caller run r so many times.
func (c *crowd) run(s weir.Strategy, r weir.Request, times int) {
	totals := make([]uint64, times*int(c.callers)) // without a lock, which would serialize the callers
	var next atomic.Int32
	c.each(times, func() error {
		mine := r
		res, err := s.Run(context.Background(), &mine)
		if err == nil && res == nil {
			return errNothing
		}
		if mine != r {
			return errors.New("its Request was changed: " + difference(r, mine))
		}
		if err == nil && res.Allowed() {
			totals[next.Add(1)-1] = res.TotalRequests
		}
		return err
	})
	c.admitted = totals[:next.Load()]
}

func (c *crowd) checkError(tr *trial) {
	if c.failed != nil {
		tr.failf("one of several concurrent calls failed: %v", c.failed)
	}
}

// check requires fit admissions, whose totals are r.Cost, 2*r.Cost, ….
func (c *crowd) check(tr *trial, r weir.Request, fit uint64) {
	c.checkError(tr)
	if n := uint64(len(c.admitted)); n != fit {
		tr.failf("concurrent requests of cost %d, limit %d: %d were admitted, must be %d", r.Cost,
			r.Limit, n, fit)
	}
	slices.Sort(c.admitted)
	for i, total := range c.admitted {
		if want := uint64(i+1) * r.Cost; total != want {
			tr.failf(
				"concurrent requests of cost %d, limit %d: TotalRequests were %v, must be the multiples of %d",
				r.Cost, r.Limit, c.admitted, r.Cost)
		}
	}
}

// frozen returns a random history in which no time passes.
func frozen(s *suite, v variety) history {
	h := s.random(v)
	for i := range h {
		h[i].after = 0
	}
	return h
}

// cost checks that a request is admitted if and only if its cost fits in what is left.
func cost(s *suite) {
	s.searchIn(func() history { return frozen(s, variety{}) }, func(h history) {
		s.try(func(tr *trial) {
			var used uint64
			for _, step := range h {
				most, cost := s.Burst(step.r.Limit), max(step.r.Cost, 1)
				if used+cost <= most {
					tr.admits(step.r, fmt.Sprintf("%d of %d are used", used, most))
					used += cost
				} else {
					tr.denies(step.r, fmt.Sprintf("%d of %d are used", used, most))
				}
			}
		})
	})
}

// totalRequests checks that the total is the cost admitted, this request included if it was. As
// time passes, the total of an admission is at most the limit, and that of a denial leaves no room
// for the request.
func totalRequests(s *suite) {
	s.searchIn(func() history { return frozen(s, variety{}) }, func(h history) {
		s.try(func(tr *trial) {
			var used uint64
			for _, step := range h {
				res := tr.run(step.r)
				if res.Allowed() {
					used += max(step.r.Cost, 1)
				}
				if res.TotalRequests != used {
					tr.failf("the last TotalRequests must be %d, the cost admitted", used)
				}
			}
		})
	})
	if s.Fixed {
		return // the total may belong to another of its limits
	}
	s.search(variety{}, func(h history) {
		s.try(func(tr *trial) {
			for _, step := range h {
				tr.clock.Advance(step.after)
				res, cost, most := tr.run(step.r), max(step.r.Cost, 1), s.Burst(step.r.Limit)
				switch {
				case res.Allowed() && (res.TotalRequests < cost || res.TotalRequests > most):
					tr.failf("the last request was admitted: its TotalRequests must be %d to %d", cost, most)
				case !res.Allowed() && cost <= most && res.TotalRequests <= most-cost:
					tr.failf("the last request was denied, although with its TotalRequests it fits in %d", most)
				}
			}
		})
	})
}

// costOverLimit checks that a cost over the limit is denied for good and takes nothing.
func costOverLimit(s *suite) {
	for _, limit := range s.Limits {
		most := s.Burst(limit)
		r := s.request(limit)
		for _, used := range []uint64{0, most / 2} {
			for _, over := range []uint64{most + 1, math.MaxInt64 + 1, math.MaxUint64} {
				s.try(func(tr *trial) {
					if used > 0 {
						tr.total(costing(r, used), used, "it fits")
					}
					tr.never(costing(r, over), used, fmt.Sprintf("at most %d can pass", most))
					if most > used {
						tr.total(costing(r, most-used), most, "the denial before took nothing")
					}
					tr.denies(r, "nothing is left")
				})
			}
		}
	}
}

// limitZero checks that nothing is admitted at limit 0, and that such a request changes nothing.
func limitZero(s *suite) {
	r := s.request(s.Limits[0])
	for _, cost := range []uint64{0, 1, math.MaxUint64} {
		s.try(func(tr *trial) {
			tr.never(costing(s.request(0), cost), 0, "its limit is 0")
			tr.total(r, 1, "requests at limit 0 are not counted")
			if res := tr.denies(s.request(0), "its limit is 0"); !res.ExpiresAt.IsZero() {
				tr.failf("the last request can never pass: its ExpiresAt must be the zero time")
			}
		})
	}
}

// hugeLimit checks that a limit near math.MaxUint64 is counted, or refused with ErrLimit, and never
// wraps around.
func hugeLimit(s *suite) {
	for _, limit := range []uint64{math.MaxInt64 - 1, math.MaxInt64, math.MaxInt64 + 1,
		math.MaxUint64} {
		if s.Burst(limit) < 3 {
			continue
		}
		r := s.request(limit)
		s.try(func(tr *trial) {
			copied := r
			res, err := tr.Run(context.Background(), &copied)
			tr.record(event{at: tr.clock.Now(), call: "Run", r: r, err: err}, res)
			tr.unchanged("Run", r, copied)
			if errors.Is(err, weir.ErrLimit) {
				return
			}
			tr.total(r, 2, "hardly anything is used")
			tr.denies(costing(r, math.MaxInt64), "with what is used it is over what can be counted")
			tr.denies(costing(r, math.MaxUint64), "a cost over math.MaxInt64 never fits")
			tr.total(r, 3, "the denials before took nothing")
		})
	}
}
