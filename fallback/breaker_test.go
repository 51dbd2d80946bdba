package fallback

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/slow"
)

var errTest = errors.New("connection refused")

func newBreaker(failures int, rate float64) *breaker {
	return &breaker{failures: failures, rate: rate, interval: time.Second, start: time.Unix(0, 0), since: time.Unix(0, 0)}
}

func TestBreakerOpensAfterFailuresInSuccession(t *testing.T) {
	b, now := newBreaker(3, 1), time.Unix(100, 0)
	for _, ok := range []bool{false, false, true, false, false} {
		k, may, _ := b.enter(now)
		require.True(t, may)
		if ok {
			b.succeed(k, now)
		} else {
			assert.Nil(t, b.fail(k, now, errTest, 0))
		}
	}
	k, _, _ := b.enter(now)
	change := b.fail(k, now, errTest, 0)
	require.NotNil(t, change, "the third in succession")
	assert.Equal(t, Change{From: Closed, To: Open, At: now, Cause: errTest}, *change)
	_, may, _ := b.enter(now.Add(999 * time.Millisecond))
	assert.False(t, may)
	k, may, change = b.enter(now.Add(time.Second))
	assert.True(t, may && k.probe)
	assert.Equal(t, HalfOpen, change.To)
	_, may, _ = b.enter(now.Add(time.Hour))
	assert.False(t, may, "one probe at a time")
}

func TestBreakerOpensAtARate(t *testing.T) {
	for _, row := range []struct {
		name       string
		rate       float64
		failed, of int
		apart      time.Duration
		opens      bool
	}{
		{name: "half of twenty", rate: 0.5, failed: 10, of: 20, opens: true},
		{name: "less than half", rate: 0.5, failed: 9, of: 20},
		{name: "too few to tell", rate: 0.5, failed: 9, of: 18},
		{name: "half of twenty, in both halves of the window", rate: 0.5, failed: 10, of: 20, apart: 300 * time.Millisecond, opens: true},
		{name: "half of twenty, over a longer time than the window", rate: 0.5, failed: 10, of: 20, apart: time.Second},
		{name: "all rates pass", rate: 1, failed: 19, of: 38},
	} {
		b, now := newBreaker(1000, row.rate), time.Unix(100, 0)
		opened := false
		for i := range row.of {
			k, may, _ := b.enter(now)
			require.True(t, may, row.name)
			if i%2 == 0 || i/2 >= row.failed {
				b.succeed(k, now)
			} else {
				opened = b.fail(k, now, errTest, 0) != nil
			}
			now = now.Add(row.apart)
		}
		assert.Equal(t, row.opens, opened, row.name)
	}
}

// A verdict on what happened before the state changed changes nothing.
func TestBreakerIgnoresLateVerdicts(t *testing.T) {
	b, now := newBreaker(1, 1), time.Unix(100, 0)
	slow, _, _ := b.enter(now)
	k, _, _ := b.enter(now)
	b.fail(k, now, errTest, 0)
	assert.Nil(t, b.succeed(slow, now))
	assert.Equal(t, Open, b.state)
	now = now.Add(time.Second)
	lost, _, _ := b.enter(now)
	b.fail(lost, now, errTest, 0)
	now = now.Add(time.Second)
	probe, may, _ := b.enter(now)
	require.True(t, may)
	assert.Nil(t, b.succeed(lost, now), "the answer of a probe that was given up")
	b.succeed(probe, now)
	assert.Equal(t, Closed, b.state)
	assert.Nil(t, b.fail(slow, now, errTest, 0))
	assert.Equal(t, Closed, b.state)
}

// reference is the breaker as one would draw it, without a rate: consecutive failures, one probe, verdicts by term.
type reference struct {
	state    State
	row      int
	due      time.Time
	term     int
	failures int
}

func (m *reference) enter(now time.Time) (term int, probe, ok bool) {
	switch {
	case m.state == Closed:
		return m.term, false, true
	case m.state == Open && !now.Before(m.due):
		m.state, m.term = HalfOpen, m.term+1
		return m.term, true, true
	}
	return 0, false, false
}

func (m *reference) verdict(term int, now time.Time, how int, jitter float64) {
	if term != m.term {
		return
	}
	switch {
	case how == 0 && m.state == HalfOpen:
		m.state, m.row, m.term = Closed, 0, m.term+1
	case how == 0:
		m.row = 0
	case how == 1:
		m.row++
		if m.state == HalfOpen || m.row >= m.failures {
			m.state, m.row, m.term = Open, 0, m.term+1
			m.due = now.Add(time.Duration(float64(time.Second) * (1 + 0.1*jitter)))
		}
	case how == 2 && m.state == HalfOpen:
		m.state, m.term, m.due = Open, m.term+1, now
	}
}

// pending is a call that has entered and has no verdict yet.
type pending struct {
	ticket ticket
	term   int
}

// machine plays random calls on a breaker and on the reference, and returns what they differ in. Afterwards primary is
// healthy, and the breaker must close within two intervals.
func machine(seed uint64, mutate func(*breaker)) string {
	rng := rand.New(rand.NewPCG(seed, 37))
	b, m, now := newBreaker(1+rng.IntN(4), 1), &reference{}, time.Unix(1000, 0)
	m.failures = b.failures
	var open []pending
	for range 20 + rng.IntN(40) {
		now = now.Add(time.Duration(rng.Int64N(int64(400 * time.Millisecond))))
		if len(open) == 0 || rng.IntN(2) == 0 {
			k, ok, _ := b.enter(now)
			term, probe, want := m.enter(now)
			if ok != want || k.probe != probe {
				return "who may enter"
			}
			if ok && rng.IntN(10) > 0 || k.probe { // some calls are never heard of again; a probe's time is up at last
				open = append(open, pending{k, term})
			}
		} else {
			i := rng.IntN(len(open))
			judge(b, m, open[i], now, rng.IntN(3), rng.Float64())
			open = append(open[:i], open[i+1:]...)
		}
		if mutate != nil {
			mutate(b)
		}
		if b.state != m.state {
			return "the state"
		}
	}
	for _, p := range open {
		judge(b, m, p, now, 1, rng.Float64())
	}
	healthy := now
	for b.state != Closed {
		if now = now.Add(50 * time.Millisecond); now.Sub(healthy) > 2*time.Second {
			return "it does not close"
		}
		if k, ok, _ := b.enter(now); ok {
			b.succeed(k, now)
		}
	}
	return ""
}

func judge(b *breaker, m *reference, p pending, now time.Time, how int, jitter float64) {
	switch how {
	case 0:
		b.succeed(p.ticket, now)
	case 1:
		b.fail(p.ticket, now, errTest, jitter)
	case 2:
		b.forgo(p.ticket, now)
	}
	m.verdict(p.term, now, how, jitter)
}

func TestBreakerEqualsItsModel(t *testing.T) {
	runs := slow.N(5_000, 100_000, 1_000_000)
	for seed := range uint64(runs) {
		if what := machine(seed, nil); what != "" {
			t.Fatalf("seed %d: %s", seed, what)
		}
	}
	t.Logf("%d runs, 0 differences, always closed within 2 intervals", runs)
}

// The negative control: breakers with the usual defects are told apart.
func TestBreakerModelRejectsBrokenBreakers(t *testing.T) {
	for name, mutate := range map[string]func(*breaker){
		"a probe that is never released": func(b *breaker) {
			if b.state == HalfOpen {
				b.term++
			}
		},
		"two probes at a time": func(b *breaker) {
			if b.state == HalfOpen {
				b.gate.Store(1)
			}
		},
		"late verdicts count": func(b *breaker) { b.term = 0 },
		"it never opens":      func(b *breaker) { b.row = 0 },
	} {
		caught := 0
		for seed := range uint64(200) {
			if machine(seed, mutate) != "" {
				caught++
			}
		}
		assert.Greater(t, caught, 50, name)
	}
}
