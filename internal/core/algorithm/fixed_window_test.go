package algorithm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// fixedCaller has a state for each window.
type fixedCaller struct{ FixedWindow }

func (a *fixedCaller) Decide(s State, p Params, now int64) (Verdict, State) {
	if end := a.Ends(p.Scale, now); s == None || a.Expires(s, p.Scale) != end {
		fresh := State{Still1: end - p.Scale*msec}
		v, next := a.FixedWindow.Decide(fresh, p, now)
		if !v.Allowed {
			next = s
		}
		return v, next
	}
	return a.FixedWindow.Decide(s, p, now)
}

// The counters of raterlimiter (Erlang, 2012): check_rate(Id, Scale, Limit) counts in window number
// Now div Scale, so check_rate(Client, 30000, 5) has the windows [0, 30000), [30000, 60000), …
func TestFixedWindowCountsAsRaterlimiter(t *testing.T) {
	a, s := fixedCaller{}, None
	const ms = time.Millisecond
	play(t, Params{Scale: 30_000, Limit: 5}, []step{
		{"the first of window 0", 29_000 * ms, 1, admitted(1, 30*time.Second)},
		{"three more", 29_001 * ms, 3, admitted(4, 30*time.Second)},
		{"two do not fit", 29_002 * ms, 2, denied(4, 30*time.Second)},
		{"a denial took nothing", 29_002 * ms, 1, admitted(5, 30*time.Second)},
		{"the limit is reached", 29_999 * ms, 1, denied(5, 30*time.Second)},
		{"the last nanosecond", 30*time.Second - 1, 1, denied(5, 30*time.Second)},
		{"window 1 begins anew", 30_000 * ms, 5, admitted(5, 60*time.Second)},
		{"six never pass", 30_000 * ms, 6, deniedForever(5)},
		{"window 2", 60_000 * ms, 1, admitted(1, 90*time.Second)},
		{"window 5, two windows without a hit later", 150_000 * ms, 1, admitted(1, 180*time.Second)},
		{"window -1 ends at the epoch", -1, 2, admitted(2, 0)},
		{"window -2 ends one scale before", -30_001 * ms, 2, admitted(2, -30*time.Second)},
	}, func(p Params, now int64) (v Verdict) {
		v, s = a.Decide(s, p, now)
		return v
	})
}

func TestFixedWindowInstantsAreExact(t *testing.T) { requireExactStates(t, &fixedCaller{}, fewMs) }

func TestFixedWindowChanges(t *testing.T) {
	const end = 60 * second
	a, p := &FixedWindow{}, Params{Scale: 30_000, Limit: 10, Cost: 3}
	s := State{N: 5, Still1: 30 * second, Still2: 7}
	with := func(n int64) State { return State{n, s.Still1, s.Still2} }
	for _, c := range []struct {
		name       string
		have, want State
	}{
		{"an admission counts", a.Admit(s, p, end-1), with(8)},
		{"an admission over the limit counts", a.Admit(with(10), p, end-1), with(13)},
		{"counts have a most", a.Admit(with(MaxCount-1), p, end-1), with(MaxCount)},
		{"a refund in the window", a.Refund(s, p, end-1, end), with(2)},
		{"a refund of another window does nothing", a.Refund(s, p, end-1, end+30*second), s},
		{"a refund in another window does nothing", a.Refund(s, p, end, end), s},
		{"a refund leaves no less than nothing", a.Refund(with(2), p, end-1, end), with(0)},
		{"a total that is less does not lower the count", a.Raise(s, p, end-1, end, 4), s},
		{"a total that is more raises it", a.Raise(s, p, end-1, end, 6), with(6)},
		{"a total has a most", a.Raise(s, p, end-1, end, MaxCount+1), with(MaxCount)},
		{"merging raises the count", a.Merge(s, State{N: 6}, 30_000, end-1, 0), with(6)},
		{"merging does not lower it", a.Merge(s, State{N: 4}, 30_000, end-1, 0), s},
	} {
		assert.Equal(t, c.want, c.have, c.name)
	}
	assert.EqualValues(t, end, a.Expires(s, 30_000))
	assert.EqualValues(t, End, a.Expires(State{Still1: End - 1}, 30_000), "ends saturate")
	other := &FixedWindow{End: func(scaleMs, now int64) int64 { return now + scaleMs }}
	v, _ := other.Decide(s, p, 7)
	assert.Equal(t, Verdict{Allowed: true, Total: 8, At: 30_007}, v, "windows of another kind")
}
