package weir

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/engine"
	"github.com/weirgo/weir/internal/core/states"
	"github.com/weirgo/weir/internal/core/turns"
	"github.com/weirgo/weir/internal/core/windows"
)

// Waiting runs f in a synctest bubble, with a new limiter. No queue may be left afterwards.
func Waiting(t *testing.T, f func(t *testing.T, l *Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, MustNew(t, Config{})) })
	assert.Zero(t, turns.Queues(), "a queue without waiters is removed")
}

// The functions that begin with Must end the test at an error.

// MustNew returns a limiter that is closed with the test.
func MustNew(t testing.TB, cfg Config) *Limiter {
	t.Helper()
	l, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// MustTiers is Limiter.Tiers.
func MustTiers(t testing.TB, l *Limiter, tiers ...Tier) *Tiers {
	t.Helper()
	s := l.Tiers(tiers...)
	return s
}

// MustRun is Strategy.Run.
func MustRun(t testing.TB, s Strategy, r *Request) *Result {
	t.Helper()
	res, err := s.Run(t.Context(), r)
	require.NoError(t, err)
	return res
}

// MustPeek is Strategy.Peek.
func MustPeek(t testing.TB, s Strategy, r *Request) *Result {
	t.Helper()
	res, err := ops.Peek(t.Context(), s, r)
	require.NoError(t, err)
	return res
}

// Counted returns the count of s for r.
func Counted(t testing.TB, s Strategy, r *Request) uint64 {
	t.Helper()
	res := MustPeek(t, s, r)
	if res.Allowed() {
		return res.TotalRequests - max(1, r.Cost)
	}
	return res.TotalRequests
}

// MustTake is Limit.Take.
func MustTake(t testing.TB, m *Limit, key string, cost uint64) Outcome {
	t.Helper()
	out, err := m.Take(t.Context(), key, cost)
	require.NoError(t, err)
	return out
}

// MustCheck is Limiter.CheckRate.
func MustCheck(t testing.TB, l *Limiter, id string, scaleMs, limit int64) Result {
	t.Helper()
	res, err := l.CheckRate(id, scaleMs, limit)
	require.NoError(t, err)
	return res
}

// MustInspect is Limiter.Inspect.
func MustInspect(t testing.TB, l *Limiter, id string, scaleMs int64) Bucket {
	t.Helper()
	b, err := l.Inspect(id, scaleMs)
	require.NoError(t, err)
	return b
}

// Manual returns a limiter on a clock that the test moves.
func Manual(t testing.TB) (*Limiter, *time.Time) {
	now := time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)
	return MustNew(t, Config{SweepEvery: time.Hour, Now: func() time.Time { return now }}), &now
}

// KeyedFor returns what counts for a Limit with a name, by a strategy of another package.
func KeyedFor(name string, s Strategy, n uint64, d time.Duration) Counter {
	m := &Limit{strategy: s, name: name, n: n, d: d}
	return newKeyed(m, CounterOf(s))
}

// RunTier returns the Result of a Run of s, and the tier that it is of.
func RunTier(ctx context.Context, s *Tiers, r *Request) (*Result, Tier, error) {
	p, err := s.parse(r)
	if err != nil {
		return nil, Tier{}, err
	}
	v, now, err := s.in.Count(r.Key, "", &engine.Call{Params: p, AsOf: s.l.asOf(ctx)})
	res := new(Result)
	s.setResult(res, v, now)
	return res, s.tiers[v.Tier], err
}

// SharingScales returns two scales whose windows are looked for in the same place first.
func SharingScales(l *Limiter) (a, b int64) {
	l.windows.Running(0, 1000)
	for b = 1001; l.windows.Latest(b).Scale != 1000; b++ {
	}
	return 1000, b
}

// Hourly returns a limiter whose clock stands at the epoch, and whose janitor does not run
// meanwhile.
func Hourly(t testing.TB) *Limiter {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	return l
}

// CalendarAt returns a limiter whose clock shows *now.
func CalendarAt(t testing.TB, now *time.Time) *Limiter {
	return MustNew(t, Config{Now: func() time.Time { return *now }, Timeout: time.Nanosecond})
}

// ReadNow returns the reading of the clock of a limiter.
func ReadNow(l *Limiter) time.Time { return l.clock.Time(l.clock.Read()) }

// StateBytes returns how many bytes the states of a limiter hold, by a look at each.
func StateBytes(l *Limiter) int64 {
	s := &l.stores
	return bytesOf(s.Logs.Table) + bytesOf(s.Lists.Table) + bytesOf(s.Tiers.Table) +
		bytesOf(s.Queues.Table)
}

func bytesOf[S states.State](t *states.Table[S]) (n int64) {
	for k := range t.Keys {
		h, _ := t.Lock(k, false, present)
		n += h.State.Bytes()
		h.Unlock(states.Seen)
	}
	return n
}

// BytesInUse returns how many bytes of states a limiter counts.
func BytesInUse(l *Limiter) int64 { return l.room.Bytes.Load() }

// MaxBytes returns how many bytes the states of a limiter may hold.
func MaxBytes(l *Limiter) int64 { return l.room.MaxBytes }

// Flights returns how many callers have a flight: leases, or waiters.
func Flights(l *Limiter) (n int) {
	for range l.stores.Places.Flights.Table.Keys {
		n++
	}
	return n
}

// TakeName makes a series in a limiter.
func TakeName(l *Limiter, name string) error {
	_, err := l.named(windows.SeriesName{Name: name}, nil)
	return err
}

// RunAsOf is Run of a log as of an instant, however long ago it is; the zero one is the present. It
// returns the instant that was decided for.
func RunAsOf(s *SlidingLog, r *Request, due time.Time) (*Result, time.Time, error) {
	asOf := present
	if !due.IsZero() {
		asOf = s.l.clock.Instant(due)
	}
	p, err := s.parse(r)
	if err != nil {
		return nil, time.Time{}, err
	}
	v, now, err := s.in.Count(r.Key, r.Meta, &engine.Call{Params: p, AsOf: asOf})
	if err != nil {
		return nil, time.Time{}, err
	}
	return s.l.result(v), s.l.clock.Time(now), nil
}

// Freed returns what receives when a place of a caller is given back.
func Freed(s *InFlight, r *Request) (<-chan struct{}, error) { return s.freed(r) }

// LockedStrategies returns the strategies with states of variable size. In each of them a hit
// counts for 10 ms.
func LockedStrategies(t testing.TB, l *Limiter) map[string]Strategy {
	tiers := MustTiers(t, l, Tier{100, 5 * time.Millisecond}, Tier{1000, 10 * time.Millisecond})
	return map[string]Strategy{"SlidingLog": l.SlidingLog(), "LeakyBucket": l.LeakyBucket(0),
		"Tiers": tiers}
}

// LiveHeap returns how many bytes of the heap are in use.
func LiveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What the tests outside of the package need of it.
const (
	MaxID    = maxID
	MaxScale = maxScale
	MaxHeld  = engine.MaxHeld
	MinTry   = minTry
)

// And these functions.
var (
	NewWaitID = newWaitID
	SleepFor  = sleep
	StoreMax  = storeMax
)

// handClock is a Config.Now that is set by hand and counts its readings.
type handClock struct{ ns atomic.Int64 }

func (c *handClock) now() time.Time {
	return time.Unix(0, c.ns.Load()).UTC()
}

func (c *handClock) setMs(ms int64) { c.ns.Store(ms * msec) }

// newTestLimiter returns a limiter on a handClock that starts at the epoch. The limiter is closed
// with the test.
func newTestLimiter(t testing.TB, cfg Config) (*Limiter, *handClock) {
	t.Helper()
	c := new(handClock)
	cfg.Now = c.now
	return MustNew(t, cfg), c
}

// ops has the verbs of a Counter as functions, for the tests of this package: as package ops of
// internal/testkit, which imports it.
var ops verbsForTests

type verbsForTests struct{}

func (verbsForTests) do(ctx context.Context, s Strategy, op Op) *Op {
	op.Counter = CounterOf(s)
	op.Counter.Do(ctx, []*Op{&op})
	return &op
}

func (verbsForTests) decision(op *Op) (*Result, error) {
	if op.Err != nil {
		return nil, op.Err
	}
	return &op.Result, nil
}

func (v verbsForTests) Peek(ctx context.Context, s Strategy, r *Request) (*Result, error) {
	return v.decision(v.do(ctx, s, Op{Verb: OpPeek, Request: *r}))
}

func (v verbsForTests) Refund(ctx context.Context, s Strategy, r *Request, taken *Result) error {
	return v.do(ctx, s, Op{Verb: OpReturn, Request: *r, Result: *taken}).Err
}

func (v verbsForTests) Reset(ctx context.Context, s Strategy, r *Request) error {
	return v.do(ctx, s, Op{Verb: OpReset, Request: *r}).Err
}

func (v verbsForTests) Charge(ctx context.Context, s Strategy, r *Request) error {
	return v.do(ctx, s, Op{Verb: OpCharge, Request: *r}).Err
}

func (v verbsForTests) Hits(ctx context.Context, s Strategy, r *Request) ([]Hit, error) {
	op := v.do(ctx, s, Op{Verb: OpHits, Request: *r})
	return op.Hits, op.Err
}
