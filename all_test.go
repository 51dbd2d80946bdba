package weir

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type contextKey struct{}

// refundable is a Strategy that admits, and records the contexts and Results of its refunds.
type refundable struct {
	result   Result
	contexts []context.Context
	refunded []Result
	err      error // returned by Refund
}

func (s *refundable) Run(context.Context, *Request) (*Result, error) {
	r := s.result
	return &r, nil
}

func (s *refundable) Refund(ctx context.Context, _ *Request, taken *Result) error {
	s.contexts, s.refunded = append(s.contexts, ctx), append(s.refunded, *taken)
	return s.err
}

// strategyFunc is a Strategy that is a function.
type strategyFunc func(ctx context.Context) (*Result, error)

func (f strategyFunc) Run(ctx context.Context, _ *Request) (*Result, error) { return f(ctx) }

// All refunds what it has charged even if the context is done.
func TestAllRefundsAfterTheContextEnded(t *testing.T) {
	failed := errors.New("down")
	for name, last := range map[string]func() (*Result, error){
		"denied": func() (*Result, error) { return &Result{State: Deny}, nil },
		"failed": func() (*Result, error) { return nil, failed },
	} {
		t.Run(name, func(t *testing.T) {
			first := &refundable{result: Result{State: Allow, TotalRequests: 7}}
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "value"))
			res, err := AllOf(first, strategyFunc(func(context.Context) (*Result, error) {
				cancel()
				return last()
			})).Run(ctx, &Request{Key: "id"})
			if name == "failed" {
				require.ErrorIs(t, err, failed)
			} else {
				require.NoError(t, err)
				require.False(t, res.Allowed())
			}
			require.Len(t, first.contexts, 1)
			assert.NoError(t, first.contexts[0].Err(), "a refund over the network must not be cut off")
			assert.Equal(t, "value", first.contexts[0].Value(contextKey{}))
			assert.EqualValues(t, 7, first.refunded[0].TotalRequests)
		})
	}
}

func TestAllReportsALostRefund(t *testing.T) {
	failed, lost := errors.New("down"), errors.New("lost")
	first := &refundable{result: Result{State: Allow}, err: lost}
	_, err := AllOf(first, strategyFunc(func(context.Context) (*Result, error) { return nil, failed })).
		Run(t.Context(), &Request{Key: "id"})
	require.ErrorIs(t, err, failed)
	require.ErrorIs(t, err, lost)

	res, err := AllOf(first, strategyFunc(func(context.Context) (*Result, error) {
		return new(Result), nil
	})).
		Run(t.Context(), &Request{Key: "id"})
	require.ErrorIs(t, err, lost)
	assert.Nil(t, res)
}

// The remainder of a token bucket counts from its burst.
func TestAllComparesBursts(t *testing.T) {
	l := newLimiter(t)
	tiers := MustTiers(t, l, Tier{1000, time.Second})
	burst := keyed{JoinKey("burst"), l.TokenBucket(20), 100, time.Minute}
	s := AllOf(tiers, keyed{JoinKey("daily"), l.FixedWindow(), 50, 24 * time.Hour}, burst)
	for i := range uint64(20) {
		res := MustRun(t, s, &Request{Key: "id", Limit: 5})
		want := MustPeek(t, burst, &Request{Key: "id"})
		require.Equal(t, i+1, res.TotalRequests)
		if want.Allowed() {
			require.True(t, res.ExpiresAt.Before(want.ExpiresAt), "%+v is not of the bucket", res)
		}
	}
}

func TestAllReportsTheTightestAdmission(t *testing.T) {
	l := newLimiter(t)
	day := keyed{JoinKey("day"), l.FixedWindow(), 10, 24 * time.Hour}
	minute := keyed{JoinKey("minute"), l.FixedWindow(), 3, time.Minute}
	for range 3 { // 1 of 3 leaves less than 1 of 10
		for _, s := range []Strategy{AllOf(day, minute), AllOf(minute, day)} {
			res := MustRun(t, s, &Request{Key: "id"})
			want := MustPeek(t, minute, &Request{Key: "id"})
			if res.Allowed() {
				assert.True(t, res.ExpiresAt.Before(l.clock.Time(l.clock.Read()).Add(2*time.Minute)),
					"%+v, not %+v", res,
					want)
			}
		}
	}
	// Both deny; the daily policy ends later.
	for range 10 {
		require.NoError(t, day.Charge(t.Context(), &Request{Key: "id"}))
	}
	for _, s := range []Strategy{AllOf(day, minute), AllOf(minute, day)} {
		for _, ask := range []func(context.Context, *Request) (*Result, error){s.Run, s.(Peeker).Peek} {
			res, err := ask(t.Context(), &Request{Key: "id"})
			require.NoError(t, err)
			require.False(t, res.Allowed())
			assert.Equal(t, l.clock.Time(86_400_000*msec), res.ExpiresAt)
		}
	}
}
