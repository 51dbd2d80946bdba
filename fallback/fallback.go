package fallback

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/stores/callers"
)

// Fallback is a primary strategy with a local one behind it. As a weir.Counter it takes, peeks,
// returns and resets, and charges and holds if primary does. Make one with [New]. It is safe for
// concurrent use and needs no closing: its goroutines are calls and probes of primary, which end
// with their timeouts.
type Fallback struct {
	primary, local weir.Counter // local is nil where it never decides
	about          *weir.About
	seeds          bool // local continues from the counts of primary
	aware          bool // local counts calls under way; see calls
	cfg            Config
	longest        time.Duration // of the tiers of primary and local
	windows        *windows      // of primary, or nil
	repeats        bool          // primary may repeat a denial
	blind          atomic.Bool   // a low count of primary proves nothing; see note
	id             string        // the Source of backlogs

	server *server // primary
	ledger ledger
	turns  singleflight.Group // see catchUpInTurn

	decided    [weir.FromOnFail + 1]atomic.Uint64 // by Source
	reconciled tally                              // see Stats
}

// New returns a Strategy that has primary decide, and local when primary cannot. It fails with
// [ErrConfig], also for two sides that cannot be meant; see Config.AllowUnlike.
//
// # What callers see
//
// Callers see no error of primary, and never wait for it longer than Config.Timeout, even if it
// ignores its context: local decides in the same call. A caller whose deadline is nearer than twice
// that waits for half of the time it has left; when primary answers later, its admission is not
// charged again, and is given back if local has denied. Callers see the errors of weir for a bad
// request, of their own context, and of local, if it has to decide and cannot. While the breaker is
// open primary costs nothing. The TotalRequests of a Result of local is the limit less the cost
// that this instance can still admit: the shares of others count as used, and in a denial the cost
// that calls of primary under way may still admit.
//
// # How counts carry over
//
// Local is seeded with each count of primary (if it can catch up), so every caller continues from
// the last count. Before primary decides for a caller again, it is charged with the cost that local
// admitted and, as it may have lost its counts, seeded with the last one. If primary reconciles
// (see weir.About) this takes no round trip of its own and a debt is charged exactly once, however
// many answers are lost; otherwise it is charged at least once. Both hold for periods that still
// run and callers that return to the same instance. A request whose answer was lost may be counted
// by both.
//
// # What a failure can count too much
//
// After a failure primary may have lost its counts, and each instance that noticed sends the last
// count it knows. Other instances may have taken back some of it since, by a return or a reset. A
// primary that remembers when something was taken back, as redislimit does beside each count, is
// seeded only with counts of after it: as long as it keeps its data, by fsync or by a
// replica, no failure changes a count, and
//
//	counted <= used + the cost of the calls whose answers were lost
//
// and, until later debts make up for it, cost given back of the debts that such a call took along.
// An admission for a caller that has left, and that local denied or did not decide on, is given
// back to a primary that can do that; it counts as lost if that fails. A primary that loses its
// data at once with all that it remembers is seeded with the largest last count of all instances.
// That is too much by at most the cost that other instances took back after this one's last call
// for that caller: up to the limit, 100 of 100, until the period ends, in the worst case, and
// nothing if each caller stays on one instance. A primary that does not reconcile remembers
// nothing: the same holds for it after every failure. The cost that an instance admitted in an
// outage is charged to primary even if another instance has reset the caller since.
//
// # How much an outage can over-admit
//
// With limit L and N instances, the limit of local is ceil(L/N), and it is seeded with ceil(c/N)
// when primary counts c. So it admits at most its share of the rest, ceil((L-c)/N), and in a period
// at most ceil(L/N), however often primary fails and returns. If all instances know the same c when
// primary fails, and all charge it when it returns,
//
//	admitted <= L + N - 1
//
// in one fixed window. In the worst case, when an instance has not seen the last admissions of
// others, or does not return and so does not charge,
//
//	admitted <= L + (N-1)*ceil(L/N)
//
// and for N = 1 the limit itself: of 100 and three instances 102, and in the worst case 168. That
// includes the calls of primary that are under way while others fail: to local they count as used,
// until they turn out to admit nothing. Two kinds of requests may add themselves: of callers that
// wait for less than Timeout, whose calls are not counted, and of callers for whom the ledger has
// no place. No instance ever adds more than ceil(L/N) to the admissions of primary. A primary that
// loses its counts, as a Redis without persistence does when it restarts, adds c-s each time: c is
// its count before, s the count that the first instance to call it afterwards seeds, or 0 if that
// instance saw no failure; a failover to a replica adds the counts that the replica lacked,
// likewise. Leases around primary, of package near, add the rest of a block for each instance and
// window. For strategies other than fixed windows the same holds for the period that they count, in
// place of a window; counts of a SlidingWindow or SlidingLog come without their instants, so that
// each instance may add its share once more. So it may in an outage after primary's clock was set,
// or before its first answer: windows are primary's, as its answers show them.
//
// # Work in flight
//
// Where both are an InFlight, the Fallback holds too, see weir.Hold. Held cost goes on in
// an outage, and an instance admits more while it holds less than its share, ceil(L/N), its own
// places of before included. So in an outage
//
//	in flight <= L + (N-1)*ceil(L/N)
//
// and L + N - 1, if no instance held more than its share when primary failed. When primary answers
// again it knows of each place with its next renewal, after a third of its lease at most; of those
// for which it has no room any more, weir.Held.Lost reports it. Until then it admits as many as it
// knows to be free: after an outage that is shorter than a lease
//
//	in flight <= L + N*ceil(L/N)
//
// and after a longer one, or if primary was emptied, 2*L + (N-1)*ceil(L/N): of 10 and three
// instances 18, 22 and 28. No instance ever has more than L.
//
// # What primary and local must be
//
// Two strategies of one algorithm, whose Results have instants of one clock. Local gets the request
// with its share of the Limit. A local with limits of its own (see Config.OwnLimits; also the burst
// of a token bucket) must be made with its share of them. Local must be able to give back to count
// the calls of primary under way. It decides for one caller at a time, and calls of primary for
// that caller begin when it has decided: it must not wait, as a weir.LeakyBucket does. A primary
// that ignores its context costs a goroutine for each call that hangs, until the breaker opens, and
// then for each probe, which become rarer.
func New(primary, local weir.Strategy, cfg Config) (*Fallback, error) {
	if part := cfg.Partition; part != nil {
		if counted := weir.CounterOf(primary).About().Key; counted != nil {
			cfg.Partition = func(key string) string { return part(counted(key)) }
		}
	}
	cfg, err := cfg.withDefaults()
	switch {
	case err != nil:
		return nil, err
	case primary == nil:
		return nil, fmt.Errorf("%w: no primary", ErrConfig)
	case cfg.OnFail != FailLocal:
		local = nil // never asked
	case local == nil:
		return nil, fmt.Errorf("%w: no local", ErrConfig)
	}
	f := &Fallback{primary: weir.CounterOf(primary), cfg: cfg, id: rand.Text()}
	of := f.primary.About()
	f.cfg.OwnLimits = cfg.OwnLimits || of.Bound
	f.repeats, f.longest = of.Verbs.Has(weir.OpLookup), of.Longest
	if local != nil {
		f.local = weir.CounterOf(local)
		here := f.local.About()
		unlike := checkSides(of, here, uint64(max(1, cfg.Instances)))
		switch {
		case unlike == nil:
			f.windows = windowsOf(of, here, f.cfg)
		case !cfg.AllowUnlike:
			return nil, unlike
		}
		f.seeds, f.aware = here.Verbs.Has(weir.OpCatchUp), here.Verbs.Has(weir.OpReturn)
		f.longest = max(f.longest, here.Longest)
	}
	f.ledger.Table = callers.New(cfg.MaxCallers, (*account).idle, nil)
	f.server = &server{cfg: f.cfg, prompt: of.Prompt, name: "weir/fallback probe " + f.id,
		try: f.probe}
	f.server.open()
	f.blind.Store(f.cfg.OwnLimits)
	if of.ShareWith != nil {
		of.ShareWith(f.Instances)
		f.blind.Store(true) // leases count, and do not say how much is left
	}
	f.describe()
	return f, nil
}

// batched is the Store of Fallbacks on primaries of one Store, that wait for them alike.
type batched struct {
	primaries any
	timeout   time.Duration
}

// describe sets the About of f.
func (f *Fallback) describe() {
	of := f.primary.About()
	f.about = of.By(f)
	f.about.Limiter, f.about.Instances = nil, f.Instances
	f.about.Prompt, f.about.Reconciles = false, false
	f.about.Verbs = weir.VerbsOf(weir.OpTake, weir.OpReset, weir.OpResetPrefix) |
		of.Verbs&weir.VerbsOf(weir.OpPeek, weir.OpReturn, weir.OpCharge, weir.OpHold, weir.OpRenew,
			weir.OpRelease)
	f.about.Counts = f
	if of.Store != nil {
		f.about.Store = batched{of.Store, f.cfg.Timeout}
	}
}

// About implements weir.Counter.
func (f *Fallback) About() *weir.About { return f.about }

// Limit returns the limit of n in d by f, and panics where [weir.NewLimit] fails.
func (f *Fallback) Limit(n uint64, d time.Duration) *weir.Limit { return weir.MustLimit(f, n, d) }

// Instances returns N, the number of instances, at least 1.
func (f *Fallback) Instances() int { return bounds.Instances(f.cfg.Instances, f.cfg.InstancesFunc) }

// Run decides on r, and waits for primary at most Config.Timeout, and otherwise only for local.
func (f *Fallback) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, f, r)
}

// Do implements weir.Counter. The primaries of several ops are called together, if they have one
// Store.
func (f *Fallback) Do(ctx context.Context, ops []*weir.Op) {
	if len(ops) == 1 || f.about.Store != nil && !slices.ContainsFunc(ops, isAlone) {
		f.decide(ctx, ops)
		return
	}
	for i := range ops {
		f.decide(ctx, ops[i:i+1])
	}
}

// joinable are the verbs whose calls of primary may be one.
var joinable = weir.VerbsOf(weir.OpTake, weir.OpPeek, weir.OpReturn, weir.OpCharge)

func isAlone(op *weir.Op) bool { return !joinable.Has(op.Verb) }

// decide does ops of Fallbacks on primaries of one Store, with one Timeout, or one op. An op whose
// Counter is no Fallback is one of f. Each is decided as by itself, but the calls of the primaries
// are one.
func (f *Fallback) decide(ctx context.Context, ops []*weir.Op) {
	var called []*visit
	defer func() {
		for _, v := range called {
			v.close()
		}
	}()
	for _, op := range ops {
		of, ok := op.Counter.(*Fallback)
		if !ok {
			of = f
		}
		v := of.begin(ctx, op)
		if v == nil {
			continue
		}
		if called == nil {
			called = v.visits[:0]
		}
		called = append(called, v)
	}
	if len(called) > 0 {
		called[0].f.server.Call(ctx, called, do)
	}
	for _, v := range called {
		v.task.finish(ctx, v.end)
	}
}

// one does an op that is alone.
func (f *Fallback) one(ctx context.Context, op *weir.Op) {
	switch op.Verb {
	case weir.OpReset:
		op.Err = f.reset(ctx, &op.Request)
	case weir.OpResetPrefix:
		op.Err = f.resetPrefix(ctx, op)
	case weir.OpHold:
		op.Err = hold(ctx, f, op)
		f.decided[op.Source].Add(1)
	case weir.OpRenew:
		op.Err = renew(ctx, f, op)
	case weir.OpRelease:
		op.Err = nil
		if p, ok := op.Receipt.Of.(*place); ok {
			op.Err = p.release(ctx)
		}
	case weir.OpTakeAll, weir.OpCatchUp, weir.OpHits, weir.OpLookup, weir.OpForget, weir.OpForecast,
		weir.OpWarm: // local may know otherwise
		op.Err = op.Unsupported(f.about)
	default: // of a later store
		op.Err = f.validate(ctx, &op.Request)
		if op.Err == nil {
			op.Err = by(ctx, f.primary, op)
		}
	}
}

// begin begins an op, and returns the visit that is to call primary, or nil if the op is done.
func (f *Fallback) begin(ctx context.Context, op *weir.Op) (v *visit) {
	// A call of primary that fails takes this path: begin, do and failed (visit.go), ended
	// (server.go), depart, finish and runLocal (taking.go).
	if isAlone(op) {
		f.one(ctx, op)
		return nil
	}
	op.Err = f.validate(ctx, &op.Request)
	switch {
	case op.Err != nil:
	case op.Verb == weir.OpTake && op.Backlog == nil, op.Verb == weir.OpPeek:
		v = take(ctx, f, op)
	case op.Verb == weir.OpReturn:
		v = giveBack(ctx, f, op)
	case op.Verb == weir.OpCharge:
		v = newCharge(f, op)
	default:
		op.Err = op.Unsupported(f.about)
	}
	if v == nil || v.permits() {
		return v
	}
	defer v.close()
	v.task.finish(ctx, errUndecided)
	return nil
}

// setLeft sets Left of a denial.
func (f *Fallback) setLeft(op *weir.Op) {
	if !op.Result.Allowed() && !op.Result.ExpiresAt.IsZero() {
		op.Left = max(0, op.Result.ExpiresAt.Sub(f.cfg.Now()))
	}
}

// lookup has primary do an OpLookup in place of an op, and reports whether that decides.
func (f *Fallback) lookup(ctx context.Context, op *weir.Op) bool {
	number := uint64(0)
	if op.Keep {
		v := new(visit).open(f, &op.Request, time.Time{})
		defer v.close()
		number = v.a.number
	}
	op.Verb = weir.OpLookup
	err := by(ctx, f.primary, op)
	op.Verb = weir.OpTake
	if err == nil && op.Keep {
		op.Receipt.Of = &kept{number: number, source: op.Source, result: op.Result, primary: op.Receipt}
	}
	return err == nil
}

// probe has primary decide on a request of a probe, after a warm-up. Its key is new, so that
// primary must write to admit it: a server that can only be read is not healthy.
func (f *Fallback) probe(ctx context.Context, key string) (called time.Time, err error) {
	r := &weir.Request{Key: key, Limit: 1 << 40, Duration: time.Second}
	called = time.Now()
	err = supported(by(ctx, f.primary, &weir.Op{Verb: weir.OpWarm, Request: *r}))
	if err == nil {
		called = time.Now()
		_, err = f.primary.Run(ctx, r)
	}
	return called, err
}

// validate fails for requests out of the bounds of weir.Request, which need no call and no account.
func (f *Fallback) validate(ctx context.Context, r *weir.Request) error {
	if ctx.Err() != nil {
		return fmt.Errorf("fallback: %w", ctx.Err())
	}
	err := f.about.Check(r)
	if f.cfg.OwnLimits && errors.Is(err, weir.ErrScale) {
		return nil
	}
	return err
}

// exceeds reports whether the Cost of r exceeds its Limit, so that r can never pass.
func (f *Fallback) exceeds(r *weir.Request) bool {
	return costOf(r) > r.Limit && !f.cfg.OwnLimits
}

// reset does an OpReset: here, in primary and in local, each as far as possible. While primary does
// not answer, the reset is recorded for a day, or for two Durations if that is longer, and primary
// resets before it next decides for that key; without room in the ledger the error is weir.ErrFull.
// Requests and charges under way count as from before the reset; one that primary receives after it
// counts there.
func (f *Fallback) reset(ctx context.Context, r *weir.Request) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	if f.primary.About().Verbs.Has(weir.OpForget) {
		_ = by(ctx, f.primary, &weir.Op{Verb: weir.OpForget, Request: *r})
	}
	lasts := max(2*r.Duration, 2*f.longest, 2*f.about.Window, 24*time.Hour)
	v := new(visit).open(f, r, f.cfg.Now().Add(lasts))
	defer v.close()
	err := v.call(ctx, v.catchUp)
	v.a.endTakeBack(err == nil, v.began.Add(v.r.Duration))
	switch err := supported(err); {
	case err == errUndecided && v.a.temporary:
		return fmt.Errorf("fallback: no answer from primary, and no room to record the reset: %w",
			weir.ErrFull)
	case err != nil && err != errUndecided:
		return err
	}
	if f.local == nil {
		return nil
	}
	return supported(by(ctx, f.local, &weir.Op{Verb: weir.OpReset, Request: *r}))
}

// resetPrefix is one of primary and, if that can, of local, and a reset of each caller that is
// known here, which may be owed something. The count is primary's. While primary does not answer
// the error is primary's, and the rest is as if by reset: repeat the call then, for the callers
// that are known elsewhere. The call is not bounded by Config.Timeout.
func (f *Fallback) resetPrefix(ctx context.Context, op *weir.Op) error {
	errs := []error{by(ctx, f.primary, op)}
	if f.local != nil {
		here := &weir.Op{Verb: weir.OpResetPrefix, Request: op.Request}
		errs = append(errs, supported(by(ctx, f.local, here)))
	}
	for r := range f.ledger.Prefix(op.Key) {
		errs = append(errs, f.reset(ctx, r))
	}
	return errors.Join(errs...)
}

// Stats returns the counts so far, and locks each part of the ledger once.
func (f *Fallback) Stats() Stats {
	decided := &f.decided
	s := Stats{
		Primary: decided[weir.FromPrimary].Load(), Lease: decided[weir.FromLease].Load(),
		Denials: decided[weir.FromDenials].Load(), Local: decided[weir.FromLocal].Load(),
		OnFail:     decided[weir.FromOnFail].Load(),
		Reconciled: f.reconciled.Load(), Dropped: f.ledger.dropped.Load(), Callers: f.ledger.Len(),
	}
	f.server.stats(&s)
	return s
}
