package weirtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir"
)

// The laws of counting, which hold while time stands still.

// request returns a request of the usual key, with this limit.
func (s *suite) request(limit uint64) weir.Request {
	return weir.Request{Key: key, Limit: limit, Duration: s.Durations[0]}
}

func costing(r weir.Request, cost uint64) weir.Request {
	r.Cost = cost
	return r
}

// exact: one caller after the other, and then all at once, are admitted exactly the limit.
func exact(s *suite) {
	for _, limit := range slices.Sorted(slices.Values(s.Limits)) { // the shortest history first
		s.exactInTurn(limit)
	}
	if s.Inexact {
		return
	}
	for range s.Histories {
		s.exactAtOnce(s.pick(s.Limits))
	}
}

// portion is the cost of one of the at most 200 equal requests that use up burst, and how many of them fit.
func portion(burst uint64) (cost, fit uint64) {
	cost = (burst + 199) / 200
	return cost, burst / cost
}

func (s *suite) exactInTurn(limit uint64) {
	cost, fit := portion(s.Burst(limit))
	r := costing(s.request(limit), cost)
	s.try(func(tr *trial) {
		for n := range fit {
			tr.admits(r, fmt.Sprintf("it is number %d, and %d fit", n+1, fit))
		}
		tr.denies(r, fmt.Sprintf("%d were admitted, and no more fit", fit))
	})
}

// exactAtOnce has callers ask at the same time, with the sweeper running, for more than fits.
func (s *suite) exactAtOnce(limit uint64) {
	cost, fit := portion(s.Burst(limit))
	r := costing(s.request(limit), cost)
	s.try(func(tr *trial) {
		crowd := crowd{callers: 4}
		if s.Sweep != nil {
			crowd.Go(func() { s.Sweep() })
		}
		crowd.ask(tr, r, int(fit)/2+1)
		crowd.check(tr, r, fit)
	})
}

// crowd is callers who ask at the same time.
type crowd struct {
	sync.WaitGroup
	callers  int32
	ready    atomic.Int32
	mu       sync.Mutex
	admitted []uint64 // the TotalRequests that they were told
	failed   error    // guarded by mu
}

// each has every caller do something so many times, and returns when all are done.
func (c *crowd) each(times int, do func() error) {
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

// meet returns when all callers are here. They spin: to be woken takes longer than the race that they are to find.
func (c *crowd) meet() {
	c.ready.Add(1)
	for c.ready.Load() < c.callers {
		runtime.Gosched()
	}
}

// ask has every caller ask for r so many times.
func (c *crowd) ask(s weir.Strategy, r weir.Request, times int) {
	told := make([]uint64, times*int(c.callers)) // no lock, which would keep the callers out of each other's way
	var next atomic.Int32
	c.each(times, func() error {
		mine := r
		res, err := s.Run(context.Background(), &mine)
		if err == nil && res == nil {
			return errors.New("neither a Result nor an error")
		}
		if err == nil && res.Allowed() {
			told[next.Add(1)-1] = res.TotalRequests
		}
		return err
	})
	c.admitted = told[:next.Load()]
}

func (c *crowd) checkErr(tr *trial) {
	if c.failed != nil {
		tr.broken("of several callers at one instant one failed: %v", c.failed)
	}
}

// check wants fit of them admitted, and each told a total of its own: r.Cost, 2*r.Cost, ….
func (c *crowd) check(tr *trial, r weir.Request, fit uint64) {
	c.checkErr(tr)
	if n := uint64(len(c.admitted)); n != fit {
		tr.broken("several callers at one instant, of cost %d, limit %d: %d were admitted, must be %d", r.Cost, r.Limit, n, fit)
	}
	slices.Sort(c.admitted)
	for i, total := range c.admitted {
		if want := uint64(i+1) * r.Cost; total != want {
			tr.broken("several callers at one instant, of cost %d, limit %d: their TotalRequests were %v, must be %d and its multiples, each once",
				r.Cost, r.Limit, c.admitted, r.Cost)
		}
	}
}

// frozen returns a random history in which no time passes.
func (s *suite) frozen(v variety) history {
	h := s.random(v)
	for i := range h {
		h[i].after = 0
	}
	return h
}

// cost: a request passes if and only if its cost fits into what is left.
func cost(s *suite) {
	s.searchIn(func() history { return s.frozen(variety{}) }, func(h history) {
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

// totalRequests: the total is what was admitted, this request included if it was; later on it stays below the limit if
// the request passes, and leaves no room for it if not.
func totalRequests(s *suite) {
	s.searchIn(func() history { return s.frozen(variety{}) }, func(h history) {
		s.try(func(tr *trial) {
			var used uint64
			for _, step := range h {
				res := tr.ask(step.r)
				if res.Allowed() {
					used += max(step.r.Cost, 1)
				}
				if res.TotalRequests != used {
					tr.broken("the last TotalRequests must be %d, which is what was admitted", used)
				}
			}
		})
	})
	if s.Fixed {
		return // the total may be that of another of its limits
	}
	s.search(variety{}, func(h history) {
		s.try(func(tr *trial) {
			for _, step := range h {
				tr.clock.Advance(step.after)
				res, cost, most := tr.ask(step.r), max(step.r.Cost, 1), s.Burst(step.r.Limit)
				switch {
				case res.Allowed() && (res.TotalRequests < cost || res.TotalRequests > most):
					tr.broken("the last request was admitted, so that its TotalRequests must be %d to %d", cost, most)
				case !res.Allowed() && cost <= most && res.TotalRequests <= most-cost:
					tr.broken("the last request was denied, though by its TotalRequests it fits into %d", most)
				}
			}
		})
	})
}

// costOverLimit: a cost over the limit is a denial for good, and takes nothing.
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

// never asks for r, which must be denied for good.
func (tr *trial) never(r weir.Request, total uint64, why string) {
	switch res := tr.denies(r, why); {
	case !res.ExpiresAt.IsZero():
		tr.broken("the last request can never pass, and so its ExpiresAt must be the zero time")
	case res.TotalRequests != total:
		tr.broken("the last TotalRequests must be %d", total)
	}
}

// limitZero: nothing passes at limit 0, and asking does nothing.
func limitZero(s *suite) {
	r := s.request(s.Limits[0])
	for _, cost := range []uint64{0, 1, math.MaxUint64} {
		s.try(func(tr *trial) {
			tr.never(costing(s.request(0), cost), 0, "its limit is 0")
			tr.total(r, 1, "what was asked at limit 0 took nothing")
			if res := tr.denies(s.request(0), "its limit is 0"); !res.ExpiresAt.IsZero() {
				tr.broken("the last request can never pass, and so its ExpiresAt must be the zero time")
			}
		})
	}
}

// hugeLimit: a limit near the end of the numbers is counted, or refused as ErrLimit; it never wraps around.
func hugeLimit(s *suite) {
	for _, limit := range []uint64{math.MaxInt64 - 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		if s.Burst(limit) < 3 {
			continue
		}
		r := s.request(limit)
		s.try(func(tr *trial) {
			asked := r
			res, err := tr.Run(context.Background(), &asked)
			tr.record(event{at: tr.clock.Now(), call: "Run", r: r, err: err}, res)
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
