package verify

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir"
)

// hold is a clock that blocks one reading after it was taken.
type hold struct {
	ms           atomic.Int64
	skip         atomic.Int64 // number of readings before the one to block; negative blocks none
	held, resume chan struct{}
}

func newHold() *hold {
	h := &hold{held: make(chan struct{}), resume: make(chan struct{})}
	h.skip.Store(-1)
	return h
}

func (h *hold) now() time.Time {
	t := at(h.ms.Load())
	if h.skip.Load() >= 0 && h.skip.Add(-1) == -1 {
		close(h.held)
		<-h.resume
	}
	return t
}

// release ends the wait for a reading that was not made.
func (h *hold) release() {
	if h.skip.Swap(-1) >= 0 {
		close(h.held)
	}
}

// sweeper is a limiter with Sweep.
type sweeper interface {
	checker
	Sweep() int
}

// stall delays one call after it has read the clock, while other calls fill the window of that
// reading, and five windows pass and are swept. It returns how many were admitted in that window,
// the delayed call included.
func stall(t *testing.T, limit int64, make func(now func() time.Time) sweeper) (admitted int64) {
	const scale = 10
	clock := newHold()
	l := make(clock.now)
	check := func() {
		res, err := l.CheckRate("id", scale, limit)
		if err != nil {
			t.Error(err)
		}
		if res.Allowed() && res.ExpiresAt.UnixMilli() == scale {
			atomic.AddInt64(&admitted, 1)
		}
	}
	clock.skip.Store(0)
	var wg sync.WaitGroup
	wg.Go(check)
	<-clock.held
	for range 5 {
		for range limit + 2 {
			check()
		}
		clock.ms.Add(scale)
		l.Sweep()
	}
	close(clock.resume)
	wg.Wait()
	return admitted
}

func TestStalledGoroutineRevivesNoWindow(t *testing.T) {
	const limit = 3
	got := stall(t, limit, func(now func() time.Time) sweeper {
		return newLimiter(t, weir.Config{Now: now, Timeout: 1, SweepEvery: still})
	})
	assert.EqualValues(t, limit, got)
}

// trusting reads the clock once and creates a bucket for any reading.
type trusting struct {
	now    func() time.Time
	mu     sync.Mutex
	counts map[int64]int64
}

func (l *trusting) CheckRate(_ string, scale, limit int64) (res weir.Result, err error) {
	n := floor(l.now().UnixMilli(), scale)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts[n] < limit {
		l.counts[n]++
		res.State = weir.Allow
	}
	res.ExpiresAt = at((n + 1) * scale)
	return res, nil
}

func (l *trusting) Sweep() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.counts) // all of them have expired when stall sweeps
	return 0
}

func TestStalledGoroutineControlIsRejected(t *testing.T) {
	got := stall(t, 3, func(now func() time.Time) sweeper {
		return &trusting{now: now, counts: map[int64]int64{}}
	})
	assert.Greater(t, got, int64(3))
}
