package algorithm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The single counter of the Redis documentation ("INCR", pattern: rate limiter 2): the first INCR
// of a key sets EXPIRE, here of 1 s, and 10 requests pass until the key has expired.
func TestCounterCountsAsIncrAndExpire(t *testing.T) {
	a, s := &Counter{}, None
	const ms = time.Millisecond
	play(t, Params{Scale: 1000, Limit: 10}, []step{
		{"a cost over the limit begins no period", 200 * ms, 11, deniedForever(0)},
		{"the first hit begins a period", 300 * ms, 1, admitted(1, 1300*ms)},
		{"nine more, later, expire with it", 900 * ms, 9, admitted(10, 1300*ms)},
		{"the eleventh is denied until then", 1000 * ms, 1, denied(10, 1300*ms)},
		{"also 1 ns before", 1300*ms - 1, 1, denied(10, 1300*ms)},
		{"a cost over the limit begins no period when one is over", 2000 * ms, 11, deniedForever(0)},
		{"the next hit begins the next", 2500 * ms, 10, admitted(10, 3500*ms)},
		{"a reading before the start is in the period", 2000 * ms, 1, denied(10, 3500*ms)},
		{"the end of one may be the start of the next", 3500 * ms, 2, admitted(2, 4500*ms)},
	}, func(p Params, now int64) (v Verdict) {
		v, s = a.Decide(s, p, now)
		return v
	})
}

func TestCounterInstantsAreExact(t *testing.T) { requireExactStates(t, &Counter{}, fewMs) }

func TestCounterChanges(t *testing.T) {
	const start, end, late = 300 * msec, 1300 * msec, 1300 * msec
	a, p := &Counter{}, Params{Scale: 1000, Limit: 10, Cost: 3}
	s := State{5, start, 0}
	for _, c := range []struct {
		name       string
		have, want State
	}{
		{"an admission counts", a.Admit(s, p, end-1), State{8, start, 0}},
		{"an admission after the end begins a period", a.Admit(s, p, end), State{3, end, 0}},
		{"the first admission begins a period", a.Admit(None, p, start), State{3, start, 0}},
		{"an admission over the limit counts", a.Admit(State{10, start, 0}, p, start),
			State{13, start, 0}},
		{"counts have a most", a.Admit(State{MaxCount - 1, start, 0}, p, start),
			State{MaxCount, start, 0}},
		{"a refund in the period", a.Refund(s, p, start, end), State{2, start, 0}},
		{"a refund of an earlier period does nothing", a.Refund(s, p, start, end-1), s},
		{"a refund of a later period does nothing", a.Refund(s, p, start, end+1), s},
		{"a refund leaves no less than nothing", a.Refund(State{2, start, 0}, p, start, end),
			State{0, start, 0}},
		{"a total that is less does not lower the count", a.Raise(s, p, start, end, 4), s},
		{"a total that is more raises it", a.Raise(s, p, end-1, end+1, 6), State{6, start, 0}},
		{"a total has a most", a.Raise(s, p, end-1, end, MaxCount+1), State{MaxCount, start, 0}},
		{"a total after the end begins one", a.Raise(s, p, late, late+700*msec, 1),
			State{1, late - 300*msec, 0}},
		{"which begins now at the latest", a.Raise(s, p, late, late+1001*msec, 1), State{1, late, 0}},
		{"a total of nothing begins no period", a.Raise(s, p, late, late+700*msec, 0), s},
		{"merging raises the count", a.Merge(s, State{6, start + msec, 0}, 1000, end-1, 0),
			State{6, start, 0}},
		{"merging does not lower it", a.Merge(s, State{4, start + msec, 0}, 1000, end-1, 0), s},
		{"a period that is over raises nothing", a.Merge(s, State{9, start - 1, 0}, 1000, end-1, 0), s},
		{"a period goes on", a.Merge(s, State{1, start + 1, Never}, 1000, end, 0),
			State{1, start + 1, 0}},
		{"also without a count", a.Merge(s, State{0, start + 1, 0}, 1000, end, 0),
			State{0, start + 1, 0}},
	} {
		assert.Equal(t, c.want, c.have, c.name)
	}
	assert.EqualValues(t, end, a.Expires(s, 1000))
	assert.EqualValues(t, End, a.Expires(State{Still1: End - 1}, 1000), "ends saturate")
	assert.Equal(t, Never+second, a.Expires(None, 1000))
}

func TestCounterAtTheEndsOfTime(t *testing.T) {
	a, p := &Counter{}, Params{Scale: 1000, Limit: 2, Cost: 2}
	v, s := a.Decide(None, p, End-1)
	assert.Equal(t, Verdict{Allowed: true, Total: 2, At: End}, v)
	v, _ = a.Decide(s, p, End-1)
	assert.Equal(t, Verdict{Total: 2, At: End}, v)
	v, _ = a.Decide(s, p, 0)
	assert.Equal(t, Verdict{Total: 2, At: End}, v, "a reading before the start is in the period")
	v, s = a.Decide(None, p, Never+second)
	assert.Equal(t, Verdict{Allowed: true, Total: 2, At: Never + 2*second}, v)
	v, _ = a.Decide(s, p, Never)
	assert.Equal(t, Verdict{Total: 2, At: Never + 2*second}, v)
	s = a.Raise(None, Params{Scale: 1000}, End-1, Never+1, 2)
	assert.Equal(t, State{2, Never, 0}, s, "the start saturates")
}
