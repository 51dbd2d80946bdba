package weir

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// builders return a limit that differs in one thing from the one before.
var builders = map[string]func(*Limit) *Limit{
	"Named(first)":  func(m *Limit) *Limit { return m.Named("first") },
	"Named(second)": func(m *Limit) *Limit { return m.Named("second") },
	"FailOpen":      (*Limit).FailOpen,
}

func TestEveryBuilderOfALimitIsTested(t *testing.T) {
	limit := reflect.TypeFor[*Limit]()
	for i := range limit.NumMethod() {
		m := limit.Method(i)
		if m.Type.NumOut() != 1 || m.Type.Out(0) != limit {
			continue
		}
		known := false
		for name := range builders {
			known = known || strings.HasPrefix(name, m.Name)
		}
		assert.True(t, known, "%s is missing in builders", m.Name)
	}
}

// eachOrder calls f with the builders in every order, of up to three, each any number of times.
func eachOrder(f func(order []string)) {
	orders := [][]string{nil}
	for range 4 {
		var longer [][]string
		for _, order := range orders {
			f(order)
			for name := range builders {
				longer = append(longer, append(order[:len(order):len(order)], name))
			}
		}
		orders = longer
	}
}

// Each builder changes one thing, and keeps the others, in any order.
func TestBuildersOfALimitKeepTheRest(t *testing.T) {
	for kind, of := range limited {
		if kind == "InFlight" {
			continue // is held, and Allow takes none of it
		}
		t.Run(kind, func(t *testing.T) {
			eachOrder(func(order []string) {
				l, _ := manual(t)
				plain := of(l, 5, time.Minute)
				m, name, open := plain, "", false
				for _, builder := range order {
					m = builders[builder](m)
					if builder == "FailOpen" {
						open = true
					} else {
						name = strings.TrimSuffix(strings.TrimPrefix(builder, "Named("), ")")
					}
				}
				assert.Equal(t, name, m.Name(), order)
				n, d := m.Numbers()
				wantN, wantD := plain.Numbers()
				assert.Equal(t, []any{wantN, wantD}, []any{n, d}, order)
				same := of(l, 5, time.Minute)
				if name != "" {
					same = same.Named(name)
				}
				require.True(t, m.Allow("k"))
				assert.EqualValues(t, 2, MustTake(t, same, "k", 1).TotalRequests, order)
				by := MustTake(t, m, "k", 1).By
				assert.Equal(t, name, by.Name(), order)
				require.NoError(t, l.Close())
				for _, m := range []*Limit{m, by} {
					assert.Equal(t, open, m.Allow("k"), order)
					assert.Equal(t, open, m.AllowBytes([]byte("k")), order)
				}
				assert.False(t, plain.Allow("k") && len(order) > 0, "the receiver is as it was: %v", order)
			})
		})
	}
}

// Keys of every length fail after Close, of callers who were known before.
func TestNoLimitDecidesAfterClose(t *testing.T) {
	for kind, of := range limited {
		if kind == "InFlight" {
			continue // is held, and Allow takes none of it
		}
		t.Run(kind, func(t *testing.T) {
			l, _ := manual(t)
			m := of(l, 5, time.Minute)
			var keys []string
			for _, length := range []int{1, 8, 16, 22, 23, 24, 40, 62, 63, 500, 900} {
				keys = append(keys, strings.Repeat("k", length))
			}
			for _, key := range keys {
				require.True(t, m.Allow(key))
				require.True(t, m.AllowBytes([]byte(key)))
			}
			require.NoError(t, l.Close())
			for i, key := range keys {
				assert.False(t, m.Allow(key), "%d bytes", len(key))
				assert.False(t, m.AllowBytes([]byte(key)), "%d bytes", len(key))
				_, err := m.Take(t.Context(), key, 1)
				assert.ErrorIs(t, err, ErrClosed, "%d bytes", len(key))
				_, err = m.Peek(t.Context(), key)
				assert.ErrorIs(t, err, ErrClosed, "%d bytes", len(key))
				assert.EqualValues(t, 4*(i+1), l.Stats().Closed)
			}
		})
	}
}

// A caller who is known, and of whom nothing counts any more, gets the verdict of a new one, of
// numbers over what a slot can count too: a cost over the limit never passes.
func TestKnownCallersGetTheVerdictsOfNewOnes(t *testing.T) {
	numbers := []uint64{1, 2, maxCount - 1, maxCount, maxCount + 1, 1 << 50, 1<<63 - 1, 1 << 63,
		1<<64 - 1}
	for kind, of := range map[string]func(*Limiter) Strategy{
		"FixedWindow":   func(l *Limiter) Strategy { return l.FixedWindow() },
		"SlidingWindow": func(l *Limiter) Strategy { return l.SlidingWindow() },
		"Counter":       func(l *Limiter) Strategy { return l.Counter() },
		"TokenBucket":   func(l *Limiter) Strategy { return l.TokenBucket(0) },
	} {
		for _, n := range numbers {
			for _, cost := range numbers {
				l, now := manual(t)
				m, err := NewLimit(of(l), n, time.Minute)
				if errors.Is(err, ErrLimit) {
					continue // a burst that takes centuries to fill
				}
				require.NoError(t, err)
				MustTake(t, m, "known", 1)
				if cost > n {
					out := MustTake(t, m, "known", cost)
					assert.False(t, out.Allowed(), "%s of %d: %d", kind, n, cost)
					assert.Zero(t, out.ExpiresAt, "%s of %d: %d", kind, n, cost)
				}
				*now = now.Add(time.Hour)
				known, fresh := MustTake(t, m, "known", cost), MustTake(t, m, "new", cost)
				assert.Equal(t, fresh.Result, known.Result, "%s of %d: %d", kind, n, cost)
				assert.Equal(t, cost <= n, known.Allowed(), "%s of %d: %d", kind, n, cost)
			}
		}
	}
}

// past is a Strategy of another package that denies until an instant that has passed.
type past struct{}

func (past) Run(context.Context, *Request) (*Result, error) {
	return &Result{State: Deny, TotalRequests: 1, ExpiresAt: time.Now().Add(-time.Hour)}, nil
}

func (s past) About() *About {
	return &About{Of: s, Name: "past", Verbs: VerbsOf(OpTake, OpPeek)}
}

func (s past) Do(ctx context.Context, ops []*Op) {
	for _, op := range ops {
		res, _ := s.Run(ctx, &op.Request)
		op.Result = *res
	}
}

func TestNoOutcomeHasANegativeWait(t *testing.T) {
	m := mustLimit(past{}, 5, time.Minute)
	out := MustTake(t, m, "k", 1)
	assert.GreaterOrEqual(t, out.Wait, time.Duration(0))
	assert.Less(t, out.Wait, time.Minute)
	out, err := m.Peek(t.Context(), "k")
	require.NoError(t, err)
	assert.GreaterOrEqual(t, out.Wait, time.Duration(0))

	// Of a leaky bucket, whose clock is read after the decision too, and may have come to its end.
	for reads := range 12 {
		start, read := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), 0
		l, err := New(Config{SweepEvery: time.Hour, Now: func() time.Time {
			if read++; read > reads {
				return start.Add(time.Hour)
			}
			return start
		}})
		require.NoError(t, err)
		queue := l.LeakyBucket(0).Limit(1, time.Minute)
		for range 3 {
			assert.GreaterOrEqual(t, MustTake(t, queue, "k", 1).Wait, time.Duration(0), "%d readings", reads)
		}
		require.NoError(t, l.Close())
	}
}
