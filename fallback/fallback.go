package fallback

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/core/wrap"
	"github.com/weirgo/weir/internal/stores/callers"
	"github.com/weirgo/weir/limits"
)

// Source is where a decision was made.
type Source int

// The sources of decisions.
const (
	Nobody      Source = iota // nowhere: Run failed
	FromPrimary               // primary, in a round trip
	FromLease                 // near.Leases inside of primary, without a round trip
	FromDenials               // near.Denials inside of primary, without a round trip
	FromLocal                 // local
	FromOnFail                // Config.OnFail
)

// String returns the name of the source, in lower case.
func (s Source) String() string {
	return [...]string{"nobody", "primary", "lease", "denials", "local", "on_fail"}[s]
}

// Fallback is a primary strategy with a local one behind it. It is a weir.Strategy, Admitter,
// Holder, Peeker, Refunder, Resetter and Charger. Make one with [New]. It is safe for concurrent
// use and needs no closing: its goroutines are calls and probes of primary, which end with their
// timeouts.
type Fallback struct {
	*common

	// How primary and local are called, which differs in a Batch and for an Admit.
	doPrimary, doLocal method
	leave              func() // called before primary is called in another way
}

// method calls a method of primary or local, as wrap.Do does.
type method func(ctx context.Context, op limits.Op, r *weir.Request,
	taken *weir.Result) (*weir.Result, error)

// common is what the copies of a Fallback have in common.
type common struct {
	primary, local wrap.Strategy
	seeder         weir.Seeder // local, or nil if it is none
	aware          bool        // local counts calls under way; see calls
	inFlight       bool        // local bounds work in flight
	cfg            Config
	longest        time.Duration // of the tiers of primary and local
	window         time.Duration // of a primary that is a Calendar, or else 0
	lapser         lapser        // primary, or what it wraps, or nil
	windows        *windows      // of primary, or nil
	repeats        bool          // primary may repeat a denial
	blind          atomic.Bool   // a low count of primary proves nothing; see learn
	id             string        // the Source of backlogs
	store          any           // equal for Fallbacks whose calls can be batched

	server *server // primary
	ledger ledger
	turns  singleflight.Group // see reconcile

	decided    [FromOnFail + 1]atomic.Uint64 // by Source
	reconciled tally                         // see Stats
}

// lapser says until when what it has admitted counts; see near.Lapser.
type lapser interface {
	Lapse(r *weir.Request, expires time.Time) (until time.Time, each time.Duration, ok bool)
}

// New returns a Strategy that has primary decide, and local when primary cannot. It fails with
// [ErrConfig], also for two sides that cannot be meant; see Config.AllowUnlike.
//
// # What callers see
//
// Callers see no error of primary, and never wait for it longer than Config.Timeout, even if it
// ignores its context: local decides in the same call. A caller whose deadline is nearer than twice
// that waits for half of what it has left; when primary answers later, its admission is not charged
// again, and is given back if local has denied. Callers see the errors of weir for a bad request,
// of their own context, and of local, if it has to decide and cannot. While the breaker is open
// primary costs nothing. The TotalRequests of a Result of local is the limit less the cost that
// this instance can still admit: the shares of others count as used, and in a denial what calls of
// primary under way may still admit.
//
// # How counts carry over
//
// Local is seeded with each count of primary (if it is a weir.Seeder), so every caller continues
// from the last count. Before primary decides for a caller again, it is charged with the cost that
// local admitted and, as it may have lost its counts, seeded with the last one. If primary is a
// weir.Reconciler this takes no round trip of its own and a debt is charged exactly once, however
// many answers are lost; with weir.Seeder and weir.Charger it is charged at least once. Both hold
// for periods that still run and callers that return to the same instance. A request whose answer
// was lost may be counted by both.
//
// # What a failure can count too much
//
// After a failure primary may have lost its counts, and each instance that noticed sends the last
// count it knows. Other instances may have taken back some of it since, by Refund, Reset or a
// Return. A primary that remembers when something was taken back, as redislimit does beside each
// count, is seeded only with counts of after it: as long as it keeps its data, by fsync or by a
// replica, no failure changes a count, and
//
//	counted <= used + the cost of the calls whose answers were lost
//
// and, until later debts make up for it, what is given back of the debts that such a call took
// along. An admission for a caller that has left, and that local denied or did not decide on, is
// given back to a primary that is a Refunder; it counts as lost if that fails. A primary that loses
// its data at once with what it remembers is seeded with the largest last count of all instances.
// That exceeds what is used by at most what other instances took back after this one's last call
// for that caller: up to the limit, 100 of 100, until the period ends, in the worst case, and
// nothing if each caller stays on one instance. A primary that is a Seeder and no Reconciler
// remembers nothing: the same holds for it after every failure. What an instance admitted in an
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
// until they turn out to admit nothing. Two kinds of requests may add themselves: those of callers
// that wait for less than Timeout, whose calls are not counted, and those of callers for whom the
// ledger has no place. No instance ever adds more than ceil(L/N) to what primary admits. A
// primary that loses its counts, as a Redis without persistence does when it restarts, adds c-s
// each time: c is what it had counted, s what the first instance to call it afterwards seeds, or 0
// if that instance saw no failure; a failover to a replica adds what the replica lacked, likewise.
// Leases around primary, of package near, add what is left of a block for each instance and window.
// For strategies other than fixed windows the same holds for the period that they count, in place
// of a window; counts of a SlidingWindow or SlidingLog come without their instants, so that each
// instance may add its share once more. So it may in an outage after primary's clock was set, or
// before its first answer: windows are primary's, as its answers show them.
//
// # Work in flight
//
// Where both are an InFlight, the Fallback is a weir.Holder: see Acquire. What is held goes on in
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
// of a token bucket) must be made with its share of them. Local must be a weir.Refunder to count
// the calls of primary under way. It decides for one caller at a time, and calls of primary for
// that caller begin when it has decided: it must not wait, as a weir.LeakyBucket does. A primary
// that ignores its context costs a goroutine for each call that hangs, until the breaker opens, and
// then for each probe, which become rarer.
func New(primary, local weir.Strategy, cfg Config) (*Fallback, error) {
	if part := cfg.Partition; part != nil {
		cfg.Partition = func(key string) string { return part(wrap.Key(primary, key)) }
	}
	cfg, err := cfg.withDefaults()
	switch {
	case err != nil:
		return nil, err
	case primary == nil:
		return nil, fmt.Errorf("%w: no primary", ErrConfig)
	case cfg.OnFail != FailLocal:
		local = nil // it would never decide
	case local == nil:
		return nil, fmt.Errorf("%w: no local", ErrConfig)
	}
	unlike := checkSides(primary, local, uint64(max(1, cfg.Instances)))
	if unlike != nil && !cfg.AllowUnlike {
		return nil, unlike
	}
	cfg.OwnLimits = cfg.OwnLimits || wrap.OwnLimits(primary)
	f := &Fallback{common: &common{primary: wrap.Of(primary), local: wrap.Of(local), cfg: cfg,
		id: rand.Text()}}
	f.doPrimary, f.doLocal, f.leave = f.primary.Do, f.local.Do, func() {}
	f.ledger.Table = callers.New(cfg.MaxCallers, (*account).idle, nil)
	f.server = &server{cfg: cfg, prompt: f.primary.Prompt(), name: "weir/fallback probe " + f.id,
		try: f.probe}
	f.server.open()
	f.seeder, _ = local.(weir.Seeder)
	_, f.aware = local.(weir.Refunder)
	here := limits.NewAttempt(local)
	f.inFlight = here.InFlight()
	f.store = f
	if asked := limits.NewAttempt(primary); asked.Store() != nil {
		f.store = batched{asked.Store()}
	}
	_, f.repeats = weir.As[wrap.Cache](primary)
	f.longest, f.window = max(wrap.Longest(primary), wrap.Longest(local)), wrap.Window(primary)
	f.lapser, _ = weir.As[lapser](primary)
	if local != nil && unlike == nil {
		f.windows = windowsOf(primary, local, cfg)
	}
	f.blind.Store(cfg.OwnLimits)
	if leases, ok := weir.As[interface{ ShareWith(instances func() int) }](primary); ok {
		leases.ShareWith(f.Instances)
		f.blind.Store(true) // they count without what is left of them
	}
	return f, nil
}

// Instances returns N, the number of instances, at least 1.
func (f *Fallback) Instances() int { return wrap.Instances(f.cfg.Instances, f.cfg.InstancesFunc) }

// Unwrap returns primary.
func (f *Fallback) Unwrap() weir.Strategy { return f.primary.Strategy }

// Run decides on r. It waits for primary at most Config.Timeout, and otherwise only for local.
func (f *Fallback) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, _, err := f.RunSource(ctx, r)
	return res, err
}

// RunSource is Run, and returns where the decision was made: by a lease or cached denial, or else
// by primary, or else by local.
func (f *Fallback) RunSource(
	ctx context.Context, r *weir.Request,
) (res *weir.Result, source Source, err error) {
	// A call of primary that fails takes this path: visit, call (primary.go), decide and backlog
	// (reconcile.go, account.go), and runLocal (local.go).
	defer func() { f.decided[source].Add(1) }()
	if err := f.validate(ctx, r); err != nil {
		return nil, Nobody, err
	}
	if res := f.primary.Lookup(r); res != nil {
		if res.Allowed() {
			return res, FromLease, nil
		}
		return res, FromDenials, nil
	}
	v := f.visit(r, time.Time{})
	defer v.end()
	res, err = v.call(ctx, (*visit).decide)
	if err == nil {
		return res, FromPrimary, nil
	}
	if err == errUndecided {
		res, source, err = v.runLocal(ctx, limits.OpRun)
	}
	if v.late != nil && (err != nil || !res.Allowed()) {
		v.settle(ctx, known{unused: true})
	}
	return res, source, err
}

// Peek returns the Result that Run would return, and counts nothing. It calls primary, or local
// where local would decide or primary is still to be charged. It starts no probe, and the breaker
// ignores how it ends. If the one it calls is no weir.Peeker, the error is errors.ErrUnsupported.
func (f *Fallback) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if err := f.validate(ctx, r); err != nil {
		return nil, err
	}
	v := f.visit(r, time.Time{})
	defer v.end()
	if v.b.Closed() && v.backlog() == nil {
		unjudged := *v // a primary that can be read may still be unable to count
		unjudged.b = nil
		if res, err := unjudged.call(ctx, calling(limits.OpPeek, nil)); err != errUndecided {
			return res, err
		}
	}
	res, _, err := v.runLocal(ctx, limits.OpPeek)
	return res, err
}

// length returns how long a period of primary is.
func (v *visit) length() time.Duration { return cmp.Or(v.window, v.r.Duration) }

// inWindow returns own, a share of the request, of a cost, in primary's window that runs. The
// account is locked.
func (v *visit) inWindow(own *weir.Request, cost uint64) inWindow {
	in := v.a.window.request(v.windows, own, v.length(), cost, v.cfg.Now())
	in.ahead = v.a.ahead.cost()
	return in
}

// visit is one use of a Fallback by r's caller.
type visit struct {
	*Fallback
	b     *breaker // nil: how calls end is not recorded
	a     *account // not removed before end
	r     *weir.Request
	began time.Time
	epoch uint64   // of the breaker, before the call of primary
	calls *calls   // that the call of primary under way is one of, or nil; guarded by a.mu
	late  *pending // the call of primary, if it may outlast the visit

	known   count  // the last of primary before the call began
	changes uint32 // of the account's takeBacks then

	hurried bool // the caller waits for less than Timeout
}

// visit begins a visit. If reset is not zero it resets the caller: primary is to be reset, too, if
// it answers before that.
func (f *Fallback) visit(r *weir.Request, reset time.Time) *visit {
	b := f.server.breaker(r.Key) // first, as Partition may panic
	now := f.cfg.Now()
	if f.window > 0 && r.Duration != f.window { // a caller has one account, whatever the Duration
		own := *r
		own.Duration, r = f.window, &own
	}
	return &visit{Fallback: f, b: b, a: f.ledger.open(r, now, reset), r: r, began: now}
}

func (v *visit) end() { v.a.users.Add(-1) }

// validate fails for requests out of the bounds of weir.Request, which need no call and no account.
func (f *Fallback) validate(ctx context.Context, r *weir.Request) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("fallback: %w", ctx.Err())
	case !bounds.Key(r.Key):
		return fmt.Errorf("fallback: key of %d bytes: %w", len(r.Key), weir.ErrID)
	case !f.cfg.OwnLimits && f.window == 0 && !bounds.Duration(r.Duration):
		return fmt.Errorf("fallback: duration %v: %w", r.Duration, weir.ErrScale)
	}
	return nil
}
