package fallback

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errTest = errors.New("connection refused")

// defaults are those of fallback.Config.
var defaults = Config{Interval: time.Second, Stall: 50 * time.Millisecond, MinCalls: 5,
	FailureRate:   0.5,
	ProbeInterval: time.Second}

// testBreaker returns a breaker with the defaults at the instant 100 s. It opens after 5 calls if
// half of them failed over at least 50 ms.
func testBreaker(now *time.Time) *breaker {
	*now = time.Unix(100, 0)
	b := newBreaker(defaults, "", *now)
	b.interval = defaults.ProbeInterval
	return b
}

func TestBreakerJudgesShares(t *testing.T) {
	for _, row := range []struct {
		name  string
		ok    int // successful calls, evenly spaced over the first second
		fail  int // failed calls after that, evenly spaced over the duration over
		over  time.Duration
		opens bool
	}{
		{name: "every call for 100 ms, and none before", fail: 20, over: 100 * time.Millisecond,
			opens: true},
		{name: "every call for 100 ms, and ten times as many before", ok: 200, fail: 20,
			over: 100 * time.Millisecond},
		{name: "as many as before", ok: 100, fail: 101, over: 200 * time.Millisecond, opens: true},
		{name: "at one instant, as in a stall", fail: 1000},
		{name: "a stall of 70 ms with 64 callers", ok: 64, fail: 64, over: 20 * time.Millisecond},
		{name: "fewer than MinCalls", fail: 4, over: 900 * time.Millisecond},
		{name: "four in a row, in ten minutes", ok: 100, fail: 4, over: 10 * time.Minute},
		{name: "five in a second", fail: 5, over: 900 * time.Millisecond, opens: true},
		{name: "five in ten seconds", fail: 5, over: 10 * time.Second, opens: true},
		{name: "five in ten minutes", ok: 100, fail: 5, over: 10 * time.Minute, opens: true},
		{name: "an outage under heavy traffic, after a second", ok: 100_000, fail: 1000,
			over: 1200 * time.Millisecond, opens: true},
		{name: "an outage under heavy traffic, at first", ok: 100_000, fail: 200,
			over: 200 * time.Millisecond},
	} {
		t.Run(row.name, func(t *testing.T) {
			var now time.Time
			b := testBreaker(&now)
			for range row.ok {
				require.Nil(t, b.Record(now, nil))
				now = now.Add(time.Second / time.Duration(row.ok))
			}
			opened := false
			for range row.fail {
				opened = opened || b.Record(now, errTest) != nil
				now = now.Add(row.over / time.Duration(row.fail-1))
			}
			assert.Equal(t, row.opens, opened)
		})
	}
}

// A success ends a run of failures, and so does the breaker when it closes. Failures of one stall
// count once.
func TestRunsOfFailuresOpenTheBreaker(t *testing.T) {
	const slow = 300 * time.Millisecond
	cfg, err := Config{Timeout: slow}.withDefaults()
	require.NoError(t, err)
	for _, row := range []struct {
		name  string
		calls string // one after the other: . is a success, x a failure, X ten failures at once
		each  time.Duration
		opens int // the call, from 1; 0: none
	}{
		{"one caller of a frozen server", "xxxxx", slow, 5},
		{"after successes", ".....xxxxx", slow, 10},
		{"a success in between", "xxxx.xxxx.xxxx", time.Minute, 0},
		{"and then none", "xxxx.xxxxx", time.Minute, 10},
		{"one an hour", "xxxxx", time.Hour, 5},
		{"two stalls", "XX", time.Minute, 0},
		{"five stalls", "XXXXX", time.Minute, 5},
		{"more often than Stall", "xxxx", slow / 10, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			now := time.Unix(100, 0)
			b, opened := newBreaker(cfg, "", now), 0
			for i, call := range row.calls {
				now = now.Add(row.each)
				n, failure := 1, errTest
				switch call {
				case '.':
					failure = nil
				case 'X':
					n = 10
				}
				for range n {
					if b.Record(now, failure) != nil && opened == 0 {
						opened = i + 1
					}
				}
			}
			assert.Equal(t, row.opens, opened)
			if opened == 0 {
				return
			}
			b.ProbeDue(now.Add(time.Hour))
			b.Finish(now, now.Add(time.Hour), nil)
			for i := range 4 {
				assert.Nil(t, b.Record(now.Add(time.Duration(i+61)*time.Minute), errTest),
					"failures before the outage no longer count")
			}
		})
	}
}

// Only failures within one Interval open the breaker. Earlier ones do not count toward the minimum
// duration of a stall.
func TestFailuresBeforeTheIntervalDoNotCount(t *testing.T) {
	var now time.Time
	b := newBreaker(Config{Interval: 10 * time.Second, Stall: 200 * time.Millisecond, MinCalls: 4,
		FailureRate:   0.5,
		ProbeInterval: time.Second}, "", now)
	for _, ms := range []int{0, 9900, 10_010, 10_011, 10_012, 10_013} {
		now = time.Time{}.Add(time.Duration(ms) * time.Millisecond)
		assert.Nil(t, b.Record(now, errTest), "%d ms", ms)
	}
	now = time.Time{}.Add(10_100 * time.Millisecond)
	assert.NotNil(t, b.Record(now, errTest), "200 ms after the first failure that counts")
}

func TestBreakerStates(t *testing.T) {
	var now time.Time
	b := testBreaker(&now)
	call := func() string {
		return fmt.Sprint(b.Closed(), b.ProbeDue(now) != nil)
	}
	assert.Equal(t, "true false", call())
	for range 5 {
		b.Record(now, errTest)
	}
	now = now.Add(50 * time.Millisecond)
	opened := now
	assert.Equal(t, &Change{From: Closed, To: Open, At: now, Cause: errTest}, b.Record(now, errTest))
	assert.Equal(t, opened.Add(time.Second), b.Next(now))
	now = opened.Add(time.Second - 1)
	assert.Equal(t, "false false", call())
	now = opened.Add(time.Second)
	assert.Equal(t, "false true", call(), "the caller starts a probe and is decided locally")
	assert.Equal(t, "false false", call(), "one probe at a time")
	started := now
	now = now.Add(800 * time.Millisecond)
	assert.Equal(t, Open, b.Finish(started, now, errTest).To)
	now = started.Add(time.Second)
	assert.Equal(t, "false true", call(), "the interval is from start to start")
	assert.Nil(t, b.Record(now, errTest), "calls in flight change nothing")
	assert.Equal(t, Closed, b.Finish(now, now, nil).To)
	assert.Equal(t, "true false", call())
	for range 4 {
		assert.Nil(t, b.Record(now.Add(time.Second/2), errTest),
			"failures before the outage no longer count")
	}
}

// Probes that do not return make further probes rarer; when they return, the normal interval
// applies again.
func TestBreakerSlowsDownForStuckProbes(t *testing.T) {
	var now time.Time
	b := testBreaker(&now)
	b.Probes.Add(1)
	assert.Equal(t, time.Second, b.pause(), "one stuck probe does not slow the breaker")
	b.Probes.Add(31)
	assert.Equal(t, 5*time.Second, b.pause())
	b.Probes.Add(-32)
	assert.Equal(t, time.Second, b.pause())
}

func TestTheLongestProbeIntervalNeverProbes(t *testing.T) {
	now := time.Now()
	b := newBreaker(Config{Interval: time.Second, MinCalls: 1, Stall: -1, FailureRate: 0.5,
		ProbeInterval: math.MaxInt64}, "", now)
	require.NotNil(t, b.Record(now, errTest), "it opens")
	assert.Nil(t, b.ProbeDue(now.Add(200*365*24*time.Hour)))
	b.Probes.Add(100)
	assert.EqualValues(t, int64(math.MaxInt64), b.pause())
}

func TestEpochIsRaisedOnceAnInterval(t *testing.T) {
	var now time.Time
	b := testBreaker(&now)
	for range 1000 { // 10 s with one failure in ten
		for range 9 {
			b.Record(now, nil)
		}
		b.Record(now, errTest)
		now = now.Add(10 * time.Millisecond)
	}
	assert.InDelta(t, 10, b.epoch.Load(), 1)
	assert.Equal(t, Closed, b.state)
}

func TestBreakersAreBounded(t *testing.T) {
	s := testServer(func(s *server) { s.cfg.Partition = func(key string) string { return key } })
	for i := range 2 * maxParts {
		part := fmt.Sprint(i)
		require.Same(t, s.breaker(part), s.breaker(part))
		assert.Equal(t, i < maxParts, s.breaker(part) != s.breaker(""))
	}
	assert.EqualValues(t, maxParts, s.parts.Load())
}
