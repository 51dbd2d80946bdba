package weir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir/internal/core/calendar"
	"github.com/weirgo/weir/internal/core/windows"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// limited is a strategy of each kind, by what it takes to make a Limit.
var limited = map[string]func(l *Limiter, n uint64, d time.Duration) *Limit{
	"FixedWindow":   func(l *Limiter, n uint64, d time.Duration) *Limit { return l.FixedWindow().Limit(n, d) },
	"SlidingWindow": func(l *Limiter, n uint64, d time.Duration) *Limit { return l.SlidingWindow().Limit(n, d) },
	"TokenBucket":   func(l *Limiter, n uint64, d time.Duration) *Limit { return l.TokenBucket(0).Limit(n, d) },
	"Counter":       func(l *Limiter, n uint64, d time.Duration) *Limit { return l.Counter().Limit(n, d) },
	"SlidingLog":    func(l *Limiter, n uint64, d time.Duration) *Limit { return l.SlidingLog().Limit(n, d) },
	"List":          func(l *Limiter, n uint64, d time.Duration) *Limit { return l.List().Limit(n, d) },
	"InFlight": func(l *Limiter, n uint64, d time.Duration) *Limit {
		return mustLimit(l.InFlight(), n, d)
	},
	"Calendar": func(l *Limiter, n uint64, _ time.Duration) *Limit {
		return l.Calendar(Month, nil).Limit(n)
	},
	"Tiers": func(l *Limiter, n uint64, d time.Duration) *Limit {
		tiers := l.Tiers(Tier{n, d})
		return tiers.Limit()
	},
	"another package's": func(l *Limiter, n uint64, d time.Duration) *Limit {
		return mustLimit(foreign{l.SlidingWindow()}, n, d)
	},
}

// hit is Take of m, or a lease by the strategy of one on work in flight.
func hit(t testing.TB, m *Limit, key string, cost uint64) Outcome {
	t.Helper()
	if !CounterOf(m).About().InFlight {
		return MustTake(t, m, key, cost)
	}
	return Outcome{Result: *MustRun(t, CounterOf(m), &Request{Key: key, Cost: cost})}
}

// foreign is a Strategy of another package, which knows no Limit.
type foreign struct{ of *SlidingWindow }

func (s foreign) Run(ctx context.Context, r *Request) (*Result, error) { return s.of.Run(ctx, r) }

func (s foreign) About() *About {
	return &About{Of: s, Name: "foreign", Verbs: VerbsOf(OpTake, OpPeek, OpReset)}
}

func (s foreign) Do(ctx context.Context, ops []*Op) {
	for _, op := range ops {
		if !s.About().Verbs.Has(op.Verb) || op.Keep || op.Backlog != nil {
			op.Err = op.Unsupported(s.About())
			continue
		}
		full := op.Full
		op.Counter, op.Full = s.of, false
		s.of.Do(ctx, []*Op{op})
		op.Counter, op.Full, op.Left, op.Source = s, full, 0, Nowhere
	}
}

// manual returns a limiter on a clock that the test moves.
func manual(t testing.TB) (*Limiter, *time.Time) {
	now := time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)
	return MustNew(t, Config{SweepEvery: time.Hour, Now: func() time.Time { return now }}), &now
}

func TestLimitDecides(t *testing.T) {
	for name, of := range limited {
		if name == "InFlight" {
			continue // see TestEachVerbOfALimitInFlight
		}
		t.Run(name, func(t *testing.T) {
			l, _ := manual(t)
			m := of(l, 5, time.Minute)
			assert.True(t, m.Allow("ann"))
			assert.True(t, m.AllowBytes([]byte("ann")))
			out := MustTake(t, m, "ann", 2)
			assert.True(t, out.Allowed())
			assert.EqualValues(t, 4, out.TotalRequests)
			assert.EqualValues(t, 1, out.Left)
			assert.Zero(t, out.Wait)
			assert.Contains(t, out.By.String(), m.String())
			out, err := m.Peek(t.Context(), "ann")
			require.NoError(t, err)
			assert.True(t, out.Allowed())
			out = MustTake(t, m, "ann", 2)
			assert.False(t, out.Allowed(), "one is left")
			assert.EqualValues(t, 1, out.Left)
			if name != "another package's" { // whose Wait is by the real clock
				assert.Positive(t, out.Wait)
				assert.Equal(t, out.ExpiresAt.Sub(l.clock.Time(l.clock.Read())), out.Wait)
			}
			out = MustTake(t, m, "ann", 6)
			assert.False(t, out.Allowed())
			assert.EqualValues(t, int64(math.MaxInt64), out.Wait, "it can never pass")
			assert.True(t, m.Allow("ann"))
			assert.False(t, m.Allow("ann"))
			assert.False(t, m.AllowBytes([]byte("ann")))
			long := strings.Repeat("a long key ", 9)
			assert.True(t, m.Allow(long))
			assert.True(t, m.AllowBytes([]byte(long)))
			out = MustTake(t, m, long, 1)
			assert.EqualValues(t, 3, out.TotalRequests, "a string and its bytes are one key")
			res := MustRun(t, m, &Request{Key: long, Limit: 1, Duration: time.Hour, Cost: 2})
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
			l, _ := manual(t)
			m := of(l, 5, time.Minute)
			before := l.Stats().Invalid
			assert.False(t, m.Allow(""))
			assert.False(t, m.FailOpen().Allow(""), "a client may choose its key")
			assert.False(t, m.FailOpen().AllowBytes(make([]byte, 1025)))
			assert.EqualValues(t, 3, l.Stats().Invalid-before)
			_, err := m.Take(t.Context(), "", 1)
			require.ErrorIs(t, err, ErrID)
			assert.EqualError(t, err, "weir: bad key: it is empty, want 1 to 1024 bytes")
			_, err = m.Peek(t.Context(), strings.Repeat("k", 2000))
			require.ErrorIs(t, err, ErrID)
			require.ErrorIs(t, m.Wait(t.Context(), ""), ErrID)
			assert.True(t, m.FailOpen().Allow("k"))
			out, err := m.Peek(t.Context(), "k")
			require.NoError(t, err)
			assert.EqualValues(t, 4, out.Left, "a limit that fails open has the same counts")
			require.NoError(t, l.Close())
			_, err = m.Take(t.Context(), "k", 1)
			require.ErrorIs(t, err, ErrClosed)
			assert.False(t, m.Allow("k"))
			assert.True(t, m.FailOpen().Allow("k"))
		})
	}
}

func TestNumbersThatCanNeverBeRight(t *testing.T) {
	l, _ := manual(t)
	tokens := l.TokenBucket(math.MaxUint64)
	for want, limit := range map[string]func() (*Limit, error){
		"weir: bad duration: 0s, want 1ms to 8760h": func() (*Limit, error) {
			return NewLimit(l.SlidingWindow(), 5, 0)
		},
		"weir: bad duration: -1s, want 1ms to 8760h": func() (*Limit, error) {
			return NewLimit(foreign{l.SlidingWindow()}, 5, -time.Second)
		},
		"weir: bad duration: 1.5ms is not a whole number of milliseconds": func() (*Limit, error) {
			return NewLimit(l.FixedWindow(), 5, 1500*time.Microsecond)
		},
		"weir: bad limit: a burst of 9223372036854775807, one in 12s, takes centuries to refill": func() (
			*Limit, error) {
			return NewLimit(tokens, 5, time.Minute)
		},
		"weir: a limit needs a Strategy: unsupported operation": func() (*Limit, error) {
			return NewLimit(nil, 5, time.Minute)
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
			l, _ := manual(t)
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
	l, _ := manual(t)
	require.True(t, l.FixedWindow().Limit(1, time.Minute).Allow("k"))
	require.True(t, l.SlidingWindow().Limit(1, time.Minute).Allow("k"))
	held, err := l.InFlight().Limit(1).Hold(t.Context(), "k")
	require.NoError(t, err)
	res := MustCheck(t, l, "k", 60_000, 1)
	assert.True(t, res.Allowed())
	r := &Request{Key: "k", Limit: 1, Duration: time.Minute}
	for _, s := range []Strategy{l.SlidingWindow(), l.Counter(), l.InFlight()} {
		res := MustRun(t, s, r)
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
	l, _ := manual(t)
	month := l.Calendar(Month.From(17), nil).Limit(10)
	assert.Equal(t, "month:17@UTC", month.Period())
	assert.Equal(t, "calendar, 10 in month:17@UTC", month.String())
	assert.Equal(t, "1h30m", l.FixedWindow().Limit(10, 90*time.Minute).Period())
}

func TestTiersSayWhichBinds(t *testing.T) {
	l, now := manual(t)
	tiers := MustTiers(t, l, Tier{3, time.Second}, Tier{4, time.Minute})
	m := tiers.Limit().Named("both")
	out := MustTake(t, m, "k", 2)
	assert.EqualValues(t, 1, out.Left)
	assert.Equal(t, "both: tiers, 3 in 1s", out.By.String())
	*now = now.Add(10 * time.Second)
	out = MustTake(t, m, "k", 3)
	assert.False(t, out.Allowed())
	assert.Equal(t, "both: tiers, 4 in 1m", out.By.String())
	assert.EqualValues(t, 2, out.Left)
	assert.Equal(t, 50*time.Second, out.Wait)
	assert.True(t, out.By.Allow("k"), "a part decides by all tiers")
}

func TestLeakyBucketOfALimit(t *testing.T) {
	l := MustNew(t, Config{})
	m := l.LeakyBucket(5).Limit(1000, time.Second)
	start := time.Now()
	assert.True(t, m.Allow("k"))
	assert.False(t, m.Allow("k"), "it would have to wait")
	for range 3 {
		require.NoError(t, m.Wait(t.Context(), "k"))
	}
	out := MustTake(t, m, "k", 1)
	assert.True(t, out.Allowed())
	assert.GreaterOrEqual(t, time.Since(start), 4*time.Millisecond)
}

func TestHoldOfALimit(t *testing.T) {
	l, _ := manual(t)
	jobs := l.InFlight().Limit(1).Named("jobs")
	held, err := jobs.Hold(t.Context(), "k")
	require.NoError(t, err)
	_, err = l.InFlight().Limit(1).Named("jobs").Hold(t.Context(), "k")
	var denied *DeniedError
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
type embedding struct{ *SlidingWindow }

func (embedding) Run(context.Context, *Request) (*Result, error) { return new(Result), nil }

func TestLimitOfATypeThatEmbedsAStrategy(t *testing.T) {
	l, _ := manual(t)
	assert.False(t, mustLimit(embedding{l.SlidingWindow()}, 5, time.Second).Allow("k"))
}

// strategyFunc is a Strategy that is a function.
type strategyFunc func(ctx context.Context) (*Result, error)

func (f strategyFunc) Run(ctx context.Context, _ *Request) (*Result, error) { return f(ctx) }

// What a strategy of another package cannot do is said.
func TestLimitOfALesserStrategy(t *testing.T) {
	m := mustLimit(strategyFunc(func(context.Context) (*Result, error) {
		return &Result{State: Allow, TotalRequests: 1}, nil
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
	s := recording(func(r *Request) { keys = append(keys, r.Key) })
	for _, m := range []*Limit{
		mustLimit(s, 5, time.Second), mustLimit(s, 6, time.Second), mustLimit(s, 5, time.Minute),
		mustLimit(s, 5, time.Second).Named("api"), mustLimit(s, 9, time.Hour).Named("api"),
	} {
		require.True(t, m.Allow("ann"))
	}
	assert.Equal(t, []string{JoinKey("", "5/1s", "ann"), JoinKey("", "6/1s", "ann"), JoinKey("", "5/1m", "ann"),
		JoinKey("api", "ann"), JoinKey("api", "ann")}, keys)
}

type recording func(r *Request)

func (f recording) Run(_ context.Context, r *Request) (*Result, error) {
	f(r)
	return &Result{State: Allow, TotalRequests: 1}, nil
}

// A known caller's decision allocates nothing; a Strategy's Run its Result.
func TestLimitAllocatesNothing(t *testing.T) {
	l := MustNew(t, Config{})
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
				l, err := New(Config{MaxBuckets: 100})
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
	l := MustNew(t, Config{})
	var g errgroup.Group
	var made, refused atomic.Int64
	for w := range 8 {
		g.Go(func() error {
			for i := range 100_000 / 8 {
				m := l.SlidingWindow().Limit(uint64(w*100_000/8+i+1), time.Minute)
				switch out, err := m.Take(context.Background(), "k", 1); {
				case err == nil && out.TotalRequests == 1:
					made.Add(1)
				case errors.Is(err, ErrLimit):
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
	var made []*Limiter // closed here: those of all seeds are too many to keep until the test ends
	defer func() {
		for _, l := range made {
			_ = l.Close()
		}
	}()
	newOne := func() *Limiter {
		l, err := New(Config{MaxBuckets: 1000, SweepEvery: time.Hour,
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
	l, apart := newOne(), map[identity]*Limiter{}
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
			l, _ := manual(t)
			require.True(t, hit(t, of(l, 1, time.Hour), "k", 1).Allowed())
			require.True(t, hit(t, of(l, 1, time.Hour).Named("x"), "k", 1).Allowed())
			var saved bytes.Buffer
			require.NoError(t, l.Save(&saved))
			other, _ := manual(t)
			require.True(t, hit(t, of(other, 7, time.Hour).Named("y"), "k", 1).Allowed(), "another takes the first number")
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
	l := MustNew(t, Config{})
	fixed, sliding, log := l.FixedWindow(), l.SlidingWindow(), l.SlidingLog()
	limit := sliding.Limit(5, time.Hour)
	for name, call := range map[string]func() (*Result, error){
		"FixedWindow": func() (*Result, error) {
			return fixed.Run(t.Context(), &Request{Key: "k", Limit: 5, Duration: time.Hour})
		},
		"SlidingWindow": func() (*Result, error) {
			return sliding.Run(t.Context(), &Request{Key: "k", Limit: 5, Duration: time.Hour})
		},
		"SlidingLog": func() (*Result, error) {
			return log.Run(t.Context(), &Request{Key: "k", Limit: 5, Duration: time.Hour})
		},
		"a Limit": func() (*Result, error) { return limit.Run(t.Context(), &Request{Key: "k"}) },
	} {
		var res *Result
		n := testing.AllocsPerRun(100, func() { res, _ = call() })
		assert.False(t, res.Allowed())
		assert.LessOrEqual(t, n, 1.0, name)
	}
}

// Take and Peek agree on what is left where numbers are clamped.
func TestLeftOfClampedNumbers(t *testing.T) {
	l, _ := manual(t)
	for _, m := range []*Limit{
		l.TokenBucket(5).Limit(0, time.Minute), l.TokenBucket(5).Limit(1, time.Minute),
		l.FixedWindow().Limit(1<<60, time.Minute), l.SlidingWindow().Limit(1<<60, time.Minute),
	} {
		peeked, err := m.Peek(t.Context(), "k")
		require.NoError(t, err)
		out := MustTake(t, m, "k", 1)
		assert.Equal(t, out.Left, peeked.Left-min(1, peeked.Left), m)
	}
}

// A strategy that has its numbers cannot get others.
func TestBoundStrategiesKeepTheirNumbers(t *testing.T) {
	l, _ := manual(t)
	limit := l.SlidingWindow().Limit(10, time.Minute)
	for _, s := range []Strategy{limit, CounterOf(limit),
		CounterOf(mustLimit(foreign{l.SlidingWindow()}, 1, time.Second))} {
		_, err := NewLimit(s, 1, time.Hour)
		require.ErrorIs(t, err, ErrLimit)
		assert.EqualError(t, err, "weir: bad limit: "+ops.Name(s)+" has its numbers already")
	}
}

// A limit that finds no series fails in every way with the error that says so.
func TestLimitsBeyondTheBound(t *testing.T) {
	l, _ := manual(t)
	for i := range windows.MaxSeries {
		_, err := l.named(windows.SeriesName{Name: strconv.Itoa(i)}, nil)
		require.NoError(t, err)
	}
	a := l.SlidingWindow().Limit(1, time.Minute)
	_, err := a.Take(t.Context(), "k", 1)
	require.ErrorIs(t, err, ErrLimit)
	_, err = a.Hold(t.Context(), "k")
	require.ErrorIs(t, err, ErrLimit)
	require.ErrorIs(t, a.Reset(t.Context(), "k"), ErrLimit)
	assert.True(t, a.FailOpen().Allow("k"))
}

// A name is no label of another limit without one, and the burst of a wrapped bucket is in a label.
func TestLabelsAreApart(t *testing.T) {
	l, _ := manual(t)
	s := foreign{l.SlidingWindow()}
	plain := mustLimit(s, 1, time.Minute)
	require.True(t, plain.Allow("k"))
	assert.True(t, plain.Named("1/1m").Allow("k"))
	small := mustLimit(wrapping{l.TokenBucket(1)}, 10, time.Minute)
	large := mustLimit(wrapping{l.TokenBucket(5)}, 10, time.Minute)
	require.True(t, small.Allow("k"))
	out := MustTake(t, large, "k", 1)
	assert.EqualValues(t, 4, out.Left)
}

type wrapping struct{ of *TokenBucket }

func (s wrapping) Run(ctx context.Context, r *Request) (*Result, error) { return s.of.Run(ctx, r) }

func (s wrapping) About() *About { return s.of.About().By(s) }

func (s wrapping) Do(ctx context.Context, ops []*Op) {
	for _, op := range ops {
		_ = Do(ctx, s.of, op)
	}
}

// The rules of a zone that only the program knows hold for a limit of a snapshot.
func TestSnapshotOfALimitInAZoneOfTheProgram(t *testing.T) {
	zone, err := calendar.New(calendar.Day, time.FixedZone("", 7200))
	require.NoError(t, err)
	counted := func(l *Limiter) *Limit {
		in, err := l.windows.Named(windows.SeriesName{Calendar: "day@Here"}, &zone)
		require.NoError(t, err)
		return (&Calendar{l.inWindows(in)}).described().Limit(5)
	}
	l, _ := manual(t)
	require.True(t, counted(l).Allow("k"))
	var saved bytes.Buffer
	require.NoError(t, l.Save(&saved))
	other, _ := manual(t)
	m := counted(other)
	require.NoError(t, other.Load(&saved))
	out, err := m.Peek(t.Context(), "k")
	require.NoError(t, err)
	assert.EqualValues(t, 1, out.TotalRequests)
}

// Callers of equal limits wait in one line, wherever the limits are made.
func TestEqualLimitsQueueTogether(t *testing.T) {
	for name, of := range limited {
		if name == "InFlight" || name == "Calendar" || name == "another package's" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			Waiting(t, func(t *testing.T, l *Limiter) {
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
