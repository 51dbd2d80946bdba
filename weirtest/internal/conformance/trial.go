package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirgo/weir"
)

// trial is one history on a strategy of its own.
type trial struct {
	weir.Strategy
	suite    *suite
	clock    Clock
	origin   time.Time // the instant from which the history's times count
	events   []event
	baseline []event // the history that this one is compared with, if any
}

// event is one call of a trial and its result.
type event struct {
	at   time.Time
	call string // "Run", "Peek", …
	r    weir.Request
	res  weir.Result // zero for the calls that return none
	err  error
	took time.Duration // how long the call waited
}

// scope is a testing.TB whose cleanups run at the end of a trial, not of the test.
type scope struct {
	testing.TB
	cleanups []func()
}

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) end() {
	for len(s.cleanups) > 0 {
		last := len(s.cleanups) - 1
		f := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		f()
	}
}

// try calls f with a new strategy.
func (s *suite) try(f func(*trial)) {
	scope := &scope{TB: s.t}
	defer scope.end()
	clock := s.newClock()
	f(&trial{Strategy: s.make(scope, clock), suite: s, clock: clock, origin: clock.Now()})
}

// catch returns the failure that f panicked with, or nil.
func catch(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *failure:
			err = p
		default:
			panic(p)
		}
	}()
	f()
	return nil
}

// failf ends the law with a failure.
func (tr *trial) failf(format string, args ...any) {
	panic(&failure{message: fmt.Sprintf(format, args...), origin: tr.origin, events: tr.events,
		baseline: tr.baseline})
}

// run runs r, which the strategy must be able to decide.
func (tr *trial) run(r weir.Request) weir.Result {
	return tr.decided("Run", r, tr.Run)
}

// peek is run for Peek.
func (tr *trial) peek(r weir.Request) weir.Result {
	return tr.decided("Peek", r, tr.Strategy.(weir.Peeker).Peek)
}

func (tr *trial) decided(call string, r weir.Request,
	f func(context.Context, *weir.Request) (*weir.Result, error)) weir.Result {
	e := event{at: tr.clock.Now(), call: call, r: r}
	res, err := f(context.Background(), &r)
	e.err, e.took = err, tr.clock.Now().Sub(e.at)
	tr.record(e, res)
	tr.unchanged(call, e.r, r)
	switch {
	case err != nil && res != nil:
		tr.failf("%s returned an error with a Result", call)
	case err != nil:
		tr.failf("%s failed on a valid request: %v", call, err)
	case res == nil:
		tr.failf("%s returned neither a Result nor an error", call)
	case res.State != weir.Allow && res.State != weir.Deny:
		tr.failf("%s returned State %d", call, res.State)
	}
	return *res
}

// unchanged requires that a call has left its Request as it was.
func (tr *trial) unchanged(call string, was, is weir.Request) {
	if how := difference(was, is); how != "" {
		tr.failf("%s changed its Request: %s", call, how)
	}
}

// difference returns the fields in which two Requests differ, or "".
func difference(a, b weir.Request) string {
	var all []string
	field := func(name string, a, b any) {
		if a != b {
			all = append(all, fmt.Sprintf("%s was %v and is %v", name, a, b))
		}
	}
	field("Key", a.Key, b.Key)
	field("Limit", a.Limit, b.Limit)
	field("Duration", a.Duration, b.Duration)
	field("Cost", a.Cost, b.Cost)
	field("Meta", a.Meta, b.Meta)
	return strings.Join(all, ", ")
}

// record adds e and its Result to the history that a failure shows.
func (tr *trial) record(e event, res *weir.Result) {
	if res != nil {
		e.res = *res
	}
	tr.events = append(tr.events, e)
}

// do calls a method of an optional interface, which must succeed.
func (tr *trial) do(call string, r weir.Request, f func(context.Context, *weir.Request) error) {
	e := event{at: tr.clock.Now(), call: call, r: r}
	e.err = f(context.Background(), &r)
	tr.events = append(tr.events, e)
	tr.unchanged(call, e.r, r)
	if e.err != nil {
		tr.failf("%s failed: %v", call, e.err)
	}
}

func (tr *trial) refund(r weir.Request, taken weir.Result) {
	tr.do("Refund", r, func(ctx context.Context, r *weir.Request) error {
		return tr.Strategy.(weir.Refunder).Refund(ctx, r, &taken)
	})
}

func (tr *trial) seed(r weir.Request, counted weir.Result) {
	tr.do("Seed", r, func(ctx context.Context, r *weir.Request) error {
		return tr.Strategy.(weir.Seeder).Seed(ctx, r, &counted)
	})
}

// sweep calls Laws.Sweep.
func (tr *trial) sweep() {
	tr.events = append(tr.events, event{at: tr.clock.Now(), call: sweeping})
	tr.suite.Sweep()
}

// sweeping names a sweep in a history.
const sweeping = "Sweep"

func (tr *trial) reset(r weir.Request)  { tr.do("Reset", r, tr.Strategy.(weir.Resetter).Reset) }
func (tr *trial) charge(r weir.Request) { tr.do("Charge", r, tr.Strategy.(weir.Charger).Charge) }

// admits runs r, which must be admitted.
func (tr *trial) admits(r weir.Request, why string) weir.Result {
	res := tr.run(r)
	if !res.Allowed() {
		tr.failf("the last request must be admitted: %s", why)
	}
	return res
}

// denies runs r, which must be denied.
func (tr *trial) denies(r weir.Request, why string) weir.Result {
	res := tr.run(r)
	if res.Allowed() {
		tr.failf("the last request must be denied: %s", why)
	}
	return res
}

// total runs r, which must be admitted, with this total.
func (tr *trial) total(r weir.Request, want uint64, why string) {
	if res := tr.admits(r, why); res.TotalRequests != want {
		tr.failf("the last TotalRequests must be %d: %s", want, why)
	}
}
