package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/calendar"
	"github.com/weirgo/weir/limits"
)

// Strategies returns the strategy that counts for rules with a method. It must be a [weir.Counter]
// that can [weir.OpPeek] and [weir.OpReturn], [weir.OpCharge] for costs that are known afterwards,
// and [weir.OpHold] for requests in flight. Hits can be refunded to a SlidingLog only if it can
// [weir.OpHits]. The engine uses one Strategy for all rules with the same method, as long as there
// are any.
type Strategies func(m Method) (weir.Strategy, error)

// Method is the part of a [Limit] that selects the strategy.
type Method struct {
	Algorithm Algorithm
	Burst     uint64   // capacity of a TokenBucket; 0 for that of the limit itself, and for others
	Calendar  Calendar // of a FixedWindow; the zero value for windows of the limit's Period
}

// String returns the plain name, such as "token bucket, burst 20".
func (m Method) String() string {
	name := strings.ReplaceAll(m.Algorithm.String(), "_", " ")
	if m.Burst > 0 {
		name += ", burst " + strconv.FormatUint(m.Burst, 10)
	}
	if m.Calendar != (Calendar{}) {
		name = "calendar, " + m.Calendar.String()
	}
	return name
}

// StrategiesOf returns the Strategies of s, a [weir.Limiter] or a redislimit.Store.
func StrategiesOf[F, W, L, T, C, I weir.Strategy](s interface {
	FixedWindow() F
	SlidingWindow() W
	SlidingLog() L
	TokenBucket(burst uint64) T
	Calendar(unit weir.CalendarUnit, zone *time.Location) C
	InFlight() I
}) Strategies {
	return func(m Method) (weir.Strategy, error) {
		switch {
		case m.Calendar != (Calendar{}):
			zone, err := m.Calendar.location()
			if err != nil {
				return nil, err
			}
			return s.Calendar(m.Calendar.Unit, zone), nil
		case m.Algorithm == FixedWindow:
			return s.FixedWindow(), nil
		case m.Algorithm == SlidingWindow:
			return s.SlidingWindow(), nil
		case m.Algorithm == SlidingLog:
			return s.SlidingLog(), nil
		case m.Algorithm == TokenBucket:
			return s.TokenBucket(m.Burst), nil
		case m.Algorithm == InFlight:
			return s.InFlight(), nil
		}
		return nil, fmt.Errorf("rules: unknown algorithm: %v", m.Algorithm)
	}
}

// Config says how an [Engine] counts and answers. The zero value counts in process.
type Config struct {
	// Strategies count. Nil means those of a new [weir.Limiter] with its default Config. Its
	// MaxBuckets bounds the memory; when all are in use, decisions on new values fail with
	// [weir.ErrFull].
	Strategies Strategies

	// Shadow admits every request. Statuses still report which rules are over their limits, and the
	// counts are the same as if those requests were denied.
	Shadow bool

	// CountDenied counts the hits of a denied request too, on all its limits, as Envoy's service does:
	// every rule counts as one whose costs are known afterwards. It is for a service that replaces
	// Envoy's and changes no verdict at first.
	CountDenied bool

	// Quota puts every descriptor in quota mode, including those without a rule, which are never
	// over a limit.
	Quota bool

	// Now returns the current time for computing resets; nil means time.Now. It should be the clock
	// of the Strategies.
	Now func() time.Time
}

// Engine decides on requests by the rules of a [Set]. All methods may be called concurrently.
//
// # What is counted
//
// Each value has its own counter in each rule that matches it; with share_threshold, all values of
// a wildcard share one. A request counts in all of its descriptors or in none, as [limits.Decide]
// says. A descriptor without hits is a peek: it is over the limit if the count is.
//
// # Costs that are known afterwards
//
// Where a cost is known when a request ends, such as the tokens of a language model, a client peeks
// first, and reports the cost on the same descriptors in the end: Envoy by apply_on_stream_done.
// Such a report must count even if it is over a limit, or no peek would ever be denied. A rule with
//
//	metadata: {weir: {costs: afterwards}}
//
// counts all hits in full, whatever it and the other limits of the request say, and is over its
// limit when the count then is. Peeks are denied until time has paid for it: until the window ends,
// or a bucket has something again. So in each period at most the limit is admitted, and the cost of
// one call for each that was under way. The Strategy must be able to [weir.OpCharge]. In a Go
// program a [weir.Reservation] does the same with an estimate, which it commits to the actual
// cost.
//
// Envoy's service counts every request so, denied ones too, on all of its limits.
// Config.CountDenied does that.
//
// # What Swap keeps
//
// Counters belong to a domain, entries and a period, not to a rule. They are kept when a limit is
// raised or lowered, and when a rule is renamed, moved or split. They start at zero when a rule's
// period, calendar or algorithm changes, when its share_threshold changes, and when the pattern of
// a shared wildcard changes.
type Engine struct {
	cfg     Config
	limiter *weir.Limiter // owned by the engine, or nil
	state   atomic.Pointer[state]
	mu      sync.Mutex // held by Swap
	calls   sync.Pool  // of *call
}

// state is the configuration that a decision uses. It is immutable.
type state struct {
	set        *Set
	strategies []*strategy // as Rule.method indexes them
	fixed      *strategy   // for overrides
	known      map[Method]*strategy
}

type strategy struct {
	weir.Counter
	limit   limits.Attempt
	name    string
	windows *calendar.Calendar // nil: they are aligned to the Unix epoch, or there are none
}

// can reports whether the strategy can do a verb.
func (s *strategy) can(v weir.Verb) bool { return s.About().Verbs.Has(v) }

// do has the strategy do an op.
func (s *strategy) do(ctx context.Context, op *weir.Op) error {
	op.Counter = s.Counter
	s.Do(ctx, []*weir.Op{op})
	return op.Err
}

// New returns an Engine that decides by set. It fails if set is nil or if its Strategies fail.
func New(set *Set, cfg Config) (*Engine, error) {
	e := &Engine{cfg: cfg}
	e.calls.New = func() any { return newCall(e) }
	if e.cfg.Now == nil {
		e.cfg.Now = time.Now
	}
	if e.cfg.Strategies == nil {
		limiter, err := weir.New(weir.Config{Now: cfg.Now})
		if err != nil {
			return nil, err
		}
		e.limiter = limiter
		e.cfg.Strategies = StrategiesOf(limiter)
	}
	if err := e.Swap(set); err != nil {
		_ = e.Close()
		return nil, err
	}
	return e, nil
}

// Swap replaces the rules. Each decision uses either the old or the new rules as a whole. If set is
// nil or the Strategies fail, Swap returns an error and the old rules stay in use.
func (e *Engine) Swap(set *Set) error {
	if set == nil {
		return errors.New("rules: nil Set")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var known map[Method]*strategy
	if old := e.state.Load(); old != nil {
		known = old.known
	}
	next := &state{set: set, known: make(map[Method]*strategy)}
	for _, m := range append(slices.Clip(set.methods), Method{}) { // that of overrides
		s := cmp.Or(next.known[m], known[m])
		if s == nil {
			var err error
			s, err = e.strategy(m)
			if err != nil {
				return fmt.Errorf("rules: no strategy for %v: %w", m, err)
			}
		}
		next.known[m], next.strategies = s, append(next.strategies, s)
	}
	next.fixed = next.known[Method{}]
	if e.cfg.CountDenied && !next.fixed.can(weir.OpCharge) {
		return errors.New("rules: Config.CountDenied needs a strategy that can charge, " +
			"which that for overrides cannot")
	}
	for r := range set.All() {
		switch {
		case r.Limit.Algorithm == InFlight && e.cfg.CountDenied:
			return fmt.Errorf("rules: %s: Config.CountDenied does not apply to the unit %s", r.Path,
				inFlightUnit)
		case (r.Limit.Afterwards || e.cfg.CountDenied) && !next.strategies[r.method].can(weir.OpCharge):
			return fmt.Errorf("rules: %s: costs that are known afterwards need a strategy that can charge, "+
				"which that for %v cannot", r.Path, r.Limit.Algorithm)
		}
	}
	e.state.Store(next)
	return nil
}

// strategy makes the strategy for m.
func (e *Engine) strategy(m Method) (*strategy, error) {
	made, err := e.cfg.Strategies(m)
	if err != nil {
		return nil, err
	}
	s := &strategy{Counter: weir.CounterOf(made), limit: limits.NewAttempt(made), name: m.String()}
	if !s.can(weir.OpPeek) || !s.can(weir.OpReturn) {
		return nil, fmt.Errorf("%v cannot peek and refund", s.About())
	}
	if of := &s.limit; of.InFlight() && m.Algorithm != InFlight {
		return nil, fmt.Errorf("%s bounds work in flight, which only the unit %s releases",
			s.About(), inFlightUnit)
	}
	if m.Algorithm == InFlight {
		s.limit, err = s.limit.Holding()
		if err != nil {
			return nil, err
		}
	}
	if m.Calendar != (Calendar{}) {
		of, err := m.Calendar.windows()
		if err != nil {
			return nil, err
		}
		s.windows = &of
	}
	return s, nil
}

// Set returns the current rules.
func (e *Engine) Set() *Set { return e.state.Load().set }

// Close closes the engine's own limiter, if it has one; later decisions then fail with
// [weir.ErrClosed]. The caller must close its own Strategies. Close always returns nil.
func (e *Engine) Close() error {
	if e.limiter != nil {
		return e.limiter.Close()
	}
	return nil
}

// Reset deletes the count of a descriptor in the rule that limits it, and reports whether there is
// such a rule. If values share a counter, Reset deletes the shared one. It fails with
// [errors.ErrUnsupported] if the strategy cannot reset.
func (e *Engine) Reset(ctx context.Context, domain string, entries []Entry) (bool, error) {
	st := e.state.Load()
	r := st.set.Match(domain, entries)
	if r == nil || r.Limit.Unlimited {
		return false, nil
	}
	s := st.strategies[r.method]
	key := string(appendKey(nil, domain, entries, r))
	return true, s.do(ctx, &weir.Op{Verb: weir.OpReset, Request: weir.Request{
		Key: key, Limit: uint64(r.Limit.Requests), Duration: r.Limit.Period(),
	}})
}

// Decide decides on a request. It returns [ErrRequest] for an invalid request, [ErrInFlight] for
// one that [Engine.Hold] decides, and otherwise the error of a strategy that failed. After an error
// nothing is counted, but costs that are known afterwards.
func (e *Engine) Decide(ctx context.Context, req *Request) (*Response, error) {
	resp := new(Response)
	if err := e.DecideInto(ctx, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// DecideInto is like Decide, but stores the result in resp and reuses its memory. After an error
// the contents of resp are undefined.
func (e *Engine) DecideInto(ctx context.Context, req *Request, resp *Response) error {
	c := e.calls.Get().(*call)
	defer e.calls.Put(c)
	return c.decide(ctx, e.state.Load(), req, resp, false)
}

// Hold is [Engine.DecideInto] for a request whose end the caller knows. It returns the places that
// the request takes in the rules for requests in flight, none if it is denied. The caller must
// release all of them when it ends.
func (e *Engine) Hold(ctx context.Context, req *Request, resp *Response) ([]*weir.Held, error) {
	c := e.calls.Get().(*call)
	defer e.calls.Put(c)
	if err := c.decide(ctx, e.state.Load(), req, resp, true); err != nil {
		return nil, err
	}
	return c.places(), nil
}

// ResetAll deletes the counts of the descriptors of a domain that begin with entries, and returns
// how many that were. If the last entry has no value, it stands for every value; without entries
// all of the domain is reset. progress, which may be nil, and the cost are those of
// [weir.OpResetPrefix], of each strategy in turn. A value that shares a counter with others is not
// found by itself, and a key over 256 bytes, which is hashed, not at all. It fails with
// [errors.ErrUnsupported] if a strategy cannot reset a prefix.
func (e *Engine) ResetAll(
	ctx context.Context, domain string, entries []Entry, progress func(seen, reset int),
) (reset int, err error) {
	prefix := appendPart(nil, ':', domain)
	for i, entry := range entries {
		prefix = appendPart(prefix, ':', entry.Key)
		if entry.Value != "" || i < len(entries)-1 {
			prefix = appendPart(prefix, ':', entry.Value)
		}
	}
	seen := 0
	for _, s := range e.state.Load().known {
		before, last := seen, reset
		op := &weir.Op{Verb: weir.OpResetPrefix, Request: weir.Request{Key: string(prefix)}}
		op.Progress = func(found, done int) {
			seen = before + found
			if progress != nil {
				progress(seen, last+done)
			}
		}
		err := s.do(ctx, op)
		reset += int(op.Result.TotalRequests)
		if err != nil {
			return reset, err
		}
	}
	return reset, nil
}

// ErrInFlight means that a request matches a rule that limits requests in flight, and is decided by
// [Engine.Decide], which has no way to release its place, or gives hits back, which name no place.
// A peek takes no place and does not fail. Nothing was counted.
var ErrInFlight = errors.New("the rule limits requests in flight, and this decision does not " +
	"see their end; a Decider, Engine.Hold and weir proxy do")
