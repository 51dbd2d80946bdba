package near_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/weirtest"
)

// model is an algorithm that knows each admission when it is made. It reports whether it would
// admit that, too.
type model func(now time.Time, r weir.Request) bool

func slidingModel() model {
	windows := map[int64]float64{}
	return func(now time.Time, r weir.Request) bool {
		d := r.Duration.Milliseconds()
		w := now.UnixMilli() / d
		windows[w] += float64(r.Cost)
		before := windows[w-1] * float64((w+1)*d-now.UnixMilli()) / float64(d)
		return windows[w]+before <= float64(r.Limit)+1e-6
	}
}

// bucketModel is that of a token bucket, which admits so much more at once than it holds.
func bucketModel(burst, more uint64) func() model {
	return func() model {
		var full time.Time
		return func(now time.Time, r weir.Request) bool {
			each := (r.Duration + time.Duration(r.Limit) - 1) / time.Duration(r.Limit)
			if full.Before(now) {
				full = now
			}
			full = full.Add(time.Duration(r.Cost) * each)
			return full.Sub(now) <= time.Duration(cmp.Or(burst, r.Limit)+more)*each
		}
	}
}

// checked is a strategy whose leases are checked against a model.
type checked struct {
	name    string
	of      func(*weir.Limiter) weir.Strategy
	refunds int // of 10 admissions
	model   func() model
}

// A refund moves the instant at which a bucket is full, and not those at which what other instances
// hold lapses: a block of each may be admitted beside.
var bounded = []checked{
	{"SlidingWindow", func(l *weir.Limiter) weir.Strategy {
		return l.SlidingWindow()
	}, 1, slidingModel},
	{"TokenBucket", func(l *weir.Limiter) weir.Strategy {
		return l.TokenBucket(0)
	}, 0, bucketModel(0, 0)},
	{"TokenBucket of 30", func(l *weir.Limiter) weir.Strategy {
		return l.TokenBucket(30)
	}, 0, bucketModel(30, 0)},
	{"refunds to a TokenBucket", func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(0) }, 3,
		bucketModel(0, 3*maxBlock)},
}

const maxBlock = 60

// violations has three instances make requests of random cost, at random speeds, and gives some of
// them back at once. It returns how many of the others were admitted and the model would not have.
func violations(t *testing.T, seed uint64, of checked) (n, saved uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	clock := weirtest.NewClock(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))
	server, m := remotely(of.of(limiterOn(t, clock.Now))), of.model()
	var fleet []*near.Leases
	for range 3 {
		fleet = append(fleet, near.NewLeases(server,
			near.LeaseConfig{Block: 1 + rng.IntN(maxBlock), Instances: 3,
				Skew: -1, Now: clock.Now}))
	}
	r := weir.Request{Key: "a", Limit: 1 + rng.Uint64N(300), Duration: time.Minute}
	pace := time.Minute / time.Duration(1+rng.IntN(500))
	for range 600 {
		if clock.Advance(time.Duration(rng.Int64N(2 * int64(pace)))); rng.IntN(100) == 0 {
			pace = time.Minute / time.Duration(1+rng.IntN(500))
		}
		l := fleet[rng.IntN(3)]
		r.Cost = 1 + rng.Uint64N(5)
		res := ask(t, l, r)
		switch {
		case !res.Allowed():
		case rng.IntN(10) < of.refunds:
			require.NoError(t, ops.Refund(t.Context(), l, &r, &res))
		case !m(clock.Now(), r):
			n++
		}
	}
	for _, l := range fleet {
		saved += l.Stats().Leased
	}
	return n, saved
}

func TestLeasesAdmitWhatTheStrategyWould(t *testing.T) {
	for _, of := range bounded {
		t.Run(of.name, func(t *testing.T) {
			saved := uint64(0)
			for seed := range uint64(slow.N(15, 120, 4000)) {
				n, leased := violations(t, seed, of)
				require.Zero(t, n, "seed %d", seed)
				saved += leased
			}
			assert.Positive(t, saved)
		})
	}
}

// The control: the same test rejects leases that last for a day.
func TestLeasesAdmitWhatTheStrategyWouldControl(t *testing.T) {
	for _, of := range bounded[:3] {
		over, inner := uint64(0), of.of
		of.of = func(l *weir.Limiter) weir.Strategy { return lasting{weir.CounterOf(inner(l))} }
		for seed := range uint64(20) {
			n, _ := violations(t, seed, of)
			over += n
		}
		assert.Positive(t, over, of.name)
	}
}

// lasting is a strategy whose cost is said to be good for the rest of the day.
type lasting struct{ weir.Counter }

func (l lasting) About() *weir.About {
	a := l.Counter.About().By(l)
	a.Lapses = weir.LapsesWithWindow
	return a
}

func (l lasting) Do(ctx context.Context, ops []*weir.Op) {
	l.Counter.Do(ctx, ops)
	for _, op := range ops {
		if op.Verb == weir.OpTake {
			op.Result.ExpiresAt = op.Result.ExpiresAt.Truncate(24 * time.Hour).Add(24 * time.Hour)
		}
	}
}

// A bucket whose ExpiresAt is the end of a window is no fixed window: all of it is admitted.
func TestLeaseOfABucketThatIsFullAtAWindowsEdge(t *testing.T) {
	clock := weirtest.NewClock(time.Date(2026, 1, 2, 3, 0, 59, int(400*time.Millisecond), time.UTC))
	bucket := limiterOn(t, clock.Now).TokenBucket(0)
	l := near.NewLeases(bucket, near.LeaseConfig{Block: 10, Skew: -1, Now: clock.Now})
	require.Equal(t, clock.Now().Truncate(time.Minute).Add(time.Minute), ask(t, l, hundred).ExpiresAt)
	assert.EqualValues(t, 99, most(t, l, hundred))
}
