package rules

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// Source makes the strategy that counts for rules of an algorithm. Burst is the capacity of a
// TokenBucket, 0 for the limit's own, and 0 for the others. The Strategy must be a [weir.Peeker]
// and a [weir.Refunder]; it should be a [weir.Seeder], see [Engine]. It is used for all rules of
// the same algorithm and burst, as long as there are any.
type Source func(a Algorithm, burst uint64) (weir.Strategy, error)

// SourceOf returns the strategies of s: of a [weir.Limiter], or of a redislimit.Store.
func SourceOf[F, W, L, T weir.Strategy](s interface {
	FixedWindow() F
	SlidingWindow() W
	SlidingLog() L
	TokenBucket(burst uint64) T
}) Source {
	return func(a Algorithm, burst uint64) (weir.Strategy, error) {
		switch a {
		case FixedWindow:
			return s.FixedWindow(), nil
		case SlidingWindow:
			return s.SlidingWindow(), nil
		case SlidingLog:
			return s.SlidingLog(), nil
		case TokenBucket:
			return s.TokenBucket(burst), nil
		}
		return nil, fmt.Errorf("rules: no %v", a)
	}
}

// Config says how an [Engine] counts and answers. The zero value counts in process.
type Config struct {
	// Source makes the strategies. Nil means those of a [weir.Limiter] of the engine's own, with
	// its default Config. Its MaxBuckets bounds the memory; when they are in use, decisions on new
	// values fail with [weir.ErrFull].
	Source Source

	// Shadow lets every request pass. Statuses still say which rules are over, and counts are what
	// they would be if such requests were denied.
	Shadow bool

	// Quota makes every descriptor one in quota mode, also those that no rule limits and that
	// therefore are never over.
	Quota bool

	// Now is the clock that resets are measured by; nil means time.Now. It should be that of the
	// Source.
	Now func() time.Time
}

// Engine decides on requests by the rules of a [Set]. It is safe for concurrent use, Swap and Close
// included.
//
// # What is counted
//
// Each value has a counter of its own in each rule that matches it; with share_threshold all values
// of the wildcard have one. A request counts in all its descriptors or in none: if one of them
// denies it, the others are given back what they took. Envoy's service counts in all of them. For a
// moment such a request is counted by the others, and may cost a concurrent one its admission; it
// never admits what one of them denies.
//
// A descriptor that is over its limit raises its count to one above the limit, which is an
// exception to weir's rule that a denial takes nothing. Envoy's service counts such hits too, and
// quotas on what is known only afterwards need it: a request is admitted by a peek, and reports its
// cost when it is done; if the report that goes over were not counted, no peek would ever deny. Of
// algorithms other than FixedWindow, which have no end of a window to wait for, only a cost above 1
// does that: a client that repeats denied requests must not keep itself out for ever. A Strategy
// that is no [weir.Seeder] is asked for what is missing instead, if it is a window, and is not
// raised if it is none.
//
// # What Swap keeps
//
// Counters belong to a domain, entries and a period, and not to a rule, so they go on when a limit
// is raised or lowered, or when a rule is renamed, moved or split. What starts afresh: a rule whose
// period or algorithm changes, or whose share_threshold is switched, and the values of a shared
// wildcard whose pattern changes.
type Engine struct {
	cfg     Config
	limiter *weir.Limiter // of the engine's own, or nil
	state   atomic.Pointer[state]
	mu      sync.Mutex // held by Swap
	calls   sync.Pool  // of *call
}

// state is what one decision goes by. It is immutable.
type state struct {
	set        *Set
	strategies []*strategy // as Rule.method indexes them
	fixed      *strategy   // for overrides
	known      map[method]*strategy
}

// strategy is a weir.Strategy and what it can do besides.
type strategy struct {
	weir.Strategy
	direct   decider // nil if it is none of package weir's own
	peeker   weir.Peeker
	refunder weir.Refunder
	seeder   weir.Seeder // nil if it is none
}

// decider is what package weir's own strategies are: Run without the allocation of a Result.
type decider interface {
	Decide(ctx context.Context, r *weir.Request) (weir.Result, error)
}

// New returns an Engine that decides by set. It fails if set is nil, or if the Source does.
func New(set *Set, cfg Config) (*Engine, error) {
	e := &Engine{cfg: cfg}
	e.calls.New = func() any { return new(call) }
	if e.cfg.Now == nil {
		e.cfg.Now = time.Now
	}
	if e.cfg.Source == nil {
		limiter, err := weir.New(weir.Config{Now: cfg.Now})
		if err != nil {
			return nil, err
		}
		e.limiter = limiter
		e.cfg.Source = SourceOf(limiter)
	}
	if err := e.Swap(set); err != nil {
		_ = e.Close()
		return nil, err
	}
	return e, nil
}

// Swap replaces the rules. A decision goes by either the old or the new ones as a whole. It fails,
// and the old rules stay, if set is nil or the Source fails.
func (e *Engine) Swap(set *Set) error {
	if set == nil {
		return errors.New("rules: no Set")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var known map[method]*strategy
	if old := e.state.Load(); old != nil {
		known = old.known
	}
	next := &state{set: set, known: make(map[method]*strategy)}
	for _, m := range set.methods {
		s, err := e.strategy(m, known, next.known)
		if err != nil {
			return err
		}
		next.strategies = append(next.strategies, s)
	}
	var err error
	if next.fixed, err = e.strategy(method{}, known, next.known); err != nil {
		return err
	}
	e.state.Store(next)
	return nil
}

// strategy returns the strategy of m, the old one if there is one, and adds it to next.
func (e *Engine) strategy(m method, old, next map[method]*strategy) (*strategy, error) {
	if s := next[m]; s != nil {
		return s, nil
	}
	s := old[m]
	if s == nil {
		made, err := e.cfg.Source(m.algorithm, m.burst)
		if err != nil {
			return nil, fmt.Errorf("rules: no strategy for %v: %w", m.algorithm, err)
		}
		if s, err = bind(made); err != nil {
			return nil, fmt.Errorf("rules: strategy for %v: %w", m.algorithm, err)
		}
	}
	next[m] = s
	return s, nil
}

func bind(made weir.Strategy) (*strategy, error) {
	s := &strategy{Strategy: made}
	var ok bool
	if s.peeker, ok = made.(weir.Peeker); !ok {
		return nil, fmt.Errorf("a %T is no weir.Peeker", made)
	}
	if s.refunder, ok = made.(weir.Refunder); !ok {
		return nil, fmt.Errorf("a %T is no weir.Refunder", made)
	}
	s.seeder, _ = made.(weir.Seeder)
	switch made.(type) {
	// The types themselves: a type that embeds one of them to replace its Run has its Decide too.
	case *weir.FixedWindow, *weir.SlidingWindow, *weir.SlidingLog, *weir.TokenBucket:
		s.direct = made.(decider)
	}
	return s, nil
}

// Set returns the rules that decisions go by now.
func (e *Engine) Set() *Set { return e.state.Load().set }

// Close closes the engine's own limiter, if it has one; later decisions then fail with
// [weir.ErrClosed]. A Source's strategies are its maker's to close. It always returns nil.
func (e *Engine) Close() error {
	if e.limiter != nil {
		return e.limiter.Close()
	}
	return nil
}

// Reset forgets what was counted for a descriptor by the rule that limits it, and reports whether
// there is one. Where values share a counter it is that of all of them. It fails with
// [errors.ErrUnsupported] if the strategy is no [weir.Resetter].
func (e *Engine) Reset(ctx context.Context, domain string, entries []Entry) (bool, error) {
	st := e.state.Load()
	r := st.set.Match(domain, entries)
	if r == nil || r.Limit.Unlimited {
		return false, nil
	}
	s := st.strategies[r.method]
	resetter, ok := s.Strategy.(weir.Resetter)
	if !ok {
		return true, fmt.Errorf("rules: a %T is no weir.Resetter: %w", s.Strategy, errors.ErrUnsupported)
	}
	key := string(appendKey(nil, domain, entries, r))
	return true, resetter.Reset(ctx, &weir.Request{
		Key: key, Limit: uint64(r.Limit.Requests), Duration: r.Limit.Period(),
	})
}
