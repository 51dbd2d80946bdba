package verify

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// rollingSubject is a strategy whose buckets go from epoch to epoch as fast as the clock moves.
type rollingSubject struct {
	name    string
	make    func(l *weir.Limiter) weir.Strategy
	request weir.Request
	step    time.Duration // of the clock
	calls   int           // between two steps
	wrong   func(admitted []weir.Result) string
}

const rollingLimit = 15

func rollingSubjects() []rollingSubject {
	short := weir.Request{Limit: rollingLimit, Duration: time.Millisecond}
	return []rollingSubject{
		{"FixedWindow", func(l *weir.Limiter) weir.Strategy {
			return l.FixedWindow()
		}, short, time.Millisecond, 20,
			func(admitted []weir.Result) string { return notCountedInTurn(admitted, false) }},
		{"SlidingWindow", func(l *weir.Limiter) weir.Strategy {
			return l.SlidingWindow()
		}, short, time.Millisecond, 20,
			func(admitted []weir.Result) string { return notCountedInTurn(admitted, true) }},
		{"Counter", func(l *weir.Limiter) weir.Strategy {
			return l.Counter()
		}, short, time.Millisecond, 20,
			func(admitted []weir.Result) string { return notCountedInTurn(admitted, false) }},
		// A token takes a day, so that the base moves with every fourth hit.
		{"TokenBucket", func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(0) },
			weir.Request{Limit: 3, Duration: 72 * time.Hour}, 8 * time.Hour, 64, notSpaced},
	}
}

// notCountedInTurn checks the totals of the admissions of one key, an epoch being what has one
// ExpiresAt: they are 1, 2, 3 and so on, or with sliding go on from those of the window before,
// which counts in full in windows of 1 ms.
func notCountedInTurn(admitted []weir.Result, sliding bool) string {
	totals := map[int64]uint64{} // by epoch: a bit for each total
	for _, res := range admitted {
		epoch, bit := res.ExpiresAt.UnixMilli(), uint64(1)<<res.TotalRequests
		if totals[epoch]&bit != 0 {
			return fmt.Sprintf("two hits of total %d expire at %v", res.TotalRequests, res.ExpiresAt)
		}
		totals[epoch] |= bit
	}
	for epoch, got := range totals {
		before := 0
		if sliding {
			before = bits.OnesCount64(totals[epoch-1])
		}
		if want := (uint64(1)<<bits.OnesCount64(got) - 1) << (before + 1); got != want {
			return fmt.Sprintf("totals %b, want %b, of those that expire at %d ms", got, want, epoch)
		}
	}
	return ""
}

// notSpaced checks that the bucket is full again at least a token later after each admission.
func notSpaced(admitted []weir.Result) string {
	var full []int64
	for _, res := range admitted {
		full = append(full, res.ExpiresAt.UnixNano())
	}
	slices.Sort(full)
	for i := range full[1:] {
		if d := time.Duration(full[i+1] - full[i]); d < 24*time.Hour {
			return fmt.Sprintf("full at %v, and again after %v", time.Unix(0, full[i]), d)
		}
	}
	return ""
}

// rollAndRecycle decides from 64 goroutines on keys of all lengths while the clock moves: a key is
// used for some epochs, and its slots by others then, since there is room for three buckets only.
// It returns what was admitted by key, and how many were denied or found no room.
func rollAndRecycle(
	t *testing.T, s weir.Strategy, of rollingSubject, clock *atomic.Int64, calls int,
) (admitted [][]weir.Result, denied, full int) {
	const goroutines = 64
	ids := mixedIDs()
	type outcome struct {
		admitted     [][]weir.Result
		denied, full int
	}
	each := make([]outcome, goroutines)
	var g errgroup.Group
	for i := range goroutines {
		g.Go(func() error {
			rnd, mine := rand.New(rand.NewPCG(1, uint64(i))), &each[i]
			mine.admitted = make([][]weir.Result, len(ids))
			r := of.request
			for range calls / goroutines {
				id := (int(clock.Load()/int64(of.step))/8 + rnd.IntN(2)) % len(ids)
				r.Key = ids[id]
				res, err := s.Run(context.Background(), &r)
				switch {
				case err == weir.ErrFull:
					mine.full++
				case err != nil:
					return err
				case res.Allowed():
					mine.admitted[id] = append(mine.admitted[id], *res)
				default:
					mine.denied++
				}
				if rnd.IntN(of.calls) == 0 {
					clock.Add(int64(of.step))
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	admitted = make([][]weir.Result, len(ids))
	for _, o := range each {
		for id := range ids {
			admitted[id] = append(admitted[id], o.admitted[id]...)
		}
		denied += o.denied
		full += o.full
	}
	return admitted, denied, full
}

// While epochs roll and slots are recycled as fast as possible, no hit is lost or counted twice,
// and none is decided on the words of two epochs.
func TestRollingEpochsCountExactly(t *testing.T) {
	for _, of := range rollingSubjects() {
		t.Run(of.name, func(t *testing.T) {
			calls := slow.N(20_000, 200_000, 10_000_000)
			var clock atomic.Int64
			l := newLimiter(t, weir.Config{
				Now: func() time.Time { return time.Unix(0, clock.Load()) }, MaxBuckets: 3, Timeout: 1,
				SweepEvery: time.Microsecond,
			})
			saw, denied, full := rollAndRecycle(t, of.make(l), of, &clock, calls)
			n := 0
			for id, admitted := range saw {
				n += len(admitted)
				assert.Empty(t, of.wrong(admitted), "key %d", id)
			}
			s := l.Stats()
			t.Logf("%d admitted, %d denied, %d ErrFull; %d swept", n, denied, full, s.Swept)
			assert.EqualValues(t, n, s.Allowed)
			assert.EqualValues(t, denied, s.Denied)
			assert.EqualValues(t, full, s.Full)
			assert.Positive(t, denied)
			assert.Greater(t, n, calls/200)
			clock.Add(int64(1000 * 24 * time.Hour))
			l.Sweep()
			assert.Zero(t, l.Stats().Buckets)
		})
	}
}
