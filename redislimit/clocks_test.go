package redislimit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

// apart is a Store on a server whose clock differs from that of this process, and one that is given
// the server's clock, so that the two decide alike.
type apart struct {
	server      *weirtest.Clock
	ahead       time.Duration // of the server's clock
	store, same *redislimit.Store
}

var startOfApart = time.Unix(1_700_000_040, 123_456_000)

func clocksApart(t testing.TB, ahead time.Duration) *apart {
	addr := redistest.Start(t).Addr
	a := &apart{server: weirtest.NewClock(startOfApart), ahead: ahead}
	client := dial(t, generousOptions(addr))
	client.AddHook(&redistest.Clock{Now: a.server.Now})
	var err error
	a.store, err = redislimit.New(client, redislimit.Config{Prefix: "apart:", Timeout: generous})
	require.NoError(t, err)
	redislimit.SetHere(a.store, a.here)
	a.same = open(t, addr, redislimit.Config{Prefix: "same:", Now: a.server.Now})
	return a
}

func (a *apart) here() time.Time { return a.server.Now().Add(-a.ahead) }

// set sets the clock of the server, while that of this process goes on.
func (a *apart) set(by time.Duration) {
	a.server.Advance(by)
	a.ahead += by
}

// every returns each strategy of both stores, by name.
func (a *apart) every(t testing.TB, like *weir.Request) map[string][2]weir.Counter {
	all, same := map[string][2]weir.Counter{}, everyStrategy(t, a.same, like)
	for name, s := range everyStrategy(t, a.store, like) {
		all[name] = [2]weir.Counter{s, same[name]}
	}
	return all
}

var differences = []time.Duration{0, 2 * time.Millisecond, -3 * time.Second, 3 * time.Second,
	-10 * time.Minute, 10 * time.Minute, -50 * time.Minute, -3 * time.Hour, 3 * time.Hour}

// Where the clocks of this process and of the server differ, waits are those of one clock, and
// Refund, Return and Seed reach the counts that they mean.
func TestWaitsWhereTheClocksDiffer(t *testing.T) {
	for _, ahead := range differences {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			a := clocksApart(t, ahead)
			r := &weir.Request{Key: "a", Limit: 5, Duration: time.Minute, Cost: 2}
			for name, s := range a.every(t, r) {
				if name == "Calendar" && ahead.Abs() > time.Hour {
					continue // which fails; see TestCalendarFailsIfTheClocksDifferByMoreThanAWindow
				}
				both(t, a, name, s, func(s weir.Counter) *weir.Result {
					first := mustRun(t, s, r)
					a.server.Advance(time.Second)
					mustRun(t, s, r)
					require.NoError(t, ops.Refund(t.Context(), s, r, first))
					a.server.Advance(time.Second)
					_, giveBack, err := ops.Admit(t.Context(), s, r)
					require.NoError(t, err)
					require.NoError(t, giveBack(t.Context(), 1))
					a.server.Advance(-2 * time.Second)
					return mustPeek(t, s, r)
				})
				denied := both(t, a, name, s, func(s weir.Counter) *weir.Result {
					for range 5 {
						if res := mustRun(t, s, r); !res.Allowed() {
							return res
						}
					}
					return nil
				})
				require.False(t, denied.Allowed(), name)
				wait := denied.RetryAfter(a.here())
				assert.Positive(t, wait, name)
				a.server.Advance(wait - time.Millisecond)
				res := both(t, a, name, s, func(s weir.Counter) *weir.Result { return mustRun(t, s, r) })
				assert.False(t, res.Allowed(), "%s: 1 ms early", name)
				a.server.Advance(time.Millisecond)
				res = both(t, a, name, s, func(s weir.Counter) *weir.Result { return mustRun(t, s, r) })
				assert.True(t, res.Allowed(), "%s: when its time has come", name)

				seeded := &weir.Request{Key: "seeded", Limit: 5, Duration: time.Minute}
				require.NoError(t, ops.Seed(t.Context(), s[0], seeded, &weir.Result{State: weir.Allow,
					TotalRequests: 5, ExpiresAt: a.here().Add(30 * time.Second)}))
				assert.False(t, mustPeek(t, s[0], seeded).Allowed(), "%s: it is full", name)
				late := &weir.Request{Key: "late", Limit: 5, Duration: time.Minute}
				require.NoError(t, ops.Seed(t.Context(), s[0], late, &weir.Result{State: weir.Allow,
					TotalRequests: 5, ExpiresAt: a.here()}))
				assert.True(t, mustPeek(t, s[0], late).Allowed(), "%s: nothing counts any more", name)
			}
		})
	}
}

// both has the two strategies of a name do the same, and returns the Result of the first. The other
// one's has the same wait.
func both(
	t *testing.T, a *apart, name string, s [2]weir.Counter, do func(weir.Counter) *weir.Result,
) *weir.Result {
	t.Helper()
	got, want := do(s[0]), do(s[1])
	assert.Equal(t, [2]any{want.State, want.TotalRequests}, [2]any{got.State, got.TotalRequests}, name)
	if !want.ExpiresAt.IsZero() {
		waits, wanted := got.ExpiresAt.Sub(a.here()), want.ExpiresAt.Sub(a.server.Now())
		assert.InDelta(t, wanted, waits, float64(time.Millisecond), "%s: %v, want %v", name, waits, wanted)
	}
	return got
}

// The same with the real clock of this process, of which the Results are.
func TestRetryAfterWhereTheServersClockIsOff(t *testing.T) {
	const d = 24 * time.Hour
	for _, ahead := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		client := dial(t, generousOptions(redistest.Start(t).Addr))
		client.AddHook(&redistest.Clock{Now: skewed(ahead)})
		store, err := redislimit.New(client, redislimit.Config{Timeout: generous})
		require.NoError(t, err)
		r := &weir.Request{Key: "a", Limit: 1, Duration: d}
		all := everyStrategy(t, store, r)
		for _, name := range []string{"SlidingLog", "SortedSet", "TokenBucket", "Counter", "List", "InFlight"} {
			s := all[name]
			taken := mustRun(t, s, r)
			for i, res := range []*weir.Result{mustRun(t, s, r), mustPeek(t, s, r)} {
				wait := res.RetryAfter(time.Now())
				assert.InDelta(t, d, wait, float64(time.Minute), "%s, %v ahead, %d: %v", name, ahead, i, wait)
			}
			require.NoError(t, ops.Refund(t.Context(), s, r, taken))
			assert.True(t, mustPeek(t, s, r).Allowed(), "%s, %v ahead: refunded", name, ahead)
		}
	}
}

// A server's clock that is set is known from the next reply on, and a seed reaches the count even
// before.
func TestTheServersClockIsSet(t *testing.T) {
	r := &weir.Request{Key: "a", Limit: 5, Duration: time.Hour}
	for _, by := range []time.Duration{-3 * time.Hour, -time.Second, time.Second, 3 * time.Hour} {
		a := clocksApart(t, time.Minute)
		for name, s := range a.every(t, r) {
			if name == "Calendar" && by.Abs() > time.Hour {
				continue
			}
			mustPeek(t, s[0], r)
			a.set(by)
			counted := &weir.Result{State: weir.Allow, TotalRequests: 5, ExpiresAt: a.here().Add(time.Minute)}
			require.NoError(t, ops.Seed(t.Context(), s[0], r, counted))
			assert.False(t, mustPeek(t, s[0], r).Allowed(), "%s by %v: it is full", name, by)
			got := redislimit.ServerNow(a.store, a.here())
			assert.InDelta(t, 0, got.Sub(a.server.Now()), float64(time.Millisecond), "%s by %v", name, by)
			a.set(-by)
			mustPeek(t, s[0], r)
		}
	}
}

// An instant stays as it was while replies come sooner or later.
func TestAnInstantIsTheSameInEveryResult(t *testing.T) {
	a := clocksApart(t, 3*time.Hour)
	late := time.Duration(0)
	calls := 0
	redislimit.SetHere(a.store, func() time.Time {
		if calls++; calls%2 == 1 { // the reply
			return a.here().Add(late)
		}
		return a.here()
	})
	s, r := a.store.FixedWindow(), &weir.Request{Key: "a", Limit: 100, Duration: time.Minute}
	var first time.Time
	for i := range 50 {
		late = time.Duration(i%10) * 100 * time.Microsecond
		res := mustRun(t, s, r)
		if i == 0 {
			first = res.ExpiresAt
		}
		assert.True(t, res.ExpiresAt.Equal(first), "%v, first %v", res.ExpiresAt, first)
		require.NoError(t, ops.Refund(t.Context(), s, r, res))
	}
	assert.Zero(t, mustRun(t, s, r).TotalRequests-1)
}

// With clocks that differ by up to three hours, and that of the server set now and then, each
// strategy decides as on the server's clock, and admits no more than its limit in a period between
// two settings; waits are right.
func TestClocksThatDifferAndAreSet(t *testing.T) {
	const limit, d = 10, time.Minute
	steps := slow.N(300, 10_000, 30_000) // for each of ten strategies
	a := clocksApart(t, 0)
	like := &weir.Request{Limit: limit, Duration: d}
	for name, s := range a.every(t, like) {
		rng := rand.New(rand.NewPCG(7, uint64(len(name))))
		a.set(-a.ahead)
		m := apartTrace{t: t, a: a, name: name, s: s, rng: rng}
		for n := range steps {
			m.step(n, limit, d)
			if t.Failed() {
				return
			}
		}
		assert.Positive(t, m.denied, name)
		assert.Positive(t, m.refunds, name)
	}
}

// apartTrace is a random history of one strategy on both stores.
type apartTrace struct {
	t    *testing.T
	a    *apart
	name string
	s    [2]weir.Counter
	rng  *rand.Rand

	key             int
	last            [2]*weir.Result // of an admission of 1 since the clock was set, or nil
	at              []time.Time     // of the admissions since then, by the server's clock
	set             bool            // the clock was, since the key is used: it may count of later
	denied, refunds int
}

// fresh begins a period in which the clock is not set, or another key.
func (m *apartTrace) fresh() { m.last, m.at = [2]*weir.Result{}, nil }

func (m *apartTrace) step(n int, limit uint64, d time.Duration) {
	t, a := m.t, m.a
	r := &weir.Request{Key: fmt.Sprint("k", m.key), Limit: limit, Duration: d}
	most := 3 * time.Hour
	if m.name == "Calendar" {
		most = 50 * time.Minute // beyond an hour it fails
	}
	switch k := m.rng.IntN(40); {
	case k == 0:
		ahead := time.Duration(m.rng.Int64N(int64(2*most))) - most
		a.set(ahead.Truncate(time.Microsecond) - a.ahead)
		m.fresh()
		m.set = true
		m.run(r) // whose answer has the clock
	case k == 1:
		m.key++
		m.fresh()
		m.set = false
	case k < 6:
		if m.last[0] != nil {
			for i, s := range m.s {
				require.NoError(t, ops.Refund(t.Context(), s, r, m.last[i]))
			}
			m.last, m.refunds, m.at = [2]*weir.Result{}, m.refunds+1, m.at[:len(m.at)-1]
		}
	case k < 9:
		total := m.rng.Uint64N(limit + 1)
		left := time.Duration(m.rng.Int64N(int64(d))) - d/10
		for i, s := range m.s {
			now := []time.Time{a.here(), a.server.Now()}[i]
			require.NoError(t, ops.Seed(t.Context(), s, r, &weir.Result{State: weir.Allow, TotalRequests: total,
				ExpiresAt: now.Add(left.Truncate(time.Microsecond))}))
		}
	case k < 20:
		a.server.Advance(time.Duration(m.rng.Int64N(int64(d) / 5)).Truncate(time.Microsecond))
	default:
		m.run(r)
	}
}

// within returns how many were admitted, and not taken back, in the last d.
func (m *apartTrace) within(d time.Duration) (n uint64) {
	for _, at := range m.at {
		if m.a.server.Now().Sub(at) < d {
			n++
		}
	}
	return n
}

// run has both decide, and takes a denial by its wait.
func (m *apartTrace) run(r *weir.Request) {
	t, a := m.t, m.a
	var got [2]*weir.Result
	res := both(t, a, m.name, m.s, func(s weir.Counter) *weir.Result {
		res := mustRun(t, s, r)
		if s == m.s[0] {
			got[0] = res
		} else {
			got[1] = res
		}
		return res
	})
	if res.Allowed() {
		m.last = got
		m.at = append(m.at, a.server.Now())
		assert.LessOrEqual(t, m.within(r.Duration), 2*r.Limit, m.name)
		return
	}
	m.denied++
	if m.set || m.rng.IntN(4) > 0 {
		return
	}
	wait := res.RetryAfter(a.here())
	a.server.Advance(wait - time.Millisecond)
	early := both(t, a, m.name, m.s, func(s weir.Counter) *weir.Result { return mustPeek(t, s, r) })
	assert.False(t, early.Allowed(), "%s: 1 ms early", m.name)
	a.server.Advance(time.Millisecond)
	there := both(t, a, m.name, m.s, func(s weir.Counter) *weir.Result { return mustPeek(t, s, r) })
	assert.True(t, there.Allowed(), "%s after %v", m.name, wait)
}
