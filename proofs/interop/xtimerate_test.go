// Package interop_test tests the modules of adapters against interfaces and programs of others that
// they must not require.
package interop_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/xrate"
)

// limiter is what a rate.Limiter and an xrate.Bucket have in common.
type limiter interface {
	Allow() bool
	AllowN(t time.Time, n int) bool
	Wait(ctx context.Context) error
	WaitN(ctx context.Context, n int) error
	Burst() int
	Tokens() float64
	TokensAt(t time.Time) float64
}

// reservation is what their Reservations have in common.
type reservation interface {
	OK() bool
	Delay() time.Duration
	DelayFrom(t time.Time) time.Duration
	Cancel()
	CancelAt(t time.Time)
}

var (
	_, _ limiter     = (*rate.Limiter)(nil), (*xrate.Bucket)(nil)
	_, _ reservation = (*rate.Reservation)(nil), (*xrate.Reservation)(nil)
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const (
	perSecond = 8                       // a token each 1/8 s: with the grids below float64 is exact
	each      = time.Second / perSecond //
	fine      = time.Second / 128       // a grid of instants between tokens
)

func newBucket(t testing.TB, limit uint64, d time.Duration, burst int) *xrate.Bucket {
	b, err := xrate.NewBucket(limit, d, burst)
	require.NoError(t, err)
	return b
}

// difference returns the first difference between a rate.Limiter and a Bucket in a random history,
// or "".
func difference(t testing.TB, r *rand.Rand, bucket *xrate.Bucket, burst int, grid time.Duration,
	cancels bool) string {
	theirs := rate.NewLimiter(perSecond, burst)
	var reserved []*rate.Reservation
	var own []*xrate.Reservation
	now := start
	for range 200 {
		now = now.Add(time.Duration(r.IntN(12)) * grid)
		n := r.IntN(burst + 2)
		switch op := r.IntN(8); {
		case op < 3:
			if want, got := theirs.AllowN(now, n), bucket.AllowN(now, n); want != got {
				return "AllowN"
			}
		case op < 6:
			if r.IntN(3) > 0 {
				n = 1
			}
			want, got := theirs.ReserveN(now, n), bucket.ReserveN(now, n)
			if want.OK() != got.OK() || want.DelayFrom(now) != got.DelayFrom(now) {
				return "ReserveN"
			}
			reserved, own = append(reserved, want), append(own, got)
		case cancels && len(own) > 0:
			i := r.IntN(len(own))
			reserved[i].CancelAt(now)
			own[i].CancelAt(now)
			reserved = append(reserved[:i], reserved[i+1:]...) // a second Cancel gives back again there
			own = append(own[:i], own[i+1:]...)
		}
		if want, got := math.Floor(theirs.TokensAt(now)), bucket.TokensAt(now); want != got {
			return "TokensAt"
		}
	}
	return ""
}

// In histories of random calls a Bucket answers as a rate.Limiter does.
func TestBucketIsARateLimiter(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		burst := 1 + r.IntN(10)
		what := difference(t, r, newBucket(t, perSecond, time.Second, burst), burst, fine, false)
		require.Empty(t, what, "seed %d", seed)
		what = difference(t, r, newBucket(t, perSecond, time.Second, burst), burst, each, true)
		require.Empty(t, what, "seed %d, with CancelAt", seed)
	}
}

// The negative control: a bucket with a token more, and one with another rate, are found out.
func TestDifferencesAreFound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	assert.NotEmpty(t, difference(t, r, newBucket(t, perSecond, time.Second, 5), 4, fine, false))
	assert.NotEmpty(t, difference(t, r, newBucket(t, perSecond+1, time.Second, 4), 4, fine, false))
}

// The differences that the documentation of Bucket lists.
func TestDocumentedDifferences(t *testing.T) {
	t.Run("instants out of order", func(t *testing.T) {
		theirs, own := rate.NewLimiter(10, 10), newBucket(t, 10, time.Second, 10)
		admitted := map[limiter]int{}
		for i := range 1000 {
			at := start.Add(time.Duration(i%2) * time.Second)
			for _, l := range []limiter{theirs, own} {
				if l.AllowN(at, 1) {
					admitted[l]++
				}
			}
		}
		assert.Equal(t, 11, admitted[own], "one, and at the later instant the burst")
		assert.Equal(t, 1000, admitted[theirs])
	})
	t.Run("whole tokens", func(t *testing.T) {
		theirs, own := rate.NewLimiter(10, 10), newBucket(t, 10, time.Second, 10)
		for _, l := range []limiter{theirs, own} {
			l.AllowN(start, 5)
		}
		at := start.Add(50 * time.Millisecond)
		assert.Equal(t, 5.5, theirs.TokensAt(at))
		assert.Equal(t, 5.0, own.TokensAt(at))
	})
	t.Run("negative n", func(t *testing.T) {
		theirs, own := rate.NewLimiter(10, 10), newBucket(t, 10, time.Second, 10)
		for _, l := range []limiter{theirs, own} {
			l.AllowN(start, 10)
			l.AllowN(start, -5)
		}
		assert.Equal(t, 5.0, theirs.TokensAt(start))
		assert.Equal(t, 0.0, own.TokensAt(start))
	})
	t.Run("a second Cancel", func(t *testing.T) {
		theirs, own := rate.NewLimiter(10, 10), newBucket(t, 10, time.Second, 10)
		a, b := theirs.ReserveN(start, 5), own.ReserveN(start, 5)
		theirs.AllowN(start, 5)
		own.AllowN(start, 5)
		for range 2 {
			a.CancelAt(start)
			b.CancelAt(start)
		}
		assert.Equal(t, 10.0, theirs.TokensAt(start))
		assert.Equal(t, 5.0, own.TokensAt(start))
	})
}

// On any Strategy a Limiter decides now, as a rate.Limiter of the same rate does at a full bucket.
func TestLimiterOnATokenBucket(t *testing.T) {
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer l.Close()
	theirs := rate.NewLimiter(rate.Every(time.Hour), 3)
	own := xrate.New(l.TokenBucket(3).Limit(1, time.Hour), xrate.Config{Key: "k"})
	assert.Equal(t, theirs.Burst(), own.Burst())
	assert.InDelta(t, float64(theirs.Limit()), own.Limit(), 1e-9)
	for i := range 4 {
		assert.Equal(t, math.Floor(theirs.Tokens()), own.Tokens())
		assert.Equal(t, theirs.Allow(), own.Allow(), "event %d", i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	assert.Error(t, theirs.Wait(ctx))
	assert.ErrorIs(t, own.Wait(ctx), context.DeadlineExceeded)
	assert.Error(t, theirs.WaitN(ctx, 4))
	assert.ErrorIs(t, own.WaitN(ctx, 4), weir.ErrLimit)
}
