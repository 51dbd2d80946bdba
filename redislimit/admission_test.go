package redislimit_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

// admitting is a strategy on its own key, on a clock that stands still unless it is moved.
type admitting struct {
	weir.Counter
	t     *testing.T
	clock *weirtest.Clock
	key   string
}

func (s *admitting) request(cost uint64) *weir.Request {
	return &weir.Request{Key: s.key, Limit: 10, Duration: time.Minute, Cost: cost, Meta: "m"}
}

func (s *admitting) admit(cost uint64) ops.Return {
	s.t.Helper()
	r := s.request(cost)
	res, ret, err := ops.Admit(s.t.Context(), s.Counter, r)
	require.NoError(s.t, err)
	require.True(s.t, res.Allowed())
	*r = weir.Request{} // it is the caller's again
	return ret
}

func (s *admitting) giveBack(ret ops.Return, cost uint64) {
	s.t.Helper()
	require.NoError(s.t, ret(s.t.Context(), cost))
}

func (s *admitting) counted() uint64 {
	s.t.Helper()
	res, err := ops.Peek(s.t.Context(), s.Counter, s.request(1))
	require.NoError(s.t, err)
	return res.TotalRequests - uint64(res.State)
}

func (s *admitting) counts(want uint64, what string) {
	s.t.Helper()
	assert.Equal(s.t, want, s.counted(), what)
}

func (s *admitting) reset() {
	s.t.Helper()
	require.NoError(s.t, ops.Reset(s.t.Context(), s.Counter, s.request(1)))
}

// forEachAdmitter runs a test on every strategy, all on one clock.
func forEachAdmitter(t *testing.T, test func(s *admitting)) {
	server := redistest.Start(t)
	clock := weirtest.NewClock(time.Unix(1_700_000_040, 123_456_789))
	r := &weir.Request{Limit: 10, Duration: time.Minute}
	for name, s := range everyStrategy(t, open(t, server.Addr, redislimit.Config{Now: clock.Now}), r) {
		t.Run(name, func(t *testing.T) {
			test(&admitting{Counter: s, t: t, clock: clock, key: "a"})
		})
	}
}

func TestReturnAfterResetGivesNothingBack(t *testing.T) {
	forEachAdmitter(t, func(s *admitting) {
		first := s.admit(4)
		s.reset()
		second := s.admit(10)
		s.giveBack(first, 4)
		s.counts(10, "the first admission was reset")
		s.reset()
		third := s.admit(9)
		s.giveBack(second, 10)
		s.counts(9, "and so was the second")
		s.giveBack(third, 2)
		s.counts(7, "the third was not")
	})
}

// What was reserved before a Reset is no longer counted, so Cancel takes nothing from what was
// admitted since, of one ask and of several that could share a round trip.
// An admission that catches up with a backlog is returned as any other one.
func TestReturnOfAnAdmissionThatCatchesUp(t *testing.T) {
	forEachAdmitter(t, func(s *admitting) {
		admit := func() *weir.Op {
			op := ops.Do(s.t.Context(), s.Counter, weir.Op{Request: *s.request(4), Keep: true,
				Backlog: &weir.Backlog{Source: "x"}})
			require.NoError(s.t, op.Err)
			require.True(s.t, op.Result.Allowed())
			return op
		}
		giveBack := func(op *weir.Op) {
			op.Verb = weir.OpReturn
			s.Do(s.t.Context(), []*weir.Op{op})
			require.NoError(s.t, op.Err)
		}
		before := admit()
		s.reset()
		since := admit()
		giveBack(before)
		s.counts(4, "it was before the reset")
		giveBack(since)
		s.counts(0, "it was after the reset")
	})
}

func TestCancelAfterResetGivesNothingBack(t *testing.T) {
	forEachAdmitter(t, func(s *admitting) {
		if s.About().InFlight {
			return // it is held, and not reserved
		}
		for _, asks := range []int{1, 2} {
			reserve := func() *weir.Reservation {
				var all []weir.Ask
				for i := range asks {
					r := *s.request(4)
					r.Key += strings.Repeat("+", i)
					all = append(all, weir.Ask{Strategy: s.Counter, Request: r})
				}
				v, err := limits.Reserve(s.t.Context(), all...)
				require.NoError(s.t, err)
				require.True(s.t, v.Allowed())
				return v
			}
			before := reserve()
			s.reset()
			since := reserve()
			require.NoError(s.t, before.Cancel(s.t.Context()))
			s.counts(4, "what was reserved before the reset is not given back")
			require.NoError(s.t, since.Cancel(s.t.Context()))
			s.counts(0, "what was reserved after it is")
		}
	})
}

func TestPartialReturns(t *testing.T) {
	forEachAdmitter(t, func(s *admitting) {
		first := s.admit(6)
		second := s.admit(4)
		s.giveBack(first, 2)
		s.counts(8, "a part")
		s.giveBack(first, 0)
		s.counts(8, "nothing")
		s.giveBack(first, 1)
		s.counts(7, "another part")
		s.giveBack(first, 1000)
		s.counts(4, "the rest, and no more than was taken")
		s.giveBack(first, 1)
		s.counts(4, "nothing is left of it")
		s.giveBack(second, 4)
		s.counts(0, "the second is whole")
	})
}

func TestReturnAfterPeriodGivesNothingBack(t *testing.T) {
	forEachAdmitter(t, func(s *admitting) {
		first := s.admit(6)
		s.clock.Advance(5 * time.Minute)
		s.giveBack(first, 6)
		s.admit(5)
		s.giveBack(first, 6)
		s.counts(5, "the period has ended")
	})
}

func TestReturnOfADenialGivesNothingBack(t *testing.T) {
	forEachAdmitter(t, func(s *admitting) {
		s.admit(6)
		for _, cost := range []uint64{5, 1000} {
			res, ret, err := ops.Admit(s.t.Context(), s.Counter, s.request(cost))
			require.NoError(s.t, err)
			require.False(s.t, res.Allowed())
			s.giveBack(ret, 5)
			s.counts(6, "nothing was taken")
		}
		_, ret, err := ops.Admit(s.t.Context(), s.Counter, &weir.Request{Limit: 1, Duration: time.Minute})
		assert.ErrorIs(s.t, err, weir.ErrID)
		assert.Nil(s.t, ret)
	})
}

// The last tokens of an admission flow in last, so those that flowed in already are not given back
// by a second Return either.
func TestPartialReturnsOfATokenBucket(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 0))
	store := open(t, redistest.Start(t).Addr, redislimit.Config{Now: clock.Now})
	s := &admitting{Counter: store.TokenBucket(0), t: t, clock: clock, key: "a"}
	first := s.admit(5) // one comes back in 6 s
	s.admit(5)
	s.clock.Advance(24 * time.Second)
	s.counts(6, "four are back")
	s.giveBack(first, 2)
	s.counts(5, "one was missing")
	s.giveBack(first, 3)
	s.counts(5, "no other was")
}

// A late Return opens no short tier: it gives back to the slice of its admission.
func TestReturnToTheSliceOfTiers(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 0))
	store := open(t, redistest.Start(t).Addr, redislimit.Config{Now: clock.Now})
	tiers := store.Tiers(weir.Tier{Limit: 10, Duration: time.Second},
		weir.Tier{Limit: 12, Duration: 10 * time.Second})
	s := &admitting{Counter: tiers, t: t, clock: clock, key: "a"}
	first := s.admit(2)
	clock.Advance(time.Second)
	s.admit(8)
	s.giveBack(first, 2)
	s.admit(2)
	res := mustRun(t, tiers, s.request(1))
	assert.False(t, res.Allowed(), "ten in one second")
	clock.Advance(time.Second)
	s.admit(2)
	res = mustRun(t, tiers, s.request(1))
	assert.False(t, res.Allowed(), "twelve in ten seconds")
}

// A Return takes from its own hit of a List, and from no other if that is too old to be found.
func TestReturnToTheHitOfAList(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 0))
	store := open(t, redistest.Start(t).Addr, redislimit.Config{Now: clock.Now})
	list := store.List()
	r := &weir.Request{Key: "a", Limit: 5000, Duration: time.Hour, Cost: 2, Meta: "m"}
	_, old, err := ops.Admit(t.Context(), list, r)
	require.NoError(t, err)
	clock.Advance(time.Millisecond)
	_, recent, err := ops.Admit(t.Context(), list, r)
	require.NoError(t, err)
	for range 999 {
		clock.Advance(time.Millisecond)
		mustRun(t, list, r)
	}
	require.NoError(t, errors.Join(old(t.Context(), 2), recent(t.Context(), 1)))
	entries, err := ops.Hits(t.Context(), list, r)
	require.NoError(t, err)
	require.Len(t, entries, 1001)
	for i, e := range entries {
		want := uint64(2)
		if i == 1 {
			want = 1
		}
		require.Equal(t, want, e.Cost, "hit %d", i)
	}
}
