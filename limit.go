package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/core/windows"
)

// Limit is a limit as a value: so much cost in a Duration, decided by a [Strategy], with counts of
// its own. Make one with the Limit method of a strategy, or with [NewLimit], where the program
// starts, and use it from any number of goroutines:
//
//	perUser := limiter.SlidingWindow().Limit(100, time.Minute)
//	logins := limiter.TokenBucket(5).Limit(5, time.Minute).Named("logins")
//
//	if !perUser.Allow(user) { … }
//
// A name decides who shares a count: limits of one strategy and duration with the same name do,
// wherever they are made and whatever their numbers, and without a name those with equal numbers.
// None counts with [Limiter.CheckRate] or the Run of the strategy itself. Strategies are equal
// if their Limiter, kind, burst, length of the queue, tiers, unit and zone are. A Limiter keeps
// apart 65,536 limits and calendars; the calls of further ones fail with [ErrLimit]. So a part that
// varies from caller to caller belongs into the key.
//
// A key names the caller: 1 to 1024 bytes, any bytes. Calls fail as [Limiter.CheckRate] does, or as
// the strategy does, and count nothing then. Where a strategy keeps one number for a caller, as
// FixedWindow, Calendar, SlidingWindow, TokenBucket and Counter do, Allow, AllowBytes, Take and
// Peek of a caller who is known take no lock and allocate nothing.
//
// A Limit is a Strategy too: Run takes the Key, the Cost and the Meta of a Request, and its own
// numbers in place of the Limit and the Duration.
type Limit struct {
	strategy Strategy // as given
	n        uint64
	d        time.Duration
	name     string
	failOpen bool
	made     atomic.Pointer[decider] // by the first call or limits.All: else it takes no series
}

// maxName bounds the name of a Limit, in bytes.
const maxName = 256

// NewLimit returns the Limit of n in d by s, for numbers that come from a configuration, and for
// any Strategy. NewLimit fails with [ErrScale] unless d is a whole number of milliseconds from 1 ms
// to 365 days, and with [ErrLimit] if a token bucket takes longer to fill than time can be counted.
// [Tiers] ignore both numbers, and a [Calendar] d. With an [InFlight] d is the lease.
//
// A strategy of this package counts for the Limit by itself. Any other one, on Redis or with a
// fallback, gets a key that begins with the name of the Limit, or with its numbers; if that has
// over 1024 bytes, a digest of the caller's key follows. An op that the strategy cannot do fails
// with [errors.ErrUnsupported].
func NewLimit(s Strategy, n uint64, d time.Duration) (*Limit, error) {
	if s == nil {
		return nil, fmt.Errorf("weir: a limit needs a Strategy: %w", errors.ErrUnsupported)
	}
	m := &Limit{strategy: s, n: n, d: d}
	c := CounterOf(s)
	a := c.About()
	own, ok := c.(own)
	_, isLimit := s.(*Limit)
	var err error
	switch {
	case a.Bound && a.Tiers == nil, isLimit:
		err = fmt.Errorf("%w: %v has its numbers already", ErrLimit, a)
	case ok:
		err = own.check(m)
	case a.Tiers != nil:
		m.n, m.d = 0, 0
		err = checkTiers(a.Tiers)
	default:
		m.d = cmp.Or(a.Window, d)
		err = checkDuration(m.d)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// own is a Counter of this package, which counts for a Limit by itself.
type own interface {
	Counter

	// check completes a new Limit, or fails if its numbers can never be right.
	check(m *Limit) error

	// bind returns one that counts for a Limit, in the series of its name or numbers.
	bind(m *Limit) (Counter, error)
}

// MustLimit is [NewLimit] for numbers of a program, and panics where that fails.
func MustLimit(s Strategy, n uint64, d time.Duration) *Limit {
	m, err := NewLimit(s, n, d)
	if err != nil {
		panic(err.Error())
	}
	return m
}

// Named returns the limit with a name of 1 to 256 bytes, whose counts are kept when its numbers
// change: n, and of a token or leaky bucket d and the burst or queue too. Where windows are counted
// d is their length, so another d counts anew. Named panics for another length of the name. Before,
// the counts belonged to the limit without a name.
func (m *Limit) Named(name string) *Limit {
	if uint(len(name)-1) >= maxName {
		panic(fmt.Sprintf("weir: bad name: %d bytes of a limit, want 1 to %d", len(name), maxName))
	}
	return &Limit{strategy: m.strategy, n: m.n, d: m.d, name: name, failOpen: m.failOpen}
}

// FailOpen returns the same limit, whose Allow returns true if the strategy cannot decide. A key
// that is empty or too long does not open the limit, since a client may choose its key, nor does
// [errors.ErrUnsupported], a mistake of the program that does not end.
func (m *Limit) FailOpen() *Limit {
	return &Limit{strategy: m.strategy, n: m.n, d: m.d, name: m.name, failOpen: true}
}

// Name returns the name, or the empty string.
func (m *Limit) Name() string { return m.name }

// Numbers returns how much cost is admitted in which time. Both numbers are 0 of a limits.All.
func (m *Limit) Numbers() (n uint64, d time.Duration) { return m.n, m.d }

// String describes the limit, such as "logins: token bucket, 5 in 1m".
func (m *Limit) String() string {
	var b strings.Builder
	if m.name != "" {
		b.WriteString(m.name + ": ")
	}
	a := CounterOf(m.strategy).About()
	b.WriteString(a.String())
	switch {
	case m.d == 0:
	case a.InFlight:
		fmt.Fprintf(&b, ", %d at a time", m.n)
	default:
		fmt.Fprintf(&b, ", %d in %s", m.n, m.Period())
	}
	return b.String()
}

// Period returns the period as people write it, such as "1h30m": of a [Calendar] the name of its
// windows, such as "month@Europe/Berlin".
func (m *Limit) Period() string {
	return cmp.Or(CounterOf(m.strategy).About().Period, bounds.Text(m.d))
}

// Allow reports whether a hit of key is admitted, and counts it. Where the strategy cannot decide,
// Allow returns false, or true if the limit is [Limit.FailOpen] and the key is not at fault; Stats
// counts that. A leaky bucket admits only who need not wait.
func (m *Limit) Allow(key string) bool {
	if d := m.made.Load(); d != nil {
		if slot, state, w := d.find(key); slot != nil {
			if w == nil { // as in slotStrategy.hit, without its call
				if v, ok := d.slots.in.Hit(slot, state, d.params, d.l.clock.Read()); ok {
					return v.Allowed
				}
			} else if v, ok := d.slots.hit(slot, state, w, d.params, d.l.clock.Read()); ok {
				return v.Allowed
			}
		}
	}
	return m.allow(key)
}

// AllowBytes is Allow of a key that is no string: an address, an integer, a UUID. AllowBytes does
// not keep key, and makes no string of it for a caller who is known, where Allow allocates nothing;
// a limits.All makes one.
func (m *Limit) AllowBytes(key []byte) bool {
	if d := m.made.Load(); d != nil {
		if slot, state, w := d.findBytes(key); slot != nil {
			if v, ok := d.slots.hit(slot, state, w, d.params, d.l.clock.Read()); ok {
				return v.Allowed
			}
		}
	}
	return m.allow(string(key))
}

// allow is Allow of any key, by any strategy.
func (m *Limit) allow(key string) bool {
	var res Result
	err := m.run(context.Background(), &Request{Key: key}, true, &res)
	return err == nil && res.Allowed() || m.Opens(err)
}

// Opens reports whether Allow returns true where a decision fails with err: the limit is
// [Limit.FailOpen], and neither the key nor the program is at fault.
func (m *Limit) Opens(err error) bool {
	return m.failOpen && err != nil && !errors.Is(err, ErrID) && !errors.Is(err, errors.ErrUnsupported)
}

// Take decides on cost hits of key at once, of which 0 means 1, and counts them if admitted. One
// over the limit is denied with the zero ExpiresAt. A leaky bucket has the caller wait its turn.
func (m *Limit) Take(ctx context.Context, key string, cost uint64) (out Outcome, err error) {
	if d := m.made.Load(); d != nil {
		if slot, state, w := d.find(key); slot != nil {
			p, now := d.slots.costing(cost), d.l.clock.Read()
			if v, ok := d.slots.hit(slot, state, w, p, now); ok {
				full := v.At
				if !v.Allowed {
					full = d.slots.fullAfter(key, slot, state, p, v, now)
				}
				m.setOutcome(&out, d.l, d.most, v, now, full)
				return out, nil
			}
		}
	}
	return m.decider().decide(ctx, m, false, &Request{Key: key, Cost: cost})
}

// Peek returns the Outcome before a hit, and counts nothing: TotalRequests and Left are without the
// hit, State, Wait and ExpiresAt are those that Take of one hit would return.
func (m *Limit) Peek(ctx context.Context, key string) (out Outcome, err error) {
	if d := m.made.Load(); d != nil {
		if slot, state, w := d.find(key); slot != nil {
			now := d.l.clock.Read()
			if v, c, ok := d.slots.look(slot, state, w, d.params, now); ok {
				if v.Allowed {
					v.Total--
				}
				m.setOutcome(&out, d.l, d.most, v, now, d.slots.in.Algorithm.Full(c, d.params, now))
				return out, nil
			}
		}
	}
	return m.decider().decide(ctx, m, true, &Request{Key: key})
}

// Reset sets the count of key to zero.
func (m *Limit) Reset(ctx context.Context, key string) error {
	return Do(ctx, m, &Op{Verb: OpReset, Request: Request{Key: key}})
}

// For returns the [Ask] for a hit of key, for package limits:
//
//	limits.Decide(ctx, requests.For(user), tokens.For(org).Cost(n))
func (m *Limit) For(key string) Ask { return Ask{Strategy: m, Request: Request{Key: key}} }

// Ask is one limit that a request is held against; as package limits decides on several.
type Ask struct {
	Strategy Strategy
	Request  Request
}

// Cost returns the same ask for a cost, of which 0 means 1.
func (a Ask) Cost(cost uint64) Ask {
	a.Request.Cost = cost
	return a
}

// Run implements [Strategy], and allocates the Result.
func (m *Limit) Run(ctx context.Context, r *Request) (*Result, error) {
	res := new(Result)
	if err := m.run(ctx, r, false, res); err != nil {
		return nil, err
	}
	return res, nil
}

// run decides on r for no Outcome, and does not keep r. Unless atOnce is set, run may wait.
func (m *Limit) run(ctx context.Context, r *Request, atOnce bool, res *Result) (err error) {
	d := m.decider()
	switch {
	case d.inFlight:
		return m.unreleasable()
	case d.slots != nil:
		_, err = d.slots.run(ctx, r, res)
		return err
	}
	c := calls.Get().(*call)
	defer c.put()
	c.op.Request, c.op.AtOnce = *r, atOnce
	c.do(ctx, d.counter)
	*res = c.op.Result
	return c.op.Err
}

// isInFlight reports whether the limit bounds work in flight.
func (m *Limit) isInFlight() bool { return m.decider().inFlight }

func (m *Limit) seriesName(with ...uint64) windows.SeriesName {
	if m.name != "" {
		return windows.SeriesName{Name: m.name}
	}
	numbers := strconv.FormatUint(m.n, 10)
	for _, n := range with {
		numbers += " " + strconv.FormatUint(n, 10)
	}
	return windows.SeriesName{Numbers: numbers}
}

// setOutcome sets out, which is zero, for a verdict at now on a limit of most, of which all is left
// again at full. To return an Outcome by value would copy words that are being stored, for which
// each load waits.
func (m *Limit) setOutcome(out *Outcome, l *Limiter, most uint64, v verdict, now, full int64) {
	out.By = m
	out.TotalRequests, out.Limit = uint64(v.Total), most
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

// Outcome returns the Outcome of an op of [CounterOf] m that was decided: for packages that decide
// on several limits. How much is left after a denial may take an [OpPeek].
func (m *Limit) Outcome(ctx context.Context, op *Op) Outcome {
	d := m.decider()
	out := Outcome{Result: op.Result, Left: op.Result.Remaining(d.most), By: m.tierOf(op.Result.Limit)}
	out.Limit = cmp.Or(out.Limit, d.most)
	switch {
	case out.Allowed():
	case op.Left == 0, op.Result.ExpiresAt.IsZero():
		out.Wait = op.Result.RetryAfter(nowOf(d.about))
	default:
		out.Wait = max(0, op.Left)
	}
	switch {
	case d.own && op.Full:
		out.FullAt = op.FullAt
		d.complete(&out, &op.call.Rest)
		return out
	case op.Full:
		out.FullAt = fullOf(d.about, op)
	}
	if !saysLeft(d.about, out.Allowed()) {
		out.Left = leftOf(ctx, d.counter, &op.Request, &op.Result, d.most)
	}
	return out
}

// decider returns the decider, and makes it at the first call.
func (m *Limit) decider() *decider {
	if d := m.made.Load(); d != nil {
		return d
	}
	m.made.CompareAndSwap(nil, newDecider(m))
	return m.made.Load()
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

// unreleasable returns the error of a hit of work in flight, which nobody could release.
func (m *Limit) unreleasable() error { return m.decider().about.Unreleasable(m.String()) }

func (m *Limit) numbers() Tier { return Tier{m.n, m.d} }

// keyScale returns the scale in the keys of a strategy that counts in no windows: keys of a Limit
// with a name hold no duration, so that the counts outlast a new duration. 0: the keys hold it.
func (m *Limit) keyScale() int64 { return int64(min(1, len(m.name))) }

// check implements own.
func (s *reader) check(m *Limit) error {
	if err := checkDuration(m.d); err != nil {
		return err
	}
	_, err := s.params(m.n, m.d)
	return err
}
