package fallback

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// Source says who made a decision.
type Source int

// Who may have made a decision.
const (
	Nobody      Source = iota // there is none, but an error
	FromPrimary               // primary, asked just now
	FromLease                 // the block of budget that primary gave before; see Config.Lease
	FromDenials               // primary, in a denial that is still good; see Config.DenialCache
	FromLocal                 // local, as primary could not
	FromPolicy                // Config.OnFail, which lets all or none pass
)

// String returns the name of the source, in lower case.
func (s Source) String() string {
	return [...]string{"nobody", "primary", "lease", "denials", "local", "policy"}[s]
}

// Fallback is a primary strategy with a local one behind it: a weir.Strategy, and a weir.Peeker, Refunder and Resetter as
// far as the two are. Make one with [New]. It is safe for concurrent use; it holds no goroutine but for a probe, and needs
// no closing.
type Fallback struct {
	primary, local weir.Strategy
	cfg            Config

	seeder   weir.Seeder   // primary; nil if it is none, as the next three
	charger  weir.Charger  // primary
	refunder weir.Refunder // primary
	resetter weir.Resetter // primary
	warmed   weir.Seeder   // local; nil if it is none

	breaker breaker
	ledger  *ledger
	denials *denials
	stats   counters
	noLease atomic.Bool // primary is no window that can be leased
	ahead   atomic.Bool // it told of one that is yet to come; see postponed
}

var _ interface {
	weir.Strategy
	weir.Peeker
	weir.Refunder
	weir.Resetter
} = (*Fallback)(nil)

// New returns a Strategy that has primary decide, and local when primary cannot. It fails with [ErrConfig].
//
// # What callers see
//
// No error of primary's: when it fails, or does not answer within Config.Timeout, local decides in the same call. Errors
// are those of weir for a bad request, those of the caller's own context, and those of local, if it has to decide and
// cannot. Once the breaker is open primary costs nothing, until a caller of each ProbeInterval tries it again. A decision
// of local's reports, as TotalRequests, the limit less what this instance still has to give: the others' shares count as
// spent.
//
// # What is not forgotten
//
// Local is told of each answer of primary's (if it is a weir.Seeder), so at the switch every caller goes on from what was
// spent. What local admits is charged to primary (if it is a weir.Charger) before primary decides for that caller again;
// and primary, if it is a weir.Seeder and so can be, is told what it had counted, lest it came back empty. Both concern
// periods that are still running and instances whose requests saw the outage; neither is done for a caller who never asks
// again. Lost answers err on the side of denying: a request or a charge whose answer was lost may count twice.
//
// # How much an outage can over-admit
//
// With limit L and N instances, local goes by ceil(L/N), and is told ceil(c/N) when primary has counted c. So it has, of
// what remains, at most its share, ceil((L-c)/N), and over a period at most ceil(L/N), however often primary goes and
// comes. If all instances know the same c when primary goes, and all are charged when it comes back,
//
//	admitted <= L + N - 1
//
// in one fixed window, the rounding apart exactly the limit. At the worst, when the others were told nothing of what the
// last one to ask took, or do not ask again and so are not charged,
//
//	admitted <= L + (N-1)*ceil(L/N)
//
// whatever happens: for N = 1 the limit itself. Requests whose answers are under way when primary goes, so that local does
// not know of them, may add themselves; but no instance ever adds more than ceil(L/N) to what primary admits. A primary
// that loses its counts, as a Redis that persists nothing does when it restarts, adds c-s each time: c is what it had
// counted, s what it had told the first instance to ask afterwards, or 0 if none of that instance's requests failed
// meanwhile. For strategies other than fixed windows the same holds of what they count, in place of a window.
//
// # What primary and local must be
//
// Two strategies of one algorithm, on clocks that agree, which go by the Limit of the request: to local it is passed
// divided. A local that goes by limits of its own (Tiers, a weir.Policy, the burst of a token bucket) must be made with
// its share of them. Primary must heed its context. If it does not, it holds those callers who are inside it for as long
// as it likes, for a goroutine a call would cost every healthy one; but as soon as Timeout has passed, each counts as a
// failure, so that the breaker opens and holds no more; and a probe is left behind in a goroutine of its own.
func New(primary, local weir.Strategy, cfg Config) (*Fallback, error) {
	cfg, err := cfg.withDefaults()
	switch {
	case err != nil:
		return nil, err
	case primary == nil:
		return nil, fmt.Errorf("%w: no primary", ErrConfig)
	case local == nil && cfg.OnFail == FailLocal:
		return nil, fmt.Errorf("%w: no local", ErrConfig)
	}
	now := cfg.Now()
	f := &Fallback{
		primary: primary,
		local:   local,
		cfg:     cfg,
		breaker: breaker{
			failures: cfg.Failures, rate: cfg.FailureRate, interval: cfg.ProbeInterval,
			start: now, since: now,
		},
		ledger:  newLedger(cfg.MaxCallers),
		denials: newDenials(cfg.DenialCache, cfg.Skew),
	}
	f.seeder, _ = primary.(weir.Seeder)
	f.charger, _ = primary.(weir.Charger)
	f.refunder, _ = primary.(weir.Refunder)
	f.resetter, _ = primary.(weir.Resetter)
	if cfg.OnFail == FailLocal {
		f.warmed, _ = local.(weir.Seeder)
	}
	return f, nil
}

// Run decides on r. It waits for primary at most Config.Timeout, and for nothing else but what local waits for.
func (f *Fallback) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, _, err := f.RunSource(ctx, r)
	return res, err
}

// RunSource is Run, and who decided.
func (f *Fallback) RunSource(ctx context.Context, r *weir.Request) (*weir.Result, Source, error) {
	// Before anybody is asked: bad requests must not use up the probes.
	if err := sound(ctx, r); err != nil {
		return nil, Nobody, err
	}
	res, by, err := f.decide(ctx, r)
	if err != nil {
		return nil, Nobody, err
	}
	f.stats.decided[by].Add(1)
	return res, by, nil
}

func (f *Fallback) decide(ctx context.Context, r *weir.Request) (*weir.Result, Source, error) {
	if f.leases(r) {
		return f.runLease(ctx, r)
	}
	return f.runPlain(ctx, r)
}

// runPlain decides on r without a lease.
func (f *Fallback) runPlain(ctx context.Context, r *weir.Request) (*weir.Result, Source, error) {
	if res := f.denials.find(r, f.cfg.Now()); res != nil {
		return res, FromDenials, nil
	}
	return f.askOrLocal(ctx, r, f.patience(ctx))
}

func (f *Fallback) askOrLocal(ctx context.Context, r *weir.Request, w patience) (*weir.Result, Source, error) {
	res, err := f.ask(ctx, r, w)
	if err == errCannot {
		return f.without(ctx, r)
	}
	return res, FromPrimary, err
}

const (
	maxKey      = 1024
	maxDuration = 365 * 24 * time.Hour
)

func sound(ctx context.Context, r *weir.Request) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("fallback: %w", ctx.Err())
	case r.Key == "" || len(r.Key) > maxKey:
		return fmt.Errorf("fallback: key of %d bytes: %w", len(r.Key), weir.ErrID)
	case r.Duration < time.Millisecond || r.Duration > maxDuration || r.Duration%time.Millisecond != 0:
		return fmt.Errorf("fallback: duration %v: %w", r.Duration, weir.ErrScale)
	}
	return nil
}

// limit is r.Limit as strategies count it.
func limit(r *weir.Request) uint64 { return min(r.Limit, math.MaxInt64) }
