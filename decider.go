package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/forlimits"
	"github.com/weirgo/weir/internal/core/ids"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/states"
	"github.com/weirgo/weir/internal/core/windows"
)

// localOf returns what s decides by, or nil if that is another package, or may wait.
func localOf(s Strategy) local {
	if s, ok := asOwn(s); ok {
		return s.local()
	}
	return nil
}

// decider decides for a Limit. It is immutable but for known.
type decider struct {
	strategy Strategy     // counts for the limit, whatever the numbers of a request
	local    local        // of a strategy of this package that decides at once; else nil
	known    atomic.Value // of package limits
	inFlight bool         // it bounds work in flight: a hit that nobody releases is a mistake

	// of a strategy on slots; nil: it is another one
	l       *Limiter
	table   *table
	slots   *slotStrategy
	windows *windowStrategy    // the same, of fixed windows; else nil
	params  params             // of a cost of 1
	key     slots.Period       // where it is not that of a window
	most    uint64             // what Outcome.Left is of
	leaky   *LeakyBucket       // else nil
	states  outcomes           // of a strategy on states that decides at once; else nil
	said    forlimits.SaysLeft // of another package
	queue   any                // identifies the strategy to those who wait

	several several  // of limits.All; else nil
	all     []*Limit // of those
	tiered  []*Limit // with the numbers of each tier, the shortest first
	tiers   *Tiers   // else nil
	atOnce  Strategy // of a LeakyBucket: denies who would have to wait; else nil
}

// decider returns what decides, and makes it at the first call.
func (m *Limit) decider() *decider {
	if d := m.made.Load(); d != nil {
		return d
	}
	m.made.CompareAndSwap(nil, m.newDecider())
	return m.made.Load()
}

func (m *Limit) newDecider() *decider {
	d := &decider{strategy: m.strategy, inFlight: heldBy(m.strategy) != nil}
	if several, ok := m.strategy.(several); ok {
		d.several, d.all = several, several.Limits()
		d.atOnce = d.withoutLines()
		return d
	}
	own, ok := asOwn(m.strategy)
	if !ok {
		var burst uint64
		if of, ok := As[sized](m.strategy); ok {
			burst = of.Burst()
		}
		d.most = cmp.Or(burst, m.n)
		d.strategy = keyed{m.label(burst), m.strategy, m.n, m.d, m.outlasts()}
		d.tiered, d.said = m.ofTiers(tiersOf(m.strategy), d), saysLeft(m.strategy)
		return d
	}
	s, err := own.bind(m)
	if err != nil {
		l, _ := own.of()
		s = &failing{m.strategy, l, err}
	}
	d.strategy, d.local, d.most = s, localOf(s), m.n
	switch s := s.(type) {
	case onSlots:
		d.slots, d.windows = s.counts()
		d.l, d.table = d.slots.l, d.slots.table
		d.params = d.slots.params()
		d.key, d.most = d.slots.period(d.params.Scale), uint64(d.params.Limit)
		d.queue = waitsFor(d.strategy)
	case *Tiers:
		d.tiers, d.tiered = s, m.ofTiers(s.tiers, d)
	case *LeakyBucket:
		d.leaky, d.atOnce = s, s.withoutLine()
	case outcomes:
		d.states = s
	}
	return d
}

// ofTiers returns a limit with the numbers of each tier, which d decides for.
func (m *Limit) ofTiers(tiers []Tier, d *decider) (all []*Limit) {
	for _, tier := range tiers {
		part := &Limit{strategy: m.strategy, n: tier.Limit, d: tier.Duration, name: m.name,
			failOpen: m.failOpen}
		part.made.Store(d)
		all = append(all, part)
	}
	return all
}

// tierOf returns the limit that a Result with that Limit is of: m, or one of its tiers.
func (m *Limit) tierOf(limit uint64) *Limit {
	for _, tier := range m.decider().tiered {
		if tier.n == limit {
			return tier
		}
	}
	return m
}

// failing is the strategy of a Limit that cannot count: each call fails, and Stats counts that.
type failing struct {
	strategy Strategy // as given
	l        *Limiter
	err      error
}

// Unwrap implements [Wrapper].
func (f *failing) Unwrap() Strategy { return f.strategy }

// Run implements [Strategy].
func (f *failing) Run(context.Context, *Request) (*Result, error) { return nil, f.l.fail(f.err) }

// Peek implements [Peeker].
func (f *failing) Peek(context.Context, *Request) (*Result, error) { return nil, f.l.fail(f.err) }

// Acquire implements [Holder].
func (f *failing) Acquire(context.Context, *Request) (*Result, Place, error) {
	return nil, nil, f.l.fail(f.err)
}

// Refund implements [Refunder].
func (f *failing) Refund(context.Context, *Request, *Result) error { return f.l.fail(f.err) }

// Charge implements [Charger].
func (f *failing) Charge(context.Context, *Request) error { return f.l.fail(f.err) }

// Reset implements [Resetter].
func (f *failing) Reset(context.Context, *Request) error { return f.l.fail(f.err) }

// onSlots is a strategy that keeps one number for a caller.
type onSlots interface {
	// counts returns the strategy, as one of fixed windows too if it is that.
	counts() (*slotStrategy, *windowStrategy)
}

func (s *slotStrategy) counts() (*slotStrategy, *windowStrategy) { return s, nil }

func (s *windowStrategy) counts() (*slotStrategy, *windowStrategy) { return &s.slotStrategy, s }

// costing returns the params of a cost, on slots.
func (d *decider) costing(cost uint64) params {
	p := d.params
	if cost > 1 {
		p.Cost = int64(min(cost, d.slots.most))
		if cost > d.slots.limit && uint64(p.Cost) == d.slots.most {
			p.Limit = min(p.Limit, p.Cost-1) // both may be over most
		}
	}
	return p
}

// find returns the slot of a known caller, with its state as read before the key was compared, and
// its window if it counts in fixed windows. It returns nil for one who is not known, and for keys
// and limiters that fail. The clock is to be read after it, as in localSlots.Run.
func (d *decider) find(key string) (slot *slots.Slot, state slots.Word, w *windows.Window) {
	if d.slots == nil || uint(len(key)-1) >= maxID || d.l.closed.Load() {
		return nil, 0, nil
	}
	p, w := d.current()
	t := d.table
	if len(key) > ids.Inline {
		slot, state, _ = t.find(key, p)
		return slot, state, w
	}
	k := t.PackShort(key)
	slot, state, _ = t.indexes[t.shardNumber(k.Hash)].Load().FindShort(k, len(key), p)
	return slot, state, w
}

// findBytes is find.
func (d *decider) findBytes(key []byte) (slot *slots.Slot, state slots.Word, w *windows.Window) {
	if len(key) <= ids.Inline {
		return d.find(string(key)) // a copy on the stack
	}
	if d.slots == nil || len(key) > maxID || d.l.closed.Load() {
		return nil, 0, nil
	}
	p, w := d.current()
	slot, state = d.table.findLongBytes(key, p)
	return slot, state, w
}

// current returns the period of the buckets and, of fixed windows, the latest window, which may
// have ended: it reads no clock.
func (d *decider) current() (*slots.Period, *windows.Window) {
	if d.windows == nil {
		return &d.key, nil
	}
	w := d.windows.in.Current.Load()
	return &w.Fixed, w
}

// hit decides p on the bucket in a slot that find has returned, at now. It reports false, and has
// counted nothing, if run is to decide.
func (d *decider) hit(
	slot *slots.Slot, state slots.Word, w *windows.Window, p params, now int64,
) (v verdict, at int64, ok bool) {
	if w == nil {
		return d.slots.hit(slot, state, p, now)
	}
	var res Result
	if !d.windows.hit(slot, state, w, p, now, &res) {
		return v, 0, false
	}
	return verdict{Allowed: res.Allowed(), Total: int64(res.TotalRequests), At: w.End}, now, true
}

// look returns the verdict on a hit at now of the bucket in a slot that find has returned, and what
// the slot holds. It reports false if another call is to decide.
func (d *decider) look(
	slot *slots.Slot, state slots.Word, w *windows.Window, p params, now int64,
) (v verdict, c slots.Content, ok bool) {
	c = slot.Content(state)
	if slot.State().Epoch() != state.Epoch() {
		return v, c, false // its words may be of two epochs
	}
	if w != nil {
		v = p.Verdict(c.N, w.End)
		return v, c, w.Holds(now) && (v.Allowed || !d.l.clock.IsCoarse())
	}
	v, next := d.slots.algorithm.Decide(c, p, now)
	return v, c, v.Allowed || !d.l.clock.IsCoarse() && next == c
}

// fullAfterDenial returns when nothing counts, if nothing more is admitted, as far as the denial of
// p says that: there is room for p then, and the rest follows, Each apart.
func (d *decider) fullAfterDenial(p params, v verdict) (full int64, ok bool) {
	return v.At + (p.Limit-p.Cost)*p.Each, v.At != noInstant && d.slots.kind != slidingKind
}

// fullAfter returns when nothing counts for key, if nothing more is admitted, in a slot that find
// has returned with this state.
func (d *decider) fullAfter(
	key string, slot *slots.Slot, state slots.Word, p params, now int64,
) int64 {
	epoch := state.Epoch()
	state = slot.State()
	if c := slot.Content(state); state.Epoch() == epoch && slot.State().Epoch() == epoch {
		return d.slots.algorithm.Full(c, p, now)
	}
	at, _ := d.slots.full(&Request{Key: key})
	return at
}

// run decides on any request of a strategy on slots.
func (d *decider) run(r *Request, res *Result) (left time.Duration, err error) {
	if d.windows != nil {
		return (*localWindows)(d.windows).Run(r, res, forlimits.NoSight)
	}
	return (*localSlots)(d.slots).Run(r, res, forlimits.NoSight)
}

// runLocal decides on r by a strategy that decides at once, for no Outcome. It does not keep r.
func (d *decider) runLocal(r *Request, res *Result) (err error) {
	if d.slots != nil {
		_, err = d.run(r, res)
		return err
	}
	c := calls.Get().(*call)
	defer c.put()
	c.request = *r
	_, err = d.local.Run(&c.request, &c.result, forlimits.NoSight)
	*res = c.result
	return err
}

// withoutLines returns the strategy of several without the lines of leaky buckets, or nil if there
// are none.
func (d *decider) withoutLines() Strategy {
	strategies, waits := make([]Strategy, len(d.all)), false
	for i, m := range d.all {
		strategies[i] = m
		if atOnce := m.decider().atOnce; atOnce != nil {
			strategies[i], waits = atOnce, true
		}
	}
	if !waits {
		return nil
	}
	return d.several.Of(strategies)
}

// call is a call of a Strategy, which does not keep what it is given.
type call struct {
	request Request
	result  Result
	more    rest // of a strategy on states
}

var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) put() {
	*c = call{}
	calls.Put(c)
}

// decide decides on r by any strategy, or only looks.
func (m *Limit) decide(ctx context.Context, d *decider, look bool, r *Request) (Outcome, error) {
	switch {
	case d.inFlight && !look:
		return Outcome{}, unreleasable(m)
	case d.tiers != nil:
		return decideTiers(d, look, r)
	case d.several != nil:
		all, by, err := d.several.Decide(ctx, look, *r)
		if err != nil {
			return Outcome{}, err
		}
		out := d.all[by].outcome(&all.Result, all.Wait)
		out.Left, out.FullAt = all.Left, all.FullAt
		return out, nil
	}
	c := calls.Get().(*call)
	defer c.put()
	c.request = *r
	if d.leaky != nil {
		return c.decideLeaky(ctx, m, d, look)
	}
	left, err := c.decide(ctx, d, look)
	if err != nil {
		return Outcome{}, err
	}
	if look && c.result.Allowed() {
		c.result.TotalRequests -= min(1, c.result.TotalRequests)
	}
	out := m.outcome(&c.result, left)
	if d.states != nil {
		out.FullAt = d.states.Limiter().time(c.more.full)
	} else {
		out.FullAt = fullOf(d.strategy, &c.request, &c.result, !look)
	}
	if d.local == nil && !d.said.Of(out.Allowed()) {
		out.Left = leftOf(ctx, d.strategy, r, &c.result, d.most)
	}
	return out, nil
}

// decideLeaky is decide of a LeakyBucket.
func (c *call) decideLeaky(
	ctx context.Context, m *Limit, d *decider, look bool,
) (out Outcome, err error) {
	var at leaving
	res := &c.result
	if look {
		var more rest
		_, err = d.leaky.decideFor(&c.request, true, res, &more)
		at.full = more.full
		if err == nil && res.Allowed() {
			res.TotalRequests, at.room = res.TotalRequests-1, true
		}
	} else {
		res, at, err = d.leaky.run(ctx, &c.request)
	}
	if err != nil {
		return Outcome{}, err
	}
	out = m.outcome(res, 0)
	if !at.room {
		out.Left = 0
	} else {
		out.Left = d.most
	}
	out.FullAt = d.leaky.l.time(at.full)
	return out, nil
}

// decide sets the result to what one Strategy says, and returns how long that holds, if it is
// known.
func (c *call) decide(ctx context.Context, d *decider, look bool) (left time.Duration, err error) {
	switch {
	case d.states != nil:
		return d.states.decideFor(&c.request, look, &c.result, &c.more)
	case d.local != nil && look:
		return d.local.Look(&c.request, &c.result, forlimits.NoSight)
	case d.local != nil:
		return d.local.Run(&c.request, &c.result, forlimits.NoSight)
	}
	s := d.strategy
	if of := inner(s, &c.request); of != nil { // which would copy the request
		s = of
	}
	run := s.Run
	if look {
		p, ok := s.(Peeker)
		if !ok {
			return 0, fmt.Errorf("weir: %s cannot peek: %w", NameOf(s), errors.ErrUnsupported)
		}
		run = p.Peek
	}
	res, err := run(ctx, &c.request)
	switch {
	case err != nil:
		return 0, err
	case res == nil:
		return 0, fmt.Errorf("weir: %s returned neither a Result nor an error: %w",
			NameOf(d.strategy), errors.ErrUnsupported)
	}
	c.result = *res
	return 0, nil
}

// outcome returns the Outcome of res, which holds for left, if that is known.
func (m *Limit) outcome(res *Result, left time.Duration) Outcome {
	d := m.decider()
	if d.local == nil && !res.Allowed() && !res.ExpiresAt.IsZero() {
		left = waitOf(m.strategy, res)
	}
	return m.outcomeOf(*res, res.Remaining(d.most), left)
}

// decideTiers is decide of Tiers.
func decideTiers(d *decider, look bool, r *Request) (out Outcome, err error) {
	var v verdict
	var more rest
	var at states.Locked[*algorithm.Slices]
	if look {
		v, at.Now, err = d.tiers.see(r, present, &more)
		if v.Allowed {
			v.Total--
		}
	} else {
		v, at, err = d.tiers.decideWith(r, present, &more)
	}
	if err != nil {
		return out, err
	}
	tier := d.tiered[v.Tier]
	tier.setOutcome(&out, d.tiers.l, tier.n, v, at.Now, more.full)
	out.Limit = tier.n
	if !v.Allowed {
		out.Left = uint64(more.left)
	}
	return out, nil
}

// setOutcome sets out, which is zero, to that of a verdict at now on a limit of most, of which all
// is left again at full. To return it by value would copy words that are being stored, for which
// each load waits.
func (m *Limit) setOutcome(out *Outcome, l *Limiter, most uint64, v verdict, now, full int64) {
	out.By = m
	out.TotalRequests = uint64(v.Total)
	out.Left = most - min(most, out.TotalRequests)
	switch {
	case v.Allowed:
		out.State = Allow
	case v.At == noInstant:
		out.Wait = math.MaxInt64
	default:
		out.Wait = time.Duration(v.At - now)
	}
	if v.At != noInstant {
		out.ExpiresAt = l.clock.Time(v.At)
	}
	switch full {
	case v.At:
		out.FullAt = out.ExpiresAt
	case noInstant:
	default:
		out.FullAt = l.clock.Time(full)
	}
}

// outcomeOf returns the Outcome of a Result that holds for wait.
func (m *Limit) outcomeOf(res Result, left uint64, wait time.Duration) Outcome {
	out := Outcome{Result: res, Left: left, By: m.tierOf(res.Limit)}
	switch {
	case res.Allowed():
	case res.ExpiresAt.IsZero():
		out.Wait = math.MaxInt64
	default:
		out.Wait = max(0, wait)
	}
	return out
}

// heldBy returns the Strategy of work in flight that s wraps, or has among the limits of a
// limits.All: what it wraps last is a [Holder]. It returns nil if there is none.
func heldBy(s Strategy) Strategy {
	for {
		switch of := s.(type) {
		case *Limit:
			s = of.strategy
		case several:
			for _, m := range of.Limits() {
				if held := heldBy(m); held != nil {
					return held
				}
			}
			return nil
		case Wrapper:
			s = of.Unwrap()
		case Holder:
			return s
		default:
			return nil
		}
	}
}

// unreleasable returns the error of a hit of s, which nobody could release, if s bounds work in
// flight. Stats counts it.
func unreleasable(s Strategy) error {
	held := heldBy(s)
	if held == nil {
		return nil
	}
	name := NameOf(s)
	if m, ok := s.(*Limit); ok {
		name = m.String()
	}
	err := fmt.Errorf("weir: %s: nobody could release a hit of work in flight: use Hold: %w", name,
		errors.ErrUnsupported)
	if own, ok := held.(inLimiter); ok && own.Limiter() != nil {
		return own.Limiter().fail(err)
	}
	return err
}

// waitOf returns how long a denial by s lasts, by the clock of its Limiter or else in real time.
func waitOf(s Strategy, res *Result) time.Duration {
	if own, ok := s.(inLimiter); ok && own.Limiter() != nil {
		c := &own.Limiter().clock
		return time.Duration(arith.Sub(c.Instant(res.ExpiresAt), c.Read()))
	}
	return res.RetryAfter(time.Now())
}
