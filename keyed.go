package weir

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/core/bounds"
)

// keyed is a Strategy of another package that counts for a [Limit]: it runs Strategy with the
// numbers of the limit in place of the request's, and under keys that begin with a label. It has
// every optional interface but [Forecaster] and [PrefixResetter]; what Strategy does not offer
// fails with [errors.ErrUnsupported].
type keyed struct {
	label    string
	strategy Strategy
	n        uint64
	d        time.Duration
	lasting  bool // see Request
}

// Unwrap returns the strategy.
func (p keyed) Unwrap() Strategy { return p.strategy }

// Bound reports that the numbers of a request are ignored.
func (p keyed) Bound() bool { return true }

// CountedKey returns the key that the strategy gets: of one that is too long with the label its
// digest takes the place, after a character with which no joined key goes on. A key that is too
// long without the label stays an error.
func (p keyed) CountedKey(key string) string {
	counted := p.label + JoinKey(key)
	if len(counted) <= maxID || len(key) > maxID {
		return counted
	}
	label, rest := p.label, counted[len(p.label):]
	if len(label)+1+hex.EncodedLen(sha256.Size) > maxID { // of many tiers
		label, rest = "", counted
	}
	sum := sha256.Sum256([]byte(rest))
	return label + "#" + hex.EncodeToString(sum[:])
}

// Lasts reports whether requests get Lasting; see Request.
func (p keyed) Lasts() bool { return p.lasting }

// Prompt is that of the strategy; see fallback.Prompt.
func (p keyed) Prompt() bool {
	s, ok := p.strategy.(prompt)
	return ok && s.Prompt()
}

// apply makes r the request that the strategy gets.
func (p keyed) apply(r *Request) {
	r.Limit, r.Duration, r.Lasting = p.n, p.d, p.lasting
	if r.Key != "" { // an empty key is to stay an error
		r.Key = p.CountedKey(r.Key)
	}
}

// inner returns the strategy of a keyed one, and makes r the request that it gets; else nil.
func inner(s Strategy, r *Request) Strategy {
	p, ok := s.(keyed)
	if !ok {
		return nil
	}
	p.apply(r)
	return p.strategy
}

func (p keyed) request(r *Request) *Request {
	q := *r
	p.apply(&q)
	return &q
}

// forward calls a method of the strategy, if that is a T.
func forward[T any](p keyed, what string, call func(s T) error) error {
	s, ok := p.strategy.(T)
	if !ok {
		return fmt.Errorf("weir: limit %q: %s cannot %s: %w", p.label, NameOf(p.strategy), what,
			errors.ErrUnsupported)
	}
	return call(s)
}

// Run implements [Strategy].
func (p keyed) Run(ctx context.Context, r *Request) (*Result, error) {
	return p.strategy.Run(ctx, p.request(r))
}

// Peek implements [Peeker].
func (p keyed) Peek(ctx context.Context, r *Request) (res *Result, err error) {
	err = forward(p, "peek", func(s Peeker) (err error) {
		res, err = s.Peek(ctx, p.request(r))
		return
	})
	return
}

// Admit implements [Admitter].
func (p keyed) Admit(ctx context.Context, r *Request) (res *Result, giveBack Return, err error) {
	err = forward(p, "admit", func(s Admitter) (err error) {
		res, giveBack, err = s.Admit(ctx, p.request(r))
		return
	})
	return
}

// Acquire implements [Holder].
func (p keyed) Acquire(ctx context.Context, r *Request) (res *Result, place Place, err error) {
	err = forward(p, "hold", func(s Holder) (err error) {
		res, place, err = s.Acquire(ctx, p.request(r))
		return
	})
	return
}

// Refund implements [Refunder].
func (p keyed) Refund(ctx context.Context, r *Request, taken *Result) error {
	return forward(p, "refund", func(s Refunder) error { return s.Refund(ctx, p.request(r), taken) })
}

// Reset implements [Resetter].
func (p keyed) Reset(ctx context.Context, r *Request) error {
	return forward(p, "reset", func(s Resetter) error { return s.Reset(ctx, p.request(r)) })
}

// Seed implements [Seeder].
func (p keyed) Seed(ctx context.Context, r *Request, counted *Result) error {
	return forward(p, "seed", func(s Seeder) error { return s.Seed(ctx, p.request(r), counted) })
}

// Charge implements [Charger].
func (p keyed) Charge(ctx context.Context, r *Request) error {
	return forward(p, "charge", func(s Charger) error { return s.Charge(ctx, p.request(r)) })
}

// Reconcile implements [Reconciler].
func (p keyed) Reconcile(ctx context.Context, r *Request, b *Backlog) (res *Result, err error) {
	err = forward(p, "reconcile", func(s Reconciler) (err error) {
		res, err = s.Reconcile(ctx, p.request(r), b)
		return
	})
	return
}

// outlasts reports whether counts outlast a change of the Duration: of a token bucket with a name.
func (m *Limit) outlasts() bool {
	s, ok := As[lapser](m.strategy)
	if !ok || m.name == "" {
		return false
	}
	_, each, ok := s.Lapse(&Request{Limit: m.n, Duration: m.d}, time.Time{})
	return ok && each > 0
}

// label begins the keys that count for a limit by a strategy of another package: its name as the
// first part of a joined key, or an empty part and its numbers.
func (m *Limit) label(burst uint64) string {
	if m.name != "" {
		return JoinKey(m.name)
	}
	if tiers := tiersOf(m.strategy); tiers != nil {
		var all strings.Builder
		for _, tier := range tiers {
			all.WriteString(numbersText(tier.Limit, tier.Duration) + " ")
		}
		return JoinKey("", all.String())
	}
	numbers := numbersText(m.n, m.d)
	if burst != 0 {
		numbers += fmt.Sprintf("/%d", burst)
	}
	return JoinKey("", numbers)
}

func numbersText(n uint64, d time.Duration) string {
	return fmt.Sprintf("%d/%s", n, bounds.Text(d))
}

// tiersOf returns the tiers of a strategy, the shortest first, or none.
func tiersOf(s Strategy) []Tier {
	t, ok := As[interface{ Tiers() []Tier }](s)
	if !ok {
		return nil
	}
	return slices.SortedFunc(slices.Values(t.Tiers()), func(a, b Tier) int {
		return cmp.Compare(a.Duration, b.Duration)
	})
}
