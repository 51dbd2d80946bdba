package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
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

func (e event) row(w *tabwriter.Writer, origin time.Time) {
	if e.call == sweeping {
		fmt.Fprintf(w, "%v\t%s\t\t\t\t\t\t\n", e.at.Sub(origin), e.call)
		return
	}
	key := e.r.Key
	if len(key) > 12 {
		key = key[:12] + "…"
	}
	fmt.Fprintf(w, "%v\t%s\t%q\t%d in %v\t%d\t", e.at.Sub(origin), e.call, key, e.r.Limit,
		e.r.Duration,
		max(e.r.Cost, 1))
	waited := ""
	if e.took != 0 {
		waited = fmt.Sprintf(" after %v", e.took)
	}
	switch {
	case e.err != nil:
		fmt.Fprintf(w, "error%s: %v\t\t\n", waited, e.err)
	case e.call != "Run" && e.call != "Peek":
		fmt.Fprint(w, "done\t\t\n")
	case e.res.ExpiresAt.IsZero():
		fmt.Fprintf(w, "%v%s\t%d\tnever\n", e.res.State, waited, e.res.TotalRequests)
	default:
		fmt.Fprintf(w, "%v%s\t%d\t%v\n", e.res.State, waited, e.res.TotalRequests,
			e.res.ExpiresAt.Sub(origin))
	}
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

// peek is run for an OpPeek.
func (tr *trial) peek(r weir.Request) weir.Result {
	return tr.decided("Peek", r, tr.asking(&weir.Op{Verb: weir.OpPeek}))
}

// asking returns a call that has the strategy do op on a request, which then is as that has left
// it.
func (tr *trial) asking(
	op *weir.Op,
) func(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return func(ctx context.Context, r *weir.Request) (*weir.Result, error) {
		op.Counter, op.Request = weir.CounterOf(tr.Strategy), *r
		op.Counter.Do(ctx, []*weir.Op{op})
		*r = op.Request
		if op.Err != nil {
			return nil, op.Err
		}
		res := op.Result
		return &res, nil
	}
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

// do has the strategy do an op, which must succeed.
func (tr *trial) do(call string, r weir.Request, op *weir.Op) {
	e := event{at: tr.clock.Now(), call: call, r: r}
	_, e.err = tr.asking(op)(context.Background(), &r)
	tr.events = append(tr.events, e)
	tr.unchanged(call, e.r, r)
	if e.err != nil {
		tr.failf("%s failed: %v", call, e.err)
	}
}

func (tr *trial) refund(r weir.Request, taken weir.Result) {
	tr.do("Refund", r, &weir.Op{Verb: weir.OpReturn, Result: taken})
}

// keep does an OpTake that wants a Receipt.
func (tr *trial) keep(r weir.Request) (op *weir.Op, res weir.Result) {
	op = &weir.Op{Keep: true}
	return op, tr.decided("Run", r, tr.asking(op))
}

// kept is keep of a request that must be admitted.
func (tr *trial) kept(r weir.Request, why string) *weir.Op {
	op, res := tr.keep(r)
	switch {
	case !res.Allowed():
		tr.failf("the last request must be admitted: %s", why)
	case op.Receipt.Of == nil || op.Receipt.Cost != r.Cost:
		tr.failf("the last call has Keep: its Receipt must have an Of, and the Cost %d, not %d", r.Cost,
			op.Receipt.Cost)
	}
	return op
}

// giveBack gives the cost of r back by the Receipt of op, of which so much is left then.
func (tr *trial) giveBack(r weir.Request, op *weir.Op, left uint64) {
	op.Verb = weir.OpReturn
	tr.do("Return", r, op)
	if op.Receipt.Cost != left {
		tr.failf("the Cost of the Receipt must be %d after that, not %d", left, op.Receipt.Cost)
	}
}

func (tr *trial) seed(r weir.Request, counted weir.Result) {
	tr.do("Seed", r, &weir.Op{Verb: weir.OpCatchUp, Backlog: &weir.Backlog{Counted: &counted}})
}

// sweep calls Laws.Sweep.
func (tr *trial) sweep() {
	tr.events = append(tr.events, event{at: tr.clock.Now(), call: sweeping})
	tr.suite.Sweep()
}

// sweeping names a sweep in a history.
const sweeping = "Sweep"

func (tr *trial) reset(r weir.Request) {
	tr.do("Reset", r, &weir.Op{Verb: weir.OpReset})
}

func (tr *trial) charge(r weir.Request) {
	tr.do("Charge", r, &weir.Op{Verb: weir.OpCharge})
}

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

// never runs r, which must be denied for good.
func (tr *trial) never(r weir.Request, total uint64, why string) {
	switch res := tr.denies(r, why); {
	case !res.ExpiresAt.IsZero():
		tr.failf("the last request can never pass: its ExpiresAt must be the zero time")
	case res.TotalRequests != total:
		tr.failf("the last TotalRequests must be %d", total)
	}
}

// play runs the requests of h and returns their Results.
func (tr *trial) play(h history) []weir.Result {
	verdicts := make([]weir.Result, len(h))
	for i, s := range h {
		tr.clock.Advance(s.after)
		verdicts[i] = tr.run(s.r)
	}
	return verdicts
}

// The law of weir.OpHold.

// acquire does an OpHold, and returns it as the place of an admission.
func (tr *trial) acquire(r weir.Request) (place *weir.Op, res weir.Result) {
	place = &weir.Op{Verb: weir.OpHold}
	return place, tr.decided("Acquire", r, tr.asking(place))
}

// holds is acquire of a request that must be admitted.
func (tr *trial) holds(r weir.Request, why string) *weir.Op {
	place, res := tr.acquire(r)
	if !res.Allowed() {
		tr.failf("the last request must be admitted: %s", why)
	}
	return place
}

// full acquires r, which must be denied.
func (tr *trial) full(r weir.Request, why string) {
	if _, res := tr.acquire(r); res.Allowed() {
		tr.failf("the last request must be denied: %s", why)
	}
}

func (tr *trial) release(r weir.Request, place *weir.Op) {
	place.Verb = weir.OpRelease
	tr.do("Release", r, place)
}

// renew renews a place, and returns whether that is still held.
func (tr *trial) renew(r weir.Request, place *weir.Op) (held bool) {
	place.Verb = weir.OpRenew
	tr.do("Renew", r, place)
	return place.Result.Allowed()
}

// first runs r, the first valid request of its key.
func (tr *trial) first(r weir.Request, why string) {
	if tr.suite.Waits {
		tr.admits(r, why)
		return
	}
	tr.total(r, 1, why)
}

func (tr *trial) refuses(bad badRequest, call string,
	f func(context.Context, *weir.Request) (*weir.Result, error)) {
	r := bad.r
	res, err := f(context.Background(), &r)
	tr.record(event{at: tr.clock.Now(), call: call, r: bad.r, err: err}, res)
	switch {
	case !errors.Is(err, bad.want):
		tr.failf("the error must be %q: the key has %d bytes, the Duration is %v", bad.want,
			len(bad.r.Key),
			bad.r.Duration)
	case res != nil:
		tr.failf("with an error the Result must be nil")
	}
}

// optional returns ops of the verbs that the strategy can do beside OpTake, by the names of their
// laws.
func (tr *trial) optional() map[string]*weir.Op {
	some := weir.Result{State: weir.Allow, TotalRequests: 1,
		ExpiresAt: tr.clock.Now().Add(tr.suite.Durations[0])}
	all := map[string]*weir.Op{
		"Peek":   {Verb: weir.OpPeek},
		"Refund": {Verb: weir.OpReturn, Result: some},
		"Seed":   {Verb: weir.OpCatchUp, Backlog: &weir.Backlog{Counted: &some}},
		"Reset":  {Verb: weir.OpReset},
		"Charge": {Verb: weir.OpCharge},
	}
	maps.DeleteFunc(all, func(_ string, op *weir.Op) bool { return !can(tr.Strategy, op.Verb) })
	return all
}

// visit runs the arrivals in order and returns their outcomes when all calls have returned. A
// caller that arrives at the instant at which another leaves the queue comes after it.
func (tr *trial) visit(arrivals ...arrival) []outcome {
	outcomes := make([]outcome, len(arrivals))
	var wg sync.WaitGroup
	for i, a := range arrivals {
		time.Sleep(time.Until(tr.origin.Add(a.at))) // in a bubble
		synctest.Wait()
		wg.Go(func() { outcomes[i] = tr.call(a) })
		synctest.Wait()
	}
	wg.Wait()
	for i, a := range arrivals {
		tr.note(a, outcomes[i])
	}
	return outcomes
}

// call makes the call of an arrival. Its context ends long after its turn must have come.
func (tr *trial) call(a arrival) (o outcome) {
	ctx, cancel := context.WithTimeout(context.Background(),
		time.Duration(3*tr.suite.Queue+100)*a.r.Duration)
	defer cancel()
	if a.givesUp != 0 {
		timer := time.AfterFunc(a.givesUp-a.at, cancel)
		defer timer.Stop()
	}
	o.res, o.err = tr.Run(ctx, &a.r)
	o.done = time.Since(tr.origin)
	return o
}

// note adds a call to the history that a failure shows.
func (tr *trial) note(a arrival, o outcome) {
	tr.record(event{at: tr.origin.Add(a.at), call: "Run", r: a.r, err: o.err, took: o.done - a.at},
		o.res)
}

// waits runs r, which must wait that long or, where there is no queue, be denied with that instant.
func (tr *trial) waits(r weir.Request, want time.Duration, why string) {
	now := time.Since(tr.origin)
	o := tr.next(r)
	switch {
	case o.err != nil || o.res == nil:
		tr.failf("Run failed on a valid request: %v", o.err)
	case o.admitted() && o.done-now != want,
		!o.admitted() && o.res.ExpiresAt.Sub(tr.origin)-now != want:
		tr.failf("the last caller must be admitted %v later: %s", want, why)
	}
}

// next runs r now.
func (tr *trial) next(r weir.Request) outcome {
	a := arrival{at: time.Since(tr.origin), r: r}
	o := tr.call(a)
	tr.note(a, o)
	return o
}

// expect runs r and requires this Result.
func (tr *trial) expect(r weir.Request, want weir.Result, why string) {
	tr.equal(tr.run(r), want, why)
}

func (tr *trial) equal(got, want weir.Result, why string) {
	if got.State == want.State && got.TotalRequests == want.TotalRequests &&
		got.ExpiresAt.Equal(want.ExpiresAt) {
		return
	}
	until := "never"
	if !want.ExpiresAt.IsZero() {
		until = want.ExpiresAt.Sub(tr.origin).String()
	}
	tr.failf("the last call must give %v, total %d, expires %s: %s", want.State, want.TotalRequests,
		until, why)
}
