package weirtest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirgo/weir"
)

// Fake is a Strategy with scripted answers that records its calls. The zero value admits
// everything. It is safe for concurrent use; set its fields before the first call.
//
// It counts nothing and checks nothing. To test with a limiter that counts, use a real one on a
// [Clock].
type Fake struct {
	// Answer decides each Run and Peek; nil means [Allow]. It is called in the goroutine of the
	// caller.
	Answer Answer

	// Err is the error of Refund, Reset, Seed and Charge; nil means that they succeed.
	Err error

	// Now is the clock of the answers; nil means time.Now, which in a testing/synctest bubble is
	// virtual.
	Now func() time.Time

	script []Answer // set by Sequence, then read-only; replaces Answer

	mu       sync.Mutex
	runs     int           // guarded by mu; answered by the script
	calls    []Call        // guarded by mu
	expected []expectation // guarded by mu; in the order of Expect
}

// Answer decides one request: it returns a Result, or the error of a strategy that cannot decide.
// It must not change r.
type Answer func(ctx context.Context, r *weir.Request, now time.Time) (weir.Result, error)

// Call is one call of a [Fake].
type Call struct {
	Method  string       // "Run", "Peek", "Refund", "Reset", "Seed" or "Charge"
	Request weir.Request // a copy
	Result  weir.Result  // returned by Run or Peek, or passed to Refund or Seed; zero for the others
	Err     error        // returned
	At      time.Time    // by the Fake's clock
}

// Allow is the Answer that admits: TotalRequests is the request's own cost, and the period ends one
// Duration from now.
func Allow(_ context.Context, r *weir.Request, now time.Time) (weir.Result, error) {
	return weir.Result{State: weir.Allow, TotalRequests: max(r.Cost, 1),
		ExpiresAt: now.Add(r.Duration)}, nil
}

// Deny is the Answer that denies: the limit is used up, and the request would pass one Duration
// from now.
func Deny(_ context.Context, r *weir.Request, now time.Time) (weir.Result, error) {
	return weir.Result{State: weir.Deny, TotalRequests: r.Limit, ExpiresAt: now.Add(r.Duration)}, nil
}

// Fail returns the Answer of a strategy that cannot decide, because of err.
func Fail(err error) Answer {
	return func(context.Context, *weir.Request, time.Time) (weir.Result, error) {
		return weir.Result{}, err
	}
}

// Hang is the Answer of a store that does not respond: it waits until ctx is done, and returns its
// error.
func Hang(ctx context.Context, _ *weir.Request, _ time.Time) (weir.Result, error) {
	<-ctx.Done()
	return weir.Result{}, ctx.Err()
}

// DenyAll returns a Fake that denies everything.
func DenyAll() *Fake { return &Fake{Answer: Deny} }

// DenyKeys returns a Fake that denies these keys and admits all others: as they are, or behind a
// [weir.Limit] or a middleware as [DenyCallers] finds them.
func DenyKeys(keys ...string) *Fake {
	keys = slices.Clone(keys)
	return &Fake{Answer: func(ctx context.Context, r *weir.Request, now time.Time) (weir.Result,
		error) {
		if slices.Contains(keys, r.Key) || slices.Contains(keys, lastPart(r.Key)) {
			return Deny(ctx, r, now)
		}
		return Allow(ctx, r, now)
	}}
}

// DenyCallers returns a Fake that denies these callers and admits all others, behind a middleware
// or a [weir.Limit]: the caller is the last part of a joined key, such as "192.0.2.1" in
// "0:4:5/1m9:192.0.2.1". It compares no whole keys, as [DenyKeys] does.
func DenyCallers(callers ...string) *Fake {
	callers = slices.Clone(callers)
	return &Fake{Answer: func(ctx context.Context, r *weir.Request, now time.Time) (weir.Result,
		error) {
		if slices.Contains(callers, lastPart(r.Key)) {
			return Deny(ctx, r, now)
		}
		return Allow(ctx, r, now)
	}}
}

// lastPart returns the last part of a key made by weir.JoinKey, or key itself if it is no such key.
func lastPart(key string) string {
	last := key
	for rest := key; rest != ""; {
		length, after, ok := strings.Cut(rest, ":")
		n, err := strconv.Atoi(length)
		if !ok || err != nil || n < 0 || n > len(after) {
			return key
		}
		last, rest = after[:n], after[n:]
	}
	return last
}

// FailAll returns a Fake on which every call fails with err.
func FailAll(err error) *Fake { return &Fake{Answer: Fail(err), Err: err} }

// Sequence returns a Fake that gives these answers, one to each Run, and then the last one to all
// that follow. Peek returns the next one and does not use it up. Without answers it admits
// everything.
func Sequence(answers ...Answer) *Fake { return &Fake{script: slices.Clone(answers)} }

// Limit returns the limit of n in d by f, for code that takes a [weir.Limit]. It panics if weir
// rejects d. The keys of Calls begin with the numbers of the limit.
func (f *Fake) Limit(n uint64, d time.Duration) *weir.Limit { return weir.MustLimit(f, n, d) }

// About implements [weir.Counter].
func (f *Fake) About() *weir.About {
	return &weir.About{Of: f, Counts: f, Verbs: weir.VerbsOf(weir.OpTake, weir.OpPeek,
		weir.OpReturn, weir.OpReset, weir.OpCatchUp, weir.OpCharge)}
}

// Run returns the next answer and records the call.
func (f *Fake) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, f, r)
}

// methods are the names of the verbs in a Call.
var methods = map[weir.Verb]string{weir.OpTake: "Run", weir.OpPeek: "Peek", weir.OpReturn: "Refund",
	weir.OpReset: "Reset", weir.OpCatchUp: "Seed", weir.OpCharge: "Charge"}

// Do implements [weir.Counter]: it answers an OpTake and an OpPeek, which does not use the answer
// up, and records them. It records the other verbs, too, whose error is Err.
func (f *Fake) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		method, ok := methods[op.Verb]
		switch {
		case !ok:
			op.Err = op.Unsupported(f.About())
		case op.Verb == weir.OpTake, op.Verb == weir.OpPeek:
			f.answer(ctx, method, op)
		case op.Verb == weir.OpReturn:
			op.Err = f.note(method, &op.Request, &op.Result)
		case op.Verb == weir.OpCatchUp:
			op.Err = f.note(method, &op.Request, op.Backlog.Counted)
		default:
			op.Err = f.note(method, &op.Request, nil)
		}
	}
}

// Calls returns the calls so far, in the order in which they were answered.
func (f *Fake) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *Fake) answer(ctx context.Context, method string, op *weir.Op) {
	request, now := op.Request, f.now()
	// Not under mu: an Answer may wait, as Hang does, or read Calls.
	res, err := f.next(method)(ctx, &op.Request, now)
	op.Err = err
	if err != nil {
		f.record(Call{Method: method, Request: request, Err: err, At: now})
		return
	}
	op.Result, op.Receipt = res, weir.Receipt{}
	f.record(Call{Method: method, Request: request, Result: res, At: now})
}

// next returns the next Answer; Run uses it up.
func (f *Fake) next(method string) Answer {
	if len(f.script) == 0 {
		if f.Answer == nil {
			return Allow
		}
		return f.Answer
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	due := f.script[min(f.runs, len(f.script)-1)]
	if method == "Run" {
		f.runs++
	}
	return due
}

func (f *Fake) note(method string, r *weir.Request, given *weir.Result) error {
	c := Call{Method: method, Request: *r, Err: f.Err, At: f.now()}
	if given != nil {
		c.Result = *given
	}
	f.record(c)
	return f.Err
}

func (f *Fake) record(c Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, c)
}

func (f *Fake) now() time.Time {
	if f.Now == nil {
		return time.Now()
	}
	return f.Now()
}

// Expect requires a call of this method ("Run", "Refund", …) with a request like want, whose zero
// fields match anything: weir.Request{} is any request. Two equal expectations require two calls.
// The order does not matter, and calls made before Expect count too. It returns f.
func (f *Fake) Expect(method string, want weir.Request) *Fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expected = append(f.expected, expectation{method, want})
	return f
}

// Unmet returns which expected calls were not made, and which were, in words. It is empty if all
// were made.
func (f *Fake) Unmet() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	wanted := make(map[expectation]int)
	for _, x := range f.expected {
		wanted[x]++
	}
	var missing []string
	for _, x := range f.expected {
		if seen := f.seen(x); seen < wanted[x] {
			missing = append(missing,
				fmt.Sprintf("expected %s, seen %s", x.sentence(wanted[x]), times(seen)))
		}
		delete(wanted, x) // reported once
	}
	if len(missing) == 0 {
		return ""
	}
	return strings.Join(missing, "\n") + "\n" + f.history()
}

// Verify reports [Fake.Unmet] as an error of t, unless it is empty.
func (f *Fake) Verify(t testing.TB) {
	t.Helper()
	if unmet := f.Unmet(); unmet != "" {
		t.Error("weirtest.Fake: " + unmet)
	}
}

// seen returns how many calls x matches. mu is held.
func (f *Fake) seen(x expectation) (n int) {
	for _, c := range f.calls {
		if x.matches(c) {
			n++
		}
	}
	return n
}

// history lists the calls. mu is held.
func (f *Fake) history() string {
	if len(f.calls) == 0 {
		return "there were no calls"
	}
	var b strings.Builder
	b.WriteString("the calls were:")
	for _, c := range f.calls {
		fmt.Fprintf(&b, "\n\t%s of %q%s: ", c.Method, c.Request.Key, details(c.Request))
		switch {
		case c.Err != nil:
			b.WriteString(c.Err.Error())
		case c.Method == "Run" || c.Method == "Peek":
			b.WriteString(c.Result.State.String())
		default:
			b.WriteString("done")
		}
	}
	return b.String()
}
