package weir

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/core/engine"
	"github.com/weirgo/weir/internal/core/windows"
)

// checkArgs fails for a bad ID, scale or limit.
func checkArgs(id string, scaleMs, limit int64) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: empty", ErrID)
	case len(id) > maxID:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrID, len(id), maxID)
	case scaleMs <= 0 || scaleMs > maxScale:
		return fmt.Errorf("%w: %d ms, want 1 to %d", ErrScale, scaleMs, int64(maxScale))
	case limit < 0:
		return fmt.Errorf("%w: %d is negative", ErrLimit, limit)
	}
	return nil
}

// reader reads the requests of a strategy, and does its ops in the store that it counts in.
type reader struct {
	l        *Limiter
	about    About
	duration time.Duration // in place of a request's; 0: none. A series' is over maxScale
	most     uint64        // larger Limits and Costs count as that; at most math.MaxInt64
	preparer preparer      // nil: the params are complete
	bad      error         // of a strategy with a preparer, which no request can mend

	// set by bind, for a Limit
	bound     bool
	limit     uint64 // in place of a request's
	numbersOf Tier   // of the Limit
	one       params // of a hit, of a bound strategy
}

// params returns the params of a hit, held against n in d.
func (s *reader) params(n uint64, d time.Duration) (params, error) {
	return s.prepare(params{Scale: d.Milliseconds(), Limit: int64(min(n, s.most)), Cost: 1})
}

// prepare completes p.
func (s *reader) prepare(p params) (params, error) {
	switch {
	case s.preparer == nil:
		return p, nil
	case s.bad != nil:
		return p, s.bad
	}
	p, ok := s.preparer.Prepare(p)
	if !ok {
		return p, fmt.Errorf("%w: a burst of %d, one in %v, takes centuries to refill",
			ErrLimit, p.Limit, time.Duration(p.Each))
	}
	return p, nil
}

// preparer completes params, and reports false for a burst that never fills.
type preparer interface{ Prepare(p params) (params, bool) }

// describe sets the About of c, which reads its requests by s and has these keys.
func (s *reader) describe(c Counter, in engine.Keys, a About) {
	a.Of, a.Limiter, a.stats, a.Bound = c, s.l, s.l, s.bound || a.Tiers != nil
	a.Verbs |= VerbsOf(OpTake, OpPeek, OpReturn, OpCharge, OpReset, OpResetPrefix, OpCatchUp)
	if a.Lapses != LapsesAnyhow {
		a.Verbs |= VerbsOf(OpForecast)
	}
	of := counts{of: s.l, series: in.Series, bound: a.Bound, algorithm: a.Name}
	if s.bound {
		of.scale = in.Scale
		a.Numbers = s.numbersOf
	}
	for _, tier := range a.Tiers {
		of.plan += tier.Duration.String() + " "
	}
	if a.Longest > 0 {
		of.plan += a.Longest.String()
	}
	a.Counts = of
	s.about = a
}

// bindTo has s count for a limit, in a series, and completes the keys.
func (s *reader) bindTo(series windows.SeriesName, limit Tier, in *engine.Keys) error {
	of, err := s.l.named(series, nil)
	if err != nil {
		return err
	}
	s.bound, s.limit, s.numbersOf, in.Series = true, limit.Limit, limit, of.Number
	s.duration = cmp.Or(s.duration, limit.Duration)
	in.Scale = cmp.Or(in.Scale, s.duration.Milliseconds())
	return nil
}

// numbers returns the limit and the duration that hold for r.
func (s *reader) numbers(r *Request) (limit uint64, d time.Duration) {
	limit, d = r.Limit, s.duration
	if d == 0 {
		d = r.Duration
	}
	if s.bound {
		limit = s.limit
	}
	return limit, d
}

// parse returns the params of r. It fails with ErrClosed after Close, and counts errors.
func (s *reader) parse(r *Request) (p params, err error) {
	limit, duration := s.numbers(r)
	p.Scale = int64(uint64(duration) / uint64(msec))
	p.Limit, p.Cost = int64(min(limit, s.most)), int64(min(max(r.Cost, 1), s.most))
	if r.Cost > limit && p.Cost == p.Limit {
		p.Limit-- // both were over most
	}
	switch {
	case uint(len(r.Key)-1) >= maxID, uint64(p.Scale-1) >= maxScale && s.duration == 0,
		time.Duration(p.Scale*msec) != duration:
		return p, s.l.fail(s.about.Check(r))
	case s.l.closed.Load():
		return p, s.l.fail(ErrClosed)
	case s.preparer != nil:
		p, err = s.prepare(p)
		if err != nil {
			err = s.l.fail(err)
		}
	}
	return p, err
}

// do does an op in the store that s counts in.
func (s *reader) do(ctx context.Context, op *Op, in engine.Store) {
	switch op.Verb {
	case OpTake, OpPeek:
		s.decide(ctx, op, in)
	case OpReturn, OpCharge, OpReset:
		op.Err = s.change(op, in)
	case OpCatchUp:
		p, err := s.parse(&op.Request)
		if err == nil && op.Backlog != nil {
			err = s.catchUp(op, p, in)
		}
		op.Err = err
	case OpResetPrefix:
		op.Err = s.resetPrefix(ctx, op, in)
	case OpForecast:
		op.Err = s.forecast(op, in)
	default:
		op.Err = op.Unsupported(&s.about)
	}
}

// decide does an OpTake or an OpPeek.
func (s *reader) decide(ctx context.Context, op *Op, in engine.Store) {
	v, now, err := verdict{}, int64(0), s.begin(ctx, op, in)
	switch {
	case err != nil:
	case op.Verb == OpPeek:
		v, now, err = in.Look(op.Key, &op.call)
		err = s.l.fail(err)
	default:
		v, now, err = in.Count(op.Key, op.Meta, &op.call)
		err = s.l.fail(err)
	}
	s.decided(op, v, now, err)
}

// begin begins the call of a decision: it parses the request, unless a look has done so, and
// catches up with a Backlog.
func (s *reader) begin(ctx context.Context, op *Op, in engine.Store) (err error) {
	c := &op.call
	if op.Verb == OpPeek || !op.Deciding || op.Keep {
		c.Slot = nil
	}
	if c.Slot == nil {
		c.Params, err = s.parse(&op.Request)
	}
	if op.Backlog != nil && op.Verb == OpTake && err == nil {
		err = s.catchUp(op, c.Params, in)
	}
	c.AsOf, c.WantMark, c.WantRest, c.Deciding = s.l.asOf(ctx), op.Keep, op.Full, op.Deciding
	return err
}

// decided sets the outcome of an op.
func (s *reader) decided(op *Op, v verdict, now int64, err error) {
	if err != nil {
		op.setErr(err)
		return
	}
	op.Left, op.Source, op.Err = s.setResult(&op.Result, v, now), FromLocal, nil
	if op.Full {
		op.FullAt = s.l.time(op.call.Rest.Full)
	}
	if op.Keep && op.Verb == OpTake {
		op.receipt(&op.call.Mark, v.At)
	}
}

// setResult sets res to a verdict at now, and returns how long the verdict holds.
func (s *reader) setResult(res *Result, v verdict, now int64) time.Duration {
	left := s.l.setResult(res, v, now)
	if tiers := s.about.Tiers; tiers != nil {
		res.Limit = tiers[v.Tier].Limit
	}
	return left
}

// change does an op that decides nothing.
func (s *reader) change(op *Op, in engine.Store) error {
	r, taken := op.Request, engine.Taken{}
	if op.Verb == OpReturn {
		taken = op.returned(&r, &s.l.clock)
		if r.Cost == 0 {
			return nil
		}
	}
	p, err := s.parse(&r)
	switch {
	case err != nil:
		return err
	case op.Verb == OpReset:
		err = in.Reset(r.Key, p)
	case op.Verb == OpCharge:
		err = in.Admit(r.Key, r.Meta, p)
	case !p.ExceedsLimit():
		err = in.Refund(r.Key, r.Meta, p, taken)
	}
	return s.l.fail(err)
}

// resetPrefix does an OpResetPrefix.
func (s *reader) resetPrefix(ctx context.Context, op *Op, in engine.Store) error {
	if s.l.closed.Load() {
		return s.l.fail(ErrClosed)
	}
	p := engine.Prefix{Ctx: ctx, Prefix: op.Key, Progress: op.Progress}
	in.ResetPrefix(&p)
	op.Result = Result{TotalRequests: uint64(p.Reset)}
	return ctx.Err()
}

// forecast does an OpForecast.
func (s *reader) forecast(op *Op, in engine.Store) error {
	if s.about.Lapses == LapsesAnyhow {
		return op.Unsupported(&s.about)
	}
	p, err := s.parse(&op.Request)
	op.More = time.Time{}
	if err != nil || op.Result.TotalRequests == 0 {
		return err
	}
	expires := s.l.clock.Instant(op.Result.ExpiresAt)
	more := in.Forecast(op.Key, p, clampCost(op.Result.TotalRequests), expires)
	op.More = op.Result.ExpiresAt
	if more != expires {
		op.More = s.l.clock.Time(more)
	}
	return nil
}

// catchUp catches up with the Backlog of an op, at the params of its request. It never lowers a
// count, nor raises one to a count that has expired.
func (s *reader) catchUp(op *Op, p params, in engine.Store) (err error) {
	b := op.Backlog
	if b.Reset {
		err = in.Reset(op.Key, p)
	}
	if counted := b.Counted; counted != nil && err == nil {
		expires := s.l.clock.Instant(counted.ExpiresAt)
		if expires > s.l.clock.Read() {
			err = in.Raise(op.Key, op.Meta, p, expires, clampCost(counted.TotalRequests))
		}
	}
	if b.Total > b.Charged && err == nil {
		p.Cost = int64(min(b.Total-b.Charged, s.most))
		err = in.Admit(op.Key, op.Meta, p)
	}
	return s.l.fail(err)
}

// checkTiers fails for bad tiers.
func checkTiers(tiers []Tier) error {
	if len(tiers) == 0 {
		return fmt.Errorf("%w: no tiers", ErrScale)
	}
	for i, tier := range tiers {
		if err := checkDuration(tier.Duration); err != nil {
			return err
		}
		for _, other := range tiers[:i] {
			if other.Duration == tier.Duration {
				return fmt.Errorf("%w: two tiers of %v", ErrScale, tier.Duration)
			}
		}
	}
	return nil
}

// JoinKey joins parts into one key, each preceded by its length, so that no two lists of parts give
// the same key: ("a", "b:c") and ("a:b", "c") are two.
func JoinKey(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(strconv.Itoa(len(p)))
		b.WriteByte(':')
		b.WriteString(p)
	}
	return b.String()
}
