package weirtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/weirgo/weir"
)

// trial is one history being played on a strategy of its own.
type trial struct {
	weir.Strategy
	suite  *suite
	clock  *Clock
	origin time.Time // the instant that the history's times are told from
	events []event
	beside []event // how the same history went on another strategy, if that is what this one is compared with
}

// event is one call that a trial has made and what came of it.
type event struct {
	at   time.Time
	call string // "Run", "Peek", …
	r    weir.Request
	res  weir.Result // zero for the calls that return none
	err  error
	took time.Duration // how long the call waited
}

// breach is a broken law: how it was broken, and the history that shows it.
type breach struct {
	how    string
	origin time.Time
	events []event
	beside []event // if not nil, the history that it is compared with
}

// scope is a testing.TB whose cleanups run when a trial is over, not when the test is.
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

// try plays f on a new strategy.
func (s *suite) try(f func(*trial)) {
	scope := &scope{TB: s.t}
	defer scope.end()
	clock := s.newClock()
	f(&trial{Strategy: s.make(scope, clock), suite: s, clock: clock, origin: clock.Now()})
}

// catch returns the breach that f ended with, or nil. Laws break off by panicking with it: each reads as a list of
// things that happen.
func catch(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *breach:
			err = p
		default:
			panic(p)
		}
	}()
	f()
	return nil
}

// broken ends the law: it is broken, and how.
func (tr *trial) broken(format string, args ...any) {
	panic(&breach{how: fmt.Sprintf(format, args...), origin: tr.origin, events: tr.events, beside: tr.beside})
}

// ask runs r, which the strategy must be able to decide, and returns its verdict.
func (tr *trial) ask(r weir.Request) weir.Result {
	return tr.decided("Run", r, tr.Run)
}

// peek is ask for Peek.
func (tr *trial) peek(r weir.Request) weir.Result {
	return tr.decided("Peek", r, tr.Strategy.(weir.Peeker).Peek)
}

func (tr *trial) decided(call string, r weir.Request, f func(context.Context, *weir.Request) (*weir.Result, error)) weir.Result {
	e := event{at: tr.clock.Now(), call: call, r: r}
	res, err := f(context.Background(), &r)
	e.err, e.took = err, tr.clock.Now().Sub(e.at)
	tr.record(e, res)
	switch {
	case err != nil:
		tr.broken("%s could not decide a good request: %v", call, err)
	case res == nil:
		tr.broken("%s returned neither a Result nor an error", call)
	case res.State != weir.Allow && res.State != weir.Deny:
		tr.broken("%s returned State %d", call, res.State)
	}
	return *res
}

// record adds e, with what was answered, to the history that a breach shows.
func (tr *trial) record(e event, res *weir.Result) {
	if res != nil {
		e.res = *res
	}
	tr.events = append(tr.events, e)
}

// do makes a call of an optional interface, which must succeed.
func (tr *trial) do(call string, r weir.Request, f func(context.Context, *weir.Request) error) {
	e := event{at: tr.clock.Now(), call: call, r: r}
	e.err = f(context.Background(), &r)
	tr.events = append(tr.events, e)
	if e.err != nil {
		tr.broken("%s failed: %v", call, e.err)
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

// sweep calls the declared Sweep.
func (tr *trial) sweep() {
	tr.events = append(tr.events, event{at: tr.clock.Now(), call: sweeping})
	tr.suite.Sweep()
}

// sweeping is what a history calls a sweep.
const sweeping = "Sweep"

func (tr *trial) reset(r weir.Request)  { tr.do("Reset", r, tr.Strategy.(weir.Resetter).Reset) }
func (tr *trial) charge(r weir.Request) { tr.do("Charge", r, tr.Strategy.(weir.Charger).Charge) }

// admits asks and breaks the law if r is denied.
func (tr *trial) admits(r weir.Request, why string) weir.Result {
	res := tr.ask(r)
	if !res.Allowed() {
		tr.broken("the last request must be admitted: %s", why)
	}
	return res
}

// denies asks and breaks the law if r is admitted.
func (tr *trial) denies(r weir.Request, why string) weir.Result {
	res := tr.ask(r)
	if res.Allowed() {
		tr.broken("the last request must be denied: %s", why)
	}
	return res
}

// total asks for r, which must be admitted, and for it to be told this total.
func (tr *trial) total(r weir.Request, want uint64, why string) {
	if res := tr.admits(r, why); res.TotalRequests != want {
		tr.broken("the last TotalRequests must be %d: %s", want, why)
	}
}

// Error tells how the law was broken and shows the history as a table.
func (b *breach) Error() string {
	if len(b.events) == 0 {
		return b.how
	}
	var s strings.Builder
	s.WriteString(b.how + "\n")
	if b.beside != nil {
		b.table(&s, b.beside)
		s.WriteString("and then, on a new strategy:\n")
	}
	b.table(&s, b.events)
	lines := strings.Split(s.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

func (b *breach) table(s *strings.Builder, events []event) {
	w := tabwriter.NewWriter(s, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "at\tcall\tkey\tlimit\tcost\tverdict\ttotal\texpires")
	for i, e := range events {
		if n := len(events); n > longest && i >= longest/2 && i < n-longest/2 {
			if i == longest/2 {
				fmt.Fprintf(w, "…\t%d more\n", n-longest)
			}
			continue
		}
		e.row(w, b.origin)
	}
	w.Flush()
}

// longest is the number of events beyond which a table leaves out its middle.
const longest = 30

func (e event) row(w *tabwriter.Writer, origin time.Time) {
	if e.call == sweeping {
		fmt.Fprintf(w, "%v\t%s\t\t\t\t\t\t\n", e.at.Sub(origin), e.call)
		return
	}
	key := e.r.Key
	if len(key) > 12 {
		key = key[:12] + "…"
	}
	fmt.Fprintf(w, "%v\t%s\t%q\t%d in %v\t%d\t", e.at.Sub(origin), e.call, key, e.r.Limit, e.r.Duration, max(e.r.Cost, 1))
	waited := ""
	if e.took != 0 {
		waited = fmt.Sprintf(" after %v", e.took)
	}
	switch {
	case e.err != nil:
		fmt.Fprintf(w, "error%s: %v\t\t\n", waited, e.err)
	case e.call != "Run" && e.call != "Decide" && e.call != "Peek":
		fmt.Fprint(w, "done\t\t\n")
	case e.res.ExpiresAt.IsZero():
		fmt.Fprintf(w, "%v%s\t%d\tnever\n", e.res.State, waited, e.res.TotalRequests)
	default:
		fmt.Fprintf(w, "%v%s\t%d\t%v\n", e.res.State, waited, e.res.TotalRequests, e.res.ExpiresAt.Sub(origin))
	}
}
