package weir

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// together returns ops of limits for a known caller, and their takings.
func together(t *testing.T, all ...*Limit) (ops []*Op, takings []taking) {
	t.Helper()
	for _, m := range all {
		require.True(t, m.Allow("k"))
		op := &Op{Counter: CounterOf(m), Verb: OpTakeAll, Request: Request{Key: "k"}}
		t1 := taking{}
		require.True(t, t1.find(op, op.Counter.(onSlots).counts()))
		ops, takings = append(ops, op), append(takings, t1)
	}
	return ops, takings
}

// If a limit fails after others were taken from, those get it back.
func TestTakeEachGivesBackIfOneFails(t *testing.T) {
	l, now := manual(t)
	first, second := l.SlidingWindow().Limit(9, time.Hour), l.SlidingWindow().Limit(9, time.Minute)
	_, all := together(t, first, second)
	*now = now.Add(2 * time.Minute)
	require.True(t, second.Allow("k")) // in another period: the bucket is to be found again
	all[1].op.Key = ""
	_, ok := takeEach(all, l.clock.Read())
	assert.False(t, ok)
	out, err := first.Peek(t.Context(), "k")
	require.NoError(t, err)
	assert.EqualValues(t, 1, out.TotalRequests)
}

// Ops of two Limiters, more than a few, or of a caller who is not known, are to be taken apart, and
// none counts.
func TestTakenApart(t *testing.T) {
	l, _ := manual(t)
	other, _ := manual(t)
	m := l.SlidingWindow().Limit(9, time.Minute)
	for name, with := range map[string]*Op{
		"a limit of another Limiter": {Counter: CounterOf(other.SlidingWindow().Limit(9, time.Minute)),
			Request: Request{Key: "k"}},
		"a caller who is not known": {Counter: CounterOf(l.FixedWindow().Limit(9, time.Minute)),
			Request: Request{Key: "new"}},
		"no limit": {Counter: l.FixedWindow(), Request: Request{Key: "k", Limit: 9, Duration: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			if with.Key == "k" {
				require.NoError(t, Do(t.Context(), with.Counter, &Op{Request: with.Request}))
			}
			ops, _ := together(t, m)
			before := MustPeek(t, m, &Request{Key: "k"}).TotalRequests
			with.Verb = OpTakeAll
			ops = append(ops, with)
			ops[0].Counter.Do(t.Context(), ops)
			require.ErrorIs(t, ops[0].Err, errors.ErrUnsupported)
			assert.Equal(t, before, MustPeek(t, m, &Request{Key: "k"}).TotalRequests)
		})
	}
	ops, _ := together(t, m, l.FixedWindow().Limit(1, time.Hour), l.Counter().Limit(1, time.Hour),
		l.TokenBucket(0).Limit(1, time.Hour), l.FixedWindow().Limit(1, time.Minute))
	ops[0].Counter.Do(t.Context(), ops)
	require.ErrorIs(t, ops[0].Err, errors.ErrUnsupported)
}
