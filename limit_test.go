package weir_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/windows"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/limits"
)

// limited is a strategy of each kind, by what it takes to make a Limit.
var limited = map[string]func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit{
	"FixedWindow": func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit {
		return l.FixedWindow().Limit(n, d)
	},
	"SlidingWindow": func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit {
		return l.SlidingWindow().Limit(n, d)
	},
	"TokenBucket": func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit {
		return l.TokenBucket(0).Limit(n, d)
	},
	"Counter": func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit {
		return l.Counter().Limit(n, d)
	},
	"SlidingLog": func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit {
		return l.SlidingLog().Limit(n, d)
	},
	"List": func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit {
		return l.List().Limit(n, d)
	},
	"InFlight": func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit {
		return weir.MustLimit(l.InFlight(), n, d)
	},
	"Calendar": func(l *weir.Limiter, n uint64, _ time.Duration) *weir.Limit {
		return l.Calendar(weir.Month, nil).Limit(n)
	},
	"Tiers": func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit {
		tiers := l.Tiers(weir.Tier{n, d})
		return tiers.Limit()
	},
	"another package's": func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit {
		return weir.MustLimit(foreign{l.SlidingWindow()}, n, d)
	},
}

// hit is Take of m, or a lease by the strategy of one on work in flight.
func hit(t testing.TB, m *weir.Limit, key string, cost uint64) weir.Outcome {
	t.Helper()
	if !weir.CounterOf(m).About().InFlight {
		return weir.MustTake(t, m, key, cost)
	}
	return weir.Outcome{Result: *weir.MustRun(t, weir.CounterOf(m), &weir.Request{Key: key, Cost: cost})}
}

// foreign is a Strategy of another package, which knows no Limit.
type foreign struct{ of *weir.WindowCounter }

func (s foreign) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return s.of.Run(ctx, r)
}

func (s foreign) About() *weir.About {
	return &weir.About{Of: s, Name: "foreign", Verbs: weir.VerbsOf(weir.OpTake, weir.OpPeek, weir.OpReset)}
}

func (s foreign) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		if !s.About().Verbs.Has(op.Verb) || op.Keep || op.Backlog != nil {
			op.Err = op.Unsupported(s.About())
			continue
		}
		full := op.Full
		op.Counter, op.Full = s.of, false
		s.of.Do(ctx, []*weir.Op{op})
		op.Counter, op.Full, op.Left, op.Source = s, full, 0, weir.Nowhere
	}
}

func TestLimitDecides(t *testing.T) {
	for name, of := range limited {
		if name == "InFlight" {
			continue // see TestEachVerbOfALimitInFlight
		}
		t.Run(name, func(t *testing.T) {
			l, _ := weir.Manual(t)
			m := of(l, 5, time.Minute)
			assert.True(t, m.Allow("ann"))
			assert.True(t, m.AllowBytes([]byte("ann")))
			out := weir.MustTake(t, m, "ann", 2)
			assert.True(t, out.Allowed())
			assert.EqualValues(t, 4, out.TotalRequests)
			assert.EqualValues(t, 1, out.Left)
			assert.Zero(t, out.Wait)
			assert.Contains(t, out.By.String(), m.String())
			out, err := m.Peek(t.Context(), "ann")
			require.NoError(t, err)
			assert.True(t, out.Allowed())
			out = weir.MustTake(t, m, "ann", 2)
			assert.False(t, out.Allowed(), "one is left")
			assert.EqualValues(t, 1, out.Left)
			if name != "another package's" { // whose Wait is by the real clock
				assert.Positive(t, out.Wait)
				assert.Equal(t, out.ExpiresAt.Sub(weir.ReadNow(l)), out.Wait)
			}
			out = weir.MustTake(t, m, "ann", 6)
			assert.False(t, out.Allowed())
			assert.EqualValues(t, int64(math.MaxInt64), out.Wait, "it can never pass")
			assert.True(t, m.Allow("ann"))
			assert.False(t, m.Allow("ann"))
			assert.False(t, m.AllowBytes([]byte("ann")))
			long := strings.Repeat("a long key ", 9)
			assert.True(t, m.Allow(long))
			assert.True(t, m.AllowBytes([]byte(long)))
			out = weir.MustTake(t, m, long, 1)
			assert.EqualValues(t, 3, out.TotalRequests, "a string and its bytes are one key")
			res := weir.MustRun(t, m, &weir.Request{Key: long, Limit: 1, Duration: time.Hour, Cost: 2})
			assert.EqualValues(t, 5, res.TotalRequests, "the numbers of a request are ignored")
			require.NoError(t, m.Reset(t.Context(), long))
			assert.True(t, m.Allow(long))
		})
	}
}

func TestLimitThatCannotDecide(t *testing.T) {
	for name, of := range limited {
		if name == "InFlight" {
			continue // see TestEachVerbOfALimitInFlight
		}
		t.Run(name, func(t *testing.T) {
			l, _ := weir.Manual(t)
			m := of(l, 5, time.Minute)
			before := l.Stats().Invalid
			assert.False(t, m.Allow(""))
			assert.False(t, m.FailOpen().Allow(""), "a client may choose its key")
			assert.False(t, m.FailOpen().AllowBytes(make([]byte, 1025)))
			assert.EqualValues(t, 3, l.Stats().Invalid-before)
			_, err := m.Take(t.Context(), "", 1)
			require.ErrorIs(t, err, weir.ErrID)
			assert.EqualError(t, err, "weir: bad key: it is empty, want 1 to 1024 bytes")
			_, err = m.Peek(t.Context(), strings.Repeat("k", 2000))
			require.ErrorIs(t, err, weir.ErrID)
			require.ErrorIs(t, m.Wait(t.Context(), ""), weir.ErrID)
			assert.True(t, m.FailOpen().Allow("k"))
			out, err := m.Peek(t.Context(), "k")
			require.NoError(t, err)
			assert.EqualValues(t, 4, out.Left, "a limit that fails open has the same counts")
			require.NoError(t, l.Close())
			_, err = m.Take(t.Context(), "k", 1)
			require.ErrorIs(t, err, weir.ErrClosed)
			assert.False(t, m.Allow("k"))
			assert.True(t, m.FailOpen().Allow("k"))
		})
	}
}

func TestNumbersThatCanNeverBeRight(t *testing.T) {
	l, _ := weir.Manual(t)
	tokens := l.TokenBucket(math.MaxUint64)
	for want, limit := range map[string]func() (*weir.Limit, error){
		"weir: bad duration: 0s, want 1ms to 8760h": func() (*weir.Limit, error) {
			return weir.NewLimit(l.SlidingWindow(), 5, 0)
		},
		"weir: bad duration: -1s, want 1ms to 8760h": func() (*weir.Limit, error) {
			return weir.NewLimit(foreign{l.SlidingWindow()}, 5, -time.Second)
		},
		"weir: bad duration: 1.5ms is not a whole number of milliseconds": func() (*weir.Limit, error) {
			return weir.NewLimit(l.FixedWindow(), 5, 1500*time.Microsecond)
		},
		"weir: bad limit: a burst of 9223372036854775807, one in 12s, takes centuries to refill": func() (
			*weir.Limit, error) {
			return weir.NewLimit(tokens, 5, time.Minute)
		},
		"weir: a limit needs a Strategy: unsupported operation": func() (*weir.Limit, error) {
			return weir.NewLimit(nil, 5, time.Minute)
		},
	} {
		m, err := limit()
		assert.Nil(t, m)
		assert.EqualError(t, err, want)
	}
	assert.PanicsWithValue(t, "weir: bad duration: 0s, want 1ms to 8760h",
		func() { l.SlidingWindow().Limit(5, 0) })
	assert.Panics(t, func() { l.SlidingWindow().Limit(5, time.Second).Named("") })
	assert.Panics(t, func() { l.SlidingWindow().Limit(5, time.Second).Named(strings.Repeat("n", 257)) })
	none := l.SlidingWindow().Limit(0, time.Second)
	assert.False(t, none.Allow("k"), "a limit of 0 denies everything")
}

// The names of a limit keep its counts when its numbers change.
func TestNamedKeepsCounts(t *testing.T) {
	for name, of := range limited {
		t.Run(name, func(t *testing.T) {
			l, _ := weir.Manual(t)
			require.True(t, hit(t, of(l, 5, time.Minute).Named("api"), "ann", 1).Allowed())
			out, err := of(l, 50, time.Minute).Named("api").Peek(t.Context(), "ann")
			require.NoError(t, err)
			assert.EqualValues(t, 1, out.TotalRequests)
			out, err = of(l, 50, time.Minute).Peek(t.Context(), "ann")
			require.NoError(t, err)
			assert.Zero(t, out.TotalRequests)
			switch name {
			case "TokenBucket":
				out, err = of(l, 50, time.Hour).Named("api").Peek(t.Context(), "ann")
				require.NoError(t, err)
				assert.Positive(t, out.TotalRequests, "a bucket counts in no window")
			case "SlidingWindow":
				out, err = of(l, 50, time.Hour).Named("api").Peek(t.Context(), "ann")
				require.NoError(t, err)
				assert.Zero(t, out.TotalRequests, "another window counts anew")
			}
		})
	}
}

// No limit counts with CheckRate, or with the strategy itself.
func TestLimitsCountApartFromStrategies(t *testing.T) {
	l, _ := weir.Manual(t)
	require.True(t, l.FixedWindow().Limit(1, time.Minute).Allow("k"))
	require.True(t, l.SlidingWindow().Limit(1, time.Minute).Allow("k"))
	held, err := l.InFlight().Limit(1).Hold(t.Context(), "k")
	require.NoError(t, err)
	res := weir.MustCheck(t, l, "k", 60_000, 1)
	assert.True(t, res.Allowed())
	r := &weir.Request{Key: "k", Limit: 1, Duration: time.Minute}
	for _, s := range []weir.Strategy{l.SlidingWindow(), l.Counter(), l.InFlight()} {
		res := weir.MustRun(t, s, r)
		assert.True(t, res.Allowed(), ops.Name(s))
	}
	require.NoError(t, held.Release(t.Context()))
	var names []string
	for b := range l.Buckets() {
		names = append(names, fmt.Sprintln(b.ID, b.Scale, b.Limit, b.Count))
	}
	assert.ElementsMatch(t, []string{"k 1m0s  1\n", "k 1m0s 1 1\n"}, names)
}

func TestPeriodOfALimit(t *testing.T) {
	l, _ := weir.Manual(t)
	month := l.Calendar(weir.Month.From(17), nil).Limit(10)
	assert.Equal(t, "month:17@UTC", month.Period())
	assert.Equal(t, "calendar, 10 in month:17@UTC", month.String())
	assert.Equal(t, "1h30m", l.FixedWindow().Limit(10, 90*time.Minute).Period())
}

func TestTiersSayWhichBinds(t *testing.T) {
	l, now := weir.Manual(t)
	tiers := weir.MustTiers(t, l, weir.Tier{3, time.Second}, weir.Tier{4, time.Minute})
	m := tiers.Limit().Named("both")
	out := weir.MustTake(t, m, "k", 2)
	assert.EqualValues(t, 1, out.Left)
	assert.Equal(t, "both: tiers, 3 in 1s", out.By.String())
	*now = now.Add(10 * time.Second)
	out = weir.MustTake(t, m, "k", 3)
	assert.False(t, out.Allowed())
	assert.Equal(t, "both: tiers, 4 in 1m", out.By.String())
	assert.EqualValues(t, 2, out.Left)
	assert.Equal(t, 50*time.Second, out.Wait)
	assert.True(t, out.By.Allow("k"), "a part decides by all tiers")
}

func TestLeakyBucketOfALimit(t *testing.T) {
	l := weir.MustNew(t, weir.Config{})
	m := l.LeakyBucket(5).Limit(1000, time.Second)
	start := time.Now()
	assert.True(t, m.Allow("k"))
	assert.False(t, m.Allow("k"), "it would have to wait")
	for range 3 {
		require.NoError(t, m.Wait(t.Context(), "k"))
	}
	out := weir.MustTake(t, m, "k", 1)
	assert.True(t, out.Allowed())
	assert.GreaterOrEqual(t, time.Since(start), 4*time.Millisecond)
}

func TestHoldOfALimit(t *testing.T) {
	l, _ := weir.Manual(t)
	jobs := l.InFlight().Limit(1).Named("jobs")
	held, err := jobs.Hold(t.Context(), "k")
	require.NoError(t, err)
	_, err = l.InFlight().Limit(1).Named("jobs").Hold(t.Context(), "k")
	var denied *weir.DeniedError
	require.ErrorAs(t, err, &denied)
	assert.EqualError(t, err, "weir: denied by jobs: in flight, 1 at a time: 1 in flight, "+
		"until one is released")
	other, err := l.InFlight().Limit(1).Named("others").Hold(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, other.Release(t.Context()))
	assert.EqualValues(t, 1, l.Stats().Held)
	require.NoError(t, held.Release(t.Context()))
	held, err = jobs.HoldWait(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, held.Release(t.Context()))
	_, err = l.SlidingWindow().Limit(1, time.Second).Hold(t.Context(), "k")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// embedding has another Run than the strategy that it embeds.
type embedding struct{ *weir.WindowCounter }

func (embedding) Run(context.Context, *weir.Request) (*weir.Result, error) {
	return new(weir.Result), nil
}

func TestLimitOfATypeThatEmbedsAStrategy(t *testing.T) {
	l, _ := weir.Manual(t)
	assert.False(t, weir.MustLimit(embedding{l.SlidingWindow()}, 5, time.Second).Allow("k"))
}

// strategyFunc is a Strategy that is a function.
type strategyFunc func(ctx context.Context) (*weir.Result, error)

func (f strategyFunc) Run(ctx context.Context, _ *weir.Request) (*weir.Result, error) { return f(ctx) }

// What a strategy of another package cannot do is said.
func TestLimitOfALesserStrategy(t *testing.T) {
	m := weir.MustLimit(strategyFunc(func(context.Context) (*weir.Result, error) {
		return &weir.Result{State: weir.Allow, TotalRequests: 1}, nil
	}), 5, time.Second)
	assert.True(t, m.Allow("k"))
	_, err := m.Peek(t.Context(), "k")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorIs(t, m.Reset(t.Context(), "k"), errors.ErrUnsupported)
	_, err = m.Hold(t.Context(), "k")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// The keys of another package's strategy begin with the name of the limit, or with its numbers.
func TestKeysOfAnotherPackage(t *testing.T) {
	var keys []string
	s := recording(func(r *weir.Request) { keys = append(keys, r.Key) })
	for _, m := range []*weir.Limit{
		weir.MustLimit(s, 5, time.Second), weir.MustLimit(s, 6, time.Second),
		weir.MustLimit(s, 5, time.Minute),
		weir.MustLimit(s, 5, time.Second).Named("api"), weir.MustLimit(s, 9, time.Hour).Named("api"),
	} {
		require.True(t, m.Allow("ann"))
	}
	assert.Equal(t, []string{weir.JoinKey("", "5/1s", "ann"), weir.JoinKey("", "6/1s", "ann"),
		weir.JoinKey("", "5/1m", "ann"),
		weir.JoinKey("api", "ann"), weir.JoinKey("api", "ann")}, keys)
}

type recording func(r *weir.Request)

func (f recording) Run(_ context.Context, r *weir.Request) (*weir.Result, error) {
	f(r)
	return &weir.Result{State: weir.Allow, TotalRequests: 1}, nil
}

// A known caller's decision allocates nothing; a Strategy's Run its Result.
func TestLimitAllocatesNothing(t *testing.T) {
	l := weir.MustNew(t, weir.Config{})
	addr := netip.MustParseAddr("2001:db8:1234:5678:1234:5678:1234:5678")
	var buf [64]byte
	for _, n := range []uint64{1, 1 << 40} { // denied, and admitted
		fixed, sliding := l.FixedWindow().Limit(n, time.Hour), l.SlidingWindow().Limit(n, time.Hour)
		jobs := l.InFlight().Limit(n)
		for name, call := range map[string]func(){
			"Allow of FixedWindow":   func() { fixed.Allow("10.0.0.7") },
			"Allow of SlidingWindow": func() { sliding.Allow("10.0.0.7") },
			"Allow of a long key":    func() { sliding.Allow("2001:db8:1234:5678:1234:5678:1234:5678") },
			"AllowBytes":             func() { sliding.AllowBytes(addr.AppendTo(buf[:0])) },
			"Take":                   func() { _, _ = sliding.Take(t.Context(), "10.0.0.7", 1) },
			"Take of FixedWindow":    func() { _, _ = fixed.Take(t.Context(), "10.0.0.7", 1) },
			"Peek":                   func() { _, _ = sliding.Peek(t.Context(), "10.0.0.7") },
			"Hold and Release": func() {
				held, _ := jobs.Hold(t.Context(), "10.0.0.7")
				_ = held.Release(t.Context())
			},
			"Take of a log": func() {
				_, _ = l.SlidingLog().Limit(1, time.Hour).Take(t.Context(), "10.0.0.7", 1)
			},
		} {
			call()
			want := 0.0
			if name == "Take of a log" {
				want = 7 // of the limit, which is made each time: two strategies, what they count on, and it
			}
			assert.LessOrEqual(t, testing.AllocsPerRun(100, call), want, "%s, limit %d", name, n)
		}
	}
}

// A series that two calls make at once is one series.
func TestEqualLimitsMadeAtOnceCountTogether(t *testing.T) {
	for name, of := range limited {
		if name == "another package's" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for range slow.N(20, 100, 2000) {
				l, err := weir.New(weir.Config{MaxBuckets: 100})
				require.NoError(t, err)
				var admitted atomic.Int64
				var g errgroup.Group
				start := make(chan struct{})
				for range 4 {
					g.Go(func() error {
						<-start
						m := of(l, 3, time.Hour).Named("one")
						for range 3 {
							if hit(t, m, "k", 1).Allowed() {
								admitted.Add(1)
							}
						}
						return nil
					})
				}
				close(start)
				require.NoError(t, g.Wait())
				require.EqualValues(t, 3, admitted.Load())
				require.NoError(t, l.Close())
			}
		})
	}
}

func TestLimitsAreBounded(t *testing.T) {
	l := weir.MustNew(t, weir.Config{})
	var g errgroup.Group
	var made, refused atomic.Int64
	for w := range 8 {
		g.Go(func() error {
			for i := range 100_000 / 8 {
				m := l.SlidingWindow().Limit(uint64(w*100_000/8+i+1), time.Minute)
				switch out, err := m.Take(context.Background(), "k", 1); {
				case err == nil && out.TotalRequests == 1:
					made.Add(1)
				case errors.Is(err, weir.ErrLimit):
					refused.Add(1)
				default:
					return fmt.Errorf("%v: %+v: %w", m, out, err)
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	assert.EqualValues(t, windows.MaxSeries, made.Load())
	assert.EqualValues(t, 100_000-windows.MaxSeries, refused.Load())
	before := l.Stats().Invalid
	_, err := l.SlidingWindow().Limit(200_000, time.Minute).Take(t.Context(), "k", 1)
	assert.EqualValues(t, before+1, l.Stats().Invalid)
	assert.EqualError(t, err, "weir: bad limit: 65536 different limits and calendars are in use; "+
		"put what varies into the key")
}

// Limits with equal strategies, numbers and names are one limit, and all others are apart: each
// decides as a strategy on a Limiter of its own does, also after a snapshot was loaded.
func TestLimitsCountTogetherIfAndOnlyIfTheyAreEqual(t *testing.T) {
	for seed := range uint64(slow.N(20, 100, 2000)) {
		if broken := limitsDiffer(t, seed, func(name string) string { return name }); broken != "" {
			t.Fatalf("seed %d: %s", seed, broken)
		}
	}
}

// A limit that is named after its first letter counts with others.
func TestLimitsThatShareByMistakeAreRejected(t *testing.T) {
	for seed := range uint64(100) {
		if limitsDiffer(t, seed, func(name string) string { return name[:1] }) != "" {
			return
		}
	}
	t.Fatal("no run has found that limits share counts")
}

// limitsDiffer decides at random by limits that are made anew each time, and by a strategy on a
// Limiter of its own for each limit that there is, and returns how they differ.
func limitsDiffer(t *testing.T, seed uint64, rename func(string) string) string {
	rng := rand.New(rand.NewPCG(seed, 1))
	now := time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)
	// They are closed here: those of all seeds are too many to keep until the test ends.
	var made []*weir.Limiter
	defer func() {
		for _, l := range made {
			_ = l.Close()
		}
	}()
	newOne := func() *weir.Limiter {
		l, err := weir.New(weir.Config{MaxBuckets: 1000, SweepEvery: time.Hour,
			Now: func() time.Time { return now }})
		require.NoError(t, err)
		made = append(made, l)
		return l
	}
	type identity struct {
		kind, name string
		n          uint64
		d          time.Duration
	}
	l, apart := newOne(), map[identity]*weir.Limiter{}
	kinds := []string{"FixedWindow", "SlidingWindow", "TokenBucket", "Counter", "SlidingLog", "List",
		"InFlight", "Calendar", "Tiers"}
	for step := range 300 {
		id := identity{kind: kinds[rng.IntN(len(kinds))], n: 1 + rng.Uint64N(3),
			d: time.Duration(1+rng.IntN(2)) * time.Second}
		if id.kind == "Calendar" {
			id.d = 0
		}
		name := []string{"", "a", "ab"}[rng.IntN(3)]
		m := limited[id.kind](l, id.n, id.d)
		of := id
		if of.name = name; name != "" {
			m = m.Named(rename(name))
			of.n = 0
			if id.kind == "TokenBucket" {
				of.n, of.d = id.n, id.d // another rate is a subject of its own
				m = limited[id.kind](l, id.n, id.d).Named(rename(name) + fmt.Sprint(id.n, id.d))
			}
		}
		if apart[of] == nil {
			apart[of] = newOne()
		}
		alone := limited[id.kind](apart[of], id.n, id.d).Named("alone")
		key, cost := string(rune('k'+rng.IntN(2))), 1+rng.Uint64N(2)
		got := hit(t, m, key, cost)
		want := hit(t, alone, key, cost)
		if got.Result != want.Result || got.Left != want.Left || got.Wait != want.Wait {
			return fmt.Sprintf("step %d: %v of %v: %+v, want %+v", step, key, m, got, want)
		}
		switch rng.IntN(20) {
		case 0:
			now = now.Add(time.Duration(rng.IntN(1500)) * time.Millisecond)
		case 1:
			var saved bytes.Buffer
			require.NoError(t, l.Save(&saved))
			l = newOne()
			require.NoError(t, l.Load(&saved))
		}
	}
	return ""
}

// Limits of a snapshot have their names: those of equal limits are found again, whatever was made
// before.
func TestSnapshotsCarryTheNamesOfLimits(t *testing.T) {
	for name, of := range limited {
		if name == "another package's" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			l, _ := weir.Manual(t)
			require.True(t, hit(t, of(l, 1, time.Hour), "k", 1).Allowed())
			require.True(t, hit(t, of(l, 1, time.Hour).Named("x"), "k", 1).Allowed())
			var saved bytes.Buffer
			require.NoError(t, l.Save(&saved))
			other, _ := weir.Manual(t)
			require.True(t, hit(t, of(other, 7, time.Hour).Named("y"), "k", 1).Allowed(),
				"another takes the first number")
			require.NoError(t, other.Load(bytes.NewReader(saved.Bytes())))
			require.NoError(t, other.Load(bytes.NewReader(saved.Bytes())), "twice is once")
			assert.False(t, hit(t, of(other, 1, time.Hour), "k", 1).Allowed())
			assert.False(t, hit(t, of(other, 1, time.Hour).Named("x"), "k", 1).Allowed())
			assert.True(t, hit(t, of(other, 1, time.Hour).Named("z"), "k", 1).Allowed())
			assert.True(t, hit(t, of(other, 7, time.Hour).Named("y"), "k", 1).Allowed())
		})
	}
}

// Run of a strategy allocates its Result, and no Request where that is the caller's.
func TestRunAllocatesItsResult(t *testing.T) {
	l := weir.MustNew(t, weir.Config{})
	fixed, sliding, log := l.FixedWindow(), l.SlidingWindow(), l.SlidingLog()
	limit := sliding.Limit(5, time.Hour)
	for name, call := range map[string]func() (*weir.Result, error){
		"FixedWindow": func() (*weir.Result, error) {
			return fixed.Run(t.Context(), &weir.Request{Key: "k", Limit: 5, Duration: time.Hour})
		},
		"SlidingWindow": func() (*weir.Result, error) {
			return sliding.Run(t.Context(), &weir.Request{Key: "k", Limit: 5, Duration: time.Hour})
		},
		"SlidingLog": func() (*weir.Result, error) {
			return log.Run(t.Context(), &weir.Request{Key: "k", Limit: 5, Duration: time.Hour})
		},
		"a Limit": func() (*weir.Result, error) { return limit.Run(t.Context(), &weir.Request{Key: "k"}) },
	} {
		var res *weir.Result
		n := testing.AllocsPerRun(100, func() { res, _ = call() })
		assert.False(t, res.Allowed())
		assert.LessOrEqual(t, n, 1.0, name)
	}
}

// Take and Peek agree on what is left where numbers are clamped.
func TestLeftOfClampedNumbers(t *testing.T) {
	l, _ := weir.Manual(t)
	for _, m := range []*weir.Limit{
		l.TokenBucket(5).Limit(0, time.Minute), l.TokenBucket(5).Limit(1, time.Minute),
		l.FixedWindow().Limit(1<<60, time.Minute), l.SlidingWindow().Limit(1<<60, time.Minute),
	} {
		peeked, err := m.Peek(t.Context(), "k")
		require.NoError(t, err)
		out := weir.MustTake(t, m, "k", 1)
		assert.Equal(t, out.Left, peeked.Left-min(1, peeked.Left), m)
	}
}

// A strategy that has its numbers cannot get others.
func TestBoundStrategiesKeepTheirNumbers(t *testing.T) {
	l, _ := weir.Manual(t)
	limit := l.SlidingWindow().Limit(10, time.Minute)
	for _, s := range []weir.Strategy{limit, weir.CounterOf(limit),
		weir.CounterOf(weir.MustLimit(foreign{l.SlidingWindow()}, 1, time.Second))} {
		_, err := weir.NewLimit(s, 1, time.Hour)
		require.ErrorIs(t, err, weir.ErrLimit)
		assert.EqualError(t, err, "weir: bad limit: "+weir.CounterOf(s).About().Name+" has its numbers already")
	}
}

// A limit that finds no series fails in every way with the error that says so.
func TestLimitsBeyondTheBound(t *testing.T) {
	l, _ := weir.Manual(t)
	for i := range windows.MaxSeries {
		require.NoError(t, weir.TakeName(l, strconv.Itoa(i)))
	}
	a := l.SlidingWindow().Limit(1, time.Minute)
	_, err := a.Take(t.Context(), "k", 1)
	require.ErrorIs(t, err, weir.ErrLimit)
	_, err = a.Hold(t.Context(), "k")
	require.ErrorIs(t, err, weir.ErrLimit)
	require.ErrorIs(t, a.Reset(t.Context(), "k"), weir.ErrLimit)
	assert.True(t, a.FailOpen().Allow("k"))
}

// A name is no label of another limit without one, and the burst of a wrapped bucket is in a label.
func TestLabelsAreApart(t *testing.T) {
	l, _ := weir.Manual(t)
	s := foreign{l.SlidingWindow()}
	plain := weir.MustLimit(s, 1, time.Minute)
	require.True(t, plain.Allow("k"))
	assert.True(t, plain.Named("1/1m").Allow("k"))
	small := weir.MustLimit(wrapping{l.TokenBucket(1)}, 10, time.Minute)
	large := weir.MustLimit(wrapping{l.TokenBucket(5)}, 10, time.Minute)
	require.True(t, small.Allow("k"))
	out := weir.MustTake(t, large, "k", 1)
	assert.EqualValues(t, 4, out.Left)
}

type wrapping struct{ of *weir.TokenBucket }

func (s wrapping) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return s.of.Run(ctx, r)
}

func (s wrapping) About() *weir.About { return s.of.About().By(s) }

func (s wrapping) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		_ = weir.Do(ctx, s.of, op)
	}
}

// Callers of equal limits wait in one line, wherever the limits are made.
func TestEqualLimitsQueueTogether(t *testing.T) {
	for name, of := range limited {
		if name == "InFlight" || name == "Calendar" || name == "another package's" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
				var order []int
				var mu sync.Mutex
				var g errgroup.Group
				for i := range 8 {
					g.Go(func() error {
						time.Sleep(time.Duration(i) * time.Microsecond)
						err := of(l, 1, time.Second).Wait(t.Context(), "k")
						mu.Lock()
						defer mu.Unlock()
						order = append(order, i)
						return err
					})
				}
				require.NoError(t, g.Wait())
				assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, order)
			})
		})
	}
}

// builders return a limit that differs in one thing from the one before.
var builders = map[string]func(*weir.Limit) *weir.Limit{
	"Named(first)":  func(m *weir.Limit) *weir.Limit { return m.Named("first") },
	"Named(second)": func(m *weir.Limit) *weir.Limit { return m.Named("second") },
	"FailOpen":      (*weir.Limit).FailOpen,
}

func TestEveryBuilderOfALimitIsTested(t *testing.T) {
	limit := reflect.TypeFor[*weir.Limit]()
	for i := range limit.NumMethod() {
		m := limit.Method(i)
		if m.Type.NumOut() != 1 || m.Type.Out(0) != limit {
			continue
		}
		known := false
		for name := range builders {
			known = known || strings.HasPrefix(name, m.Name)
		}
		assert.True(t, known, "%s is missing in builders", m.Name)
	}
}

// eachOrder calls f with the builders in every order, of up to three, each any number of times.
func eachOrder(f func(order []string)) {
	orders := [][]string{nil}
	for range 4 {
		var longer [][]string
		for _, order := range orders {
			f(order)
			for name := range builders {
				longer = append(longer, append(order[:len(order):len(order)], name))
			}
		}
		orders = longer
	}
}

// Each builder changes one thing, and keeps the others, in any order.
func TestBuildersOfALimitKeepTheRest(t *testing.T) {
	for kind, of := range limited {
		if kind == "InFlight" {
			continue // is held, and Allow takes none of it
		}
		t.Run(kind, func(t *testing.T) {
			eachOrder(func(order []string) {
				l, _ := weir.Manual(t)
				plain := of(l, 5, time.Minute)
				m, name, open := plain, "", false
				for _, builder := range order {
					m = builders[builder](m)
					if builder == "FailOpen" {
						open = true
					} else {
						name = strings.TrimSuffix(strings.TrimPrefix(builder, "Named("), ")")
					}
				}
				assert.Equal(t, name, m.Name(), order)
				n, d := m.Numbers()
				wantN, wantD := plain.Numbers()
				assert.Equal(t, []any{wantN, wantD}, []any{n, d}, order)
				same := of(l, 5, time.Minute)
				if name != "" {
					same = same.Named(name)
				}
				require.True(t, m.Allow("k"))
				assert.EqualValues(t, 2, weir.MustTake(t, same, "k", 1).TotalRequests, order)
				by := weir.MustTake(t, m, "k", 1).By
				assert.Equal(t, name, by.Name(), order)
				require.NoError(t, l.Close())
				for _, m := range []*weir.Limit{m, by} {
					assert.Equal(t, open, m.Allow("k"), order)
					assert.Equal(t, open, m.AllowBytes([]byte("k")), order)
				}
				assert.False(t, plain.Allow("k") && len(order) > 0, "the receiver is as it was: %v", order)
			})
		})
	}
}

// Keys of every length fail after Close, of callers who were known before.
func TestNoLimitDecidesAfterClose(t *testing.T) {
	for kind, of := range limited {
		if kind == "InFlight" {
			continue // is held, and Allow takes none of it
		}
		t.Run(kind, func(t *testing.T) {
			l, _ := weir.Manual(t)
			m := of(l, 5, time.Minute)
			var keys []string
			for _, length := range []int{1, 8, 16, 22, 23, 24, 40, 62, 63, 500, 900} {
				keys = append(keys, strings.Repeat("k", length))
			}
			for _, key := range keys {
				require.True(t, m.Allow(key))
				require.True(t, m.AllowBytes([]byte(key)))
			}
			require.NoError(t, l.Close())
			for i, key := range keys {
				assert.False(t, m.Allow(key), "%d bytes", len(key))
				assert.False(t, m.AllowBytes([]byte(key)), "%d bytes", len(key))
				_, err := m.Take(t.Context(), key, 1)
				assert.ErrorIs(t, err, weir.ErrClosed, "%d bytes", len(key))
				_, err = m.Peek(t.Context(), key)
				assert.ErrorIs(t, err, weir.ErrClosed, "%d bytes", len(key))
				assert.EqualValues(t, 4*(i+1), l.Stats().Closed)
			}
		})
	}
}

// A caller who is known, and of whom nothing counts any more, gets the verdict of a new one, of
// numbers over what a slot can count too: a cost over the limit never passes.
func TestKnownCallersGetTheVerdictsOfNewOnes(t *testing.T) {
	numbers := []uint64{1, 2, maxCount - 1, maxCount, maxCount + 1, 1 << 50, 1<<63 - 1, 1 << 63,
		1<<64 - 1}
	for kind, of := range map[string]func(*weir.Limiter) weir.Strategy{
		"FixedWindow":   func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() },
		"SlidingWindow": func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() },
		"Counter":       func(l *weir.Limiter) weir.Strategy { return l.Counter() },
		"TokenBucket":   func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(0) },
	} {
		for _, n := range numbers {
			for _, cost := range numbers {
				l, now := weir.Manual(t)
				m, err := weir.NewLimit(of(l), n, time.Minute)
				if errors.Is(err, weir.ErrLimit) {
					continue // a burst that takes centuries to fill
				}
				require.NoError(t, err)
				weir.MustTake(t, m, "known", 1)
				if cost > n {
					out := weir.MustTake(t, m, "known", cost)
					assert.False(t, out.Allowed(), "%s of %d: %d", kind, n, cost)
					assert.Zero(t, out.ExpiresAt, "%s of %d: %d", kind, n, cost)
				}
				*now = now.Add(time.Hour)
				known, fresh := weir.MustTake(t, m, "known", cost), weir.MustTake(t, m, "new", cost)
				assert.Equal(t, fresh.Result, known.Result, "%s of %d: %d", kind, n, cost)
				assert.Equal(t, cost <= n, known.Allowed(), "%s of %d: %d", kind, n, cost)
			}
		}
	}
}

// past is a Strategy of another package that denies until an instant that has passed.
type past struct{}

func (past) Run(context.Context, *weir.Request) (*weir.Result, error) {
	return &weir.Result{State: weir.Deny, TotalRequests: 1, ExpiresAt: time.Now().Add(-time.Hour)}, nil
}

func (s past) About() *weir.About {
	return &weir.About{Of: s, Name: "past", Verbs: weir.VerbsOf(weir.OpTake, weir.OpPeek)}
}

func (s past) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		res, _ := s.Run(ctx, &op.Request)
		op.Result = *res
	}
}

func TestNoOutcomeHasANegativeWait(t *testing.T) {
	m := weir.MustLimit(past{}, 5, time.Minute)
	out := weir.MustTake(t, m, "k", 1)
	assert.GreaterOrEqual(t, out.Wait, time.Duration(0))
	assert.Less(t, out.Wait, time.Minute)
	out, err := m.Peek(t.Context(), "k")
	require.NoError(t, err)
	assert.GreaterOrEqual(t, out.Wait, time.Duration(0))

	// Of a leaky bucket, whose clock is read after the decision too, and may have come to its end.
	for reads := range 12 {
		start, read := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), 0
		l, err := weir.New(weir.Config{SweepEvery: time.Hour, Now: func() time.Time {
			if read++; read > reads {
				return start.Add(time.Hour)
			}
			return start
		}})
		require.NoError(t, err)
		queue := l.LeakyBucket(0).Limit(1, time.Minute)
		for range 3 {
			assert.GreaterOrEqual(t, weir.MustTake(t, queue, "k", 1).Wait, time.Duration(0), "%d readings", reads)
		}
		require.NoError(t, l.Close())
	}
}

// An Outcome says for people what was decided, by String and in JSON.
func TestOutcomesAreForPeople(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	clock.Set(time.Unix(60, 0).UTC())
	window := l.FixedWindow().Limit(3, time.Minute).Named("api \x01")
	bucket := l.TokenBucket(2).Limit(10, time.Second)
	tiers := l.Tiers(weir.Tier{Limit: 1, Duration: time.Second}, weir.Tier{Limit: 5, Duration: time.Minute})
	jobs := l.InFlight().Limit(1)
	_, err := jobs.Hold(t.Context(), "k")
	require.NoError(t, err)
	take := func(s interface {
		Take(ctx context.Context, key string, cost uint64) (weir.Outcome, error)
	}, cost uint64) weir.Outcome {
		out, err := s.Take(t.Context(), "k", cost)
		require.NoError(t, err)
		return out
	}
	busy, err := jobs.Peek(t.Context(), "k")
	require.NoError(t, err)
	for _, tt := range []struct {
		out        weir.Outcome
		text, json string
		never      bool
	}{
		{take(window, 1), "allowed, 2 of 3 left: api \x01: fixed window, 3 in 1m",
			`{"allowed":true,"left":2,"limit":3,"wait":"0s","full_at":"1970-01-01T00:02:00Z","by":"api \u0001: fixed window, 3 in 1m"}`, false},
		{take(window, 3), "denied for 1m, 2 of 3 left: api \x01: fixed window, 3 in 1m",
			`{"allowed":false,"left":2,"limit":3,"wait":"1m","full_at":"1970-01-01T00:02:00Z","by":"api \u0001: fixed window, 3 in 1m"}`, false},
		{take(window, 4), "denied for good, 2 of 3 left: api \x01: fixed window, 3 in 1m",
			`{"allowed":false,"left":2,"limit":3,"wait":"never","full_at":"1970-01-01T00:02:00Z","by":"api \u0001: fixed window, 3 in 1m"}`, true},
		{take(bucket, 2), "allowed, 0 of 2 left: token bucket, 10 in 1s",
			`{"allowed":true,"left":0,"limit":2,"wait":"0s","full_at":"1970-01-01T00:01:00.2Z","by":"token bucket, 10 in 1s"}`, false},
		{take(bucket, 1), "denied for 100ms, 0 of 2 left: token bucket, 10 in 1s",
			`{"allowed":false,"left":0,"limit":2,"wait":"100ms","full_at":"1970-01-01T00:01:00.2Z","by":"token bucket, 10 in 1s"}`, false},
		{take(tiers.Limit(), 1), "allowed, 0 of 1 left: tiers, 1 in 1s", "", false},
		{take(limits.All(l.SlidingWindow().Limit(9, time.Minute), l.SlidingLog().Limit(0, time.Minute)), 1),
			"denied for good, 0 of 0 left: sliding log, 0 in 1m", "", true},
		{busy, "denied until one is released, 0 of 1 left: in flight, 1 at a time",
			`{"allowed":false,"left":0,"limit":1,"wait":"until one is released","by":"in flight, 1 at a time"}`, false},
		{weir.Outcome{}, "denied for 0s, 0 of 0 left", `{"allowed":false,"left":0,"limit":0,"wait":"0s"}`, false},
	} {
		assert.Equal(t, tt.text, tt.out.String())
		assert.Equal(t, tt.never, tt.out.Never(), tt.text)
		got, err := json.Marshal(tt.out)
		require.NoError(t, err)
		if tt.json != "" {
			assert.Equal(t, tt.json, string(got), tt.text)
		}
	}
}

// The Limit of an Outcome is what its count is held against, and never 0 where something may pass.
func TestOutcomesHaveALimit(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	for name, s := range map[string]*weir.Limit{
		"fixed window":   l.FixedWindow().Limit(7, time.Minute),
		"calendar":       l.Calendar(weir.Day, time.UTC).Limit(7),
		"sliding window": l.SlidingWindow().Limit(7, time.Minute),
		"log":            l.SlidingLog().Limit(7, time.Minute),
		"list":           l.List().Limit(7, time.Minute),
		"counter":        l.Counter().Limit(7, time.Minute),
		"token bucket":   l.TokenBucket(7).Limit(20, time.Minute),
	} {
		for _, cost := range []uint64{1, 6, 1, 8} {
			taken, err := s.Take(t.Context(), "k", cost)
			require.NoError(t, err)
			assert.EqualValues(t, 7, taken.Limit, name)
			looked, err := s.Peek(t.Context(), "k")
			require.NoError(t, err)
			assert.EqualValues(t, 7, looked.Limit, name)
		}
	}
}

// The Outcome of a Reservation is that of a Take, and a Commit leaves what the cost came to.
func TestALimitReserves(t *testing.T) {
	for name, m := range map[string]func(l *weir.Limiter) *weir.Limit{
		"fixed window":   func(l *weir.Limiter) *weir.Limit { return l.FixedWindow().Limit(10, time.Minute) },
		"sliding window": func(l *weir.Limiter) *weir.Limit { return l.SlidingWindow().Limit(10, time.Minute) },
		"log":            func(l *weir.Limiter) *weir.Limit { return l.SlidingLog().Limit(10, time.Minute) },
		"token bucket":   func(l *weir.Limiter) *weir.Limit { return l.TokenBucket(0).Limit(10, time.Minute) },
		"named":          func(l *weir.Limiter) *weir.Limit { return l.List().Limit(10, time.Minute).Named("n") },
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := newLimiter(t, weir.Config{})
			m, ctx := m(l), t.Context()
			used := func() uint64 {
				out, err := m.Peek(ctx, "k")
				require.NoError(t, err)
				return out.TotalRequests
			}
			v, err := m.Reserve(ctx, "k", 8)
			require.NoError(t, err)
			assert.True(t, v.Allowed())
			assert.EqualValues(t, 2, v.Left)
			assert.Same(t, m, v.By)
			assert.False(t, v.FullAt.IsZero())
			denied, err := m.Reserve(ctx, "k", 3)
			require.NoError(t, err)
			assert.False(t, denied.Allowed())
			assert.Positive(t, denied.Wait)
			require.NoError(t, denied.Commit(ctx, 1))
			assert.EqualValues(t, 8, used(), "a denial has nothing to correct")
			require.NoError(t, v.Commit(ctx, 5))
			require.NoError(t, v.Cancel(ctx))
			assert.EqualValues(t, 5, used(), "the first Commit counts")
			over, err := m.Reserve(ctx, "k", 11)
			require.NoError(t, err)
			assert.EqualValues(t, int64(math.MaxInt64), over.Wait, "it can never pass")
			_, err = m.Reserve(ctx, "", 1)
			assert.ErrorIs(t, err, weir.ErrID)
		})
	}
}

// A Strategy that cannot give back reserves nothing.
func TestALimitThatCannotReserve(t *testing.T) {
	run := &counting{}
	m, err := weir.NewLimit(run, 10, time.Minute)
	require.NoError(t, err)
	_, err = m.Reserve(t.Context(), "k", 1)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "cannot refund and charge")
	assert.Zero(t, run.runs)
}

// counting is a Strategy that can only Run.
type counting struct{ runs int }

func (c *counting) Run(context.Context, *weir.Request) (*weir.Result, error) {
	c.runs++
	return &weir.Result{State: weir.Allow}, nil
}
