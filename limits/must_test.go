package limits_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/weirtest"
)

var epoch = time.UnixMilli(0).UTC()

func newLimiter(t testing.TB, cfg weir.Config) (*weir.Limiter, *weirtest.Clock) {
	t.Helper()
	clock := weirtest.NewClock(epoch)
	if cfg.Now == nil {
		cfg.Now = clock.Now
	}
	l, err := weir.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l, clock
}

// standing returns a limiter whose clock stands.
func standing(t testing.TB) *weir.Limiter {
	t.Helper()
	l, _ := newLimiter(t, weir.Config{})
	return l
}

// keyed returns what counts for a Limit with a name by s, as if s were of another package.
func keyed(t testing.TB, name string, s weir.Strategy, n uint64, d time.Duration) weir.Strategy {
	t.Helper()
	m, err := weir.NewLimit(ops.Around(s), n, d)
	require.NoError(t, err)
	return weir.CounterOf(m.Named(name))
}

func mustTiers(t testing.TB, l *weir.Limiter, tiers ...weir.Tier) *weir.Tiers {
	t.Helper()
	s := l.Tiers(tiers...)
	return s
}

func mustRun(t testing.TB, s weir.Strategy, r *weir.Request) *weir.Result {
	t.Helper()
	res, err := s.Run(t.Context(), r)
	require.NoError(t, err)
	return res
}

func mustPeek(t testing.TB, s weir.Strategy, r *weir.Request) *weir.Result {
	t.Helper()
	res, err := ops.Peek(t.Context(), s, r)
	require.NoError(t, err)
	return res
}

// limit is a Limit, or an All of some.
type limit interface {
	weir.Strategy
	Allow(key string) bool
	Take(ctx context.Context, key string, cost uint64) (weir.Outcome, error)
	Peek(ctx context.Context, key string) (weir.Outcome, error)
}

var (
	_ limit = (*weir.Limit)(nil)
	_ limit = (*limits.Several)(nil)
)

func mustTake(t testing.TB, m limit, key string, cost uint64) weir.Outcome {
	t.Helper()
	out, err := m.Take(t.Context(), key, cost)
	require.NoError(t, err)
	return out
}

// fake is a Counter of another process around one in this, whose ops one does: next is the op of
// the inner one.
type fake struct {
	inner weir.Counter
	about weir.About
	one   func(ctx context.Context, op *weir.Op, next func())
}

// newFake returns a fake that can do verbs, or else what s can. It sets nothing that is optional.
func newFake(
	s weir.Strategy, one func(ctx context.Context, op *weir.Op, next func()), verbs ...weir.Verb,
) *fake {
	f := &fake{inner: weir.CounterOf(s), one: one}
	f.about = *f.inner.About().By(f)
	f.about.Limiter = nil
	f.about.Verbs &^= weir.VerbsOf(weir.OpTakeAll)
	if len(verbs) > 0 {
		f.about.Verbs = weir.VerbsOf(verbs...)
	}
	return f
}

// handOn has the inner Counter do the op.
func handOn(_ context.Context, _ *weir.Op, next func()) { next() }

func (f *fake) About() *weir.About { return &f.about }

func (f *fake) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, f, r)
}

func (f *fake) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		f.do(ctx, op)
	}
}

func (f *fake) do(ctx context.Context, op *weir.Op) {
	if !f.about.Verbs.Has(op.Verb) {
		op.Err = op.Unsupported(&f.about)
		return
	}
	was, keep, full := op.Counter, op.Keep, op.Full
	op.Keep, op.Full, op.Err = false, false, nil
	f.one(ctx, op, func() { _ = weir.Do(ctx, f.inner, op) })
	op.Counter, op.Keep, op.Full, op.Left, op.Source = was, keep, full, 0, weir.Nowhere
}

// counted returns the count of s for r.
func counted(t testing.TB, s weir.Strategy, r *weir.Request) uint64 {
	t.Helper()
	res := mustPeek(t, s, r)
	if res.Allowed() {
		return res.TotalRequests - max(1, r.Cost)
	}
	return res.TotalRequests
}
