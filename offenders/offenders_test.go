package offenders_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/offenders"
)

func Example() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	worst := offenders.New(offenders.Config{})
	strategy := worst.Watch(limiter.SlidingLog())

	for i, key := range []string{"10.0.0.7", "10.0.0.7", "10.0.0.7", "10.0.0.8", "10.0.0.8",
		"10.0.0.9"} {
		r := &weir.Request{Key: key, Limit: 1, Duration: time.Hour}
		if _, err := strategy.Run(context.Background(), r); err != nil {
			panic(fmt.Sprint(i, err))
		}
	}
	top, total := worst.Top(10)
	for _, o := range top {
		fmt.Println(o.Key, o.Denied)
	}
	fmt.Println("of", total)
	// Output:
	// 10.0.0.7 2
	// 10.0.0.8 1
	// of 3
}

// bounded returns which documented bounds the table breaks after so many denials of a million
// callers, Zipf.
func bounded(table *offenders.Table, size, sample, denials int) error {
	const callers = 1_000_000
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.01, 1, callers-1)
	denied := make([]uint64, callers)
	for range denials {
		id := zipf.Uint64()
		denied[id]++
		table.Denied(strconv.FormatUint(id, 10))
	}
	top, total := table.Top(size)
	noise := func(n uint64) float64 { // more than documented: that is for one key, and these are many
		return 6*math.Sqrt(float64(n)*float64(sample)) + 6*float64(sample)
	}
	if sample == 1 {
		noise = func(uint64) float64 { return 0 }
		if total != uint64(denials) {
			return fmt.Errorf("%d in all, want %d", total, denials)
		}
	}
	seen := map[string]bool{}
	for _, o := range top {
		seen[o.Key] = true
		id, _ := strconv.Atoi(o.Key)
		n := denied[id]
		least, most := float64(o.Denied-o.Error)-noise(n), float64(o.Denied)+noise(n)
		if float64(n) < least || float64(n) > most || o.Error > total/uint64(size) {
			return fmt.Errorf("%d denials of %d, shown as %+v", n, total, o)
		}
	}
	for id, n := range denied {
		if float64(n)-noise(n) > float64(total/uint64(size)) && !seen[strconv.Itoa(id)] {
			return fmt.Errorf("%d has %d denials of %d, and is not there", id, n, total)
		}
	}
	return nil
}

func TestDocumentedErrorHoldsForAMillionCallers(t *testing.T) {
	for _, tt := range []struct{ size, sample, denials int }{
		{1000, 1, slow.N(20_000, 1_000_000, 10_000_000)}, {100, 1, 30_000},
		{1000, 64, slow.N(200_000, 5_000_000, 50_000_000)}, {1000, 16, 100_000},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			t.Parallel()
			table := offenders.New(offenders.Config{Size: tt.size, Sample: tt.sample})
			assert.NoError(t, bounded(table, tt.size, tt.sample, tt.denials))
		})
	}
}

// The control has a smaller table than it says, and loses frequent callers.
func TestDocumentedErrorControlIsRejected(t *testing.T) {
	assert.Error(t, bounded(offenders.New(offenders.Config{Size: 100, Sample: 1}), 1000, 1, 50_000))
	assert.Error(t, bounded(offenders.New(offenders.Config{Size: 1000, Sample: 1024}), 1000, 2,
		150_000))
}

func limiter(t *testing.T) *weir.Limiter {
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func TestWatchChangesNothing(t *testing.T) {
	l := limiter(t)
	now := time.Unix(1_700_000_000, 0)
	worst := offenders.New(offenders.Config{Size: -1, Sample: -1, Now: func() time.Time {
		return now
	}})
	s := worst.Watch(l.FixedWindow())
	r := &weir.Request{Key: "a", Limit: 2, Duration: time.Hour}
	for _, want := range []weir.State{weir.Allow, weir.Allow, weir.Deny} {
		res, err := s.Run(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, want, res.State)
	}
	res, err := ops.Peek(t.Context(), s, r)
	require.NoError(t, err)
	assert.Equal(t, uint64(2), res.TotalRequests)
	_, err = s.Run(t.Context(), &weir.Request{Limit: 1, Duration: time.Hour})
	assert.ErrorIs(t, err, weir.ErrID)
	_, _, err = ops.Acquire(t.Context(), s, r)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	res, err = ops.Reconcile(t.Context(), s, r, &weir.Backlog{})
	require.NoError(t, err)
	assert.False(t, res.Allowed())

	v, err := limits.Reserve(t.Context(), weir.Ask{Strategy: s,
		Request: weir.Request{Key: "b", Limit: 2, Duration: time.Hour, Cost: 3}})
	require.NoError(t, err)
	assert.False(t, v.Allowed(), "a reservation that is denied counts")
	top, total := worst.Top(1)
	assert.Equal(t, []offenders.Offender{{Key: "a", Denied: 2, Last: now}}, top)
	assert.Equal(t, uint64(3), total, "an error is no denial, nor is what Peek says")
}

func TestWatchPassesAdmitOn(t *testing.T) {
	l := limiter(t)
	worst := offenders.New(offenders.Config{})
	s := worst.Watch(l.SlidingLog())
	r := &weir.Request{Key: "a", Limit: 1, Duration: time.Hour}
	for range 2 {
		res, giveBack, err := ops.Admit(t.Context(), s, r)
		require.NoError(t, err)
		require.True(t, res.Allowed())
		_, _, err = ops.Admit(t.Context(), s, r)
		require.NoError(t, err)
		require.NoError(t, giveBack(t.Context(), 1))
	}
	_, total := worst.Top(1)
	assert.EqualValues(t, 2, total, "the denials")

	type run struct{ weir.Strategy }
	_, _, err := ops.Admit(t.Context(), worst.Watch(run{l.SlidingLog()}), r)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestADenialAllocatesNothing(t *testing.T) {
	worst := offenders.New(offenders.Config{})
	worst.Denied("a")
	assert.Zero(t, testing.AllocsPerRun(1000, func() { worst.Denied("a") }))
}

// nothing returns neither a Result nor an error.
type nothing struct{}

func (nothing) Run(context.Context, *weir.Request) (*weir.Result, error) { return nil, nil }

func TestWatchReportsAStrategyWithoutAResult(t *testing.T) {
	_, err := offenders.New(offenders.Config{}).Watch(nothing{}).Run(t.Context(),
		&weir.Request{Key: "a"})
	assert.ErrorContains(t, err, "neither a Result nor an error")
}

// A cache in what is watched is asked first by those that wrap it.
func TestWatchCountsDenialsThatAreRepeated(t *testing.T) {
	l := limiter(t)
	worst := offenders.New(offenders.Config{})
	cached := near.NewDenials(l.SlidingLog(), near.DenialsConfig{})
	outer := near.NewLeases(worst.Watch(cached), near.LeaseConfig{})
	for range 10 {
		_, err := outer.Run(t.Context(), &weir.Request{Key: "a", Limit: 1, Duration: time.Hour})
		require.NoError(t, err)
	}
	_, total := worst.Top(1)
	assert.EqualValues(t, 9, total)
	assert.EqualValues(t, 8, cached.Repeated())
}

func TestConcurrentDenials(t *testing.T) {
	worst := offenders.New(offenders.Config{Size: 8, Sample: 1})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				worst.Denied(strconv.Itoa((i + g) % 20))
				if i%100 == 0 {
					worst.Top(3)
				}
			}
		})
	}
	wg.Wait()
	top, total := worst.Top(8)
	assert.EqualValues(t, 16_000, total)
	var sum uint64
	for _, o := range top {
		sum += o.Denied
	}
	assert.EqualValues(t, 16_000, sum)
}
