package weir_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/weirtest"
)

// original is a model of raterlimiter: one table of counters, keyed by window number and ID, that
// count every hit.
type original struct {
	table map[originalKey]*originalRow
}

type originalKey struct {
	window int64
	id     string
}

type originalRow struct{ counter, modified int64 }

// stamp rounds to the nearest millisecond.
func (o *original) stamp(now time.Time) int64 { return (now.UnixMicro() + 500) / 1000 }

func (o *original) checkRate(now time.Time, id string, scale, limit int64) string {
	key := originalKey{o.stamp(now) / scale, id}
	row := o.table[key]
	if row == nil {
		o.table[key] = &originalRow{1, o.stamp(now)}
		return "{ok, continue}"
	}
	row.counter++
	row.modified = o.stamp(now)
	if row.counter > limit {
		return fmt.Sprintf("{fail, %d}", limit)
	}
	return "{ok, continue}"
}

func (o *original) removeOld(now time.Time, timeout int64) {
	for key, row := range o.table {
		if row.modified < o.stamp(now)-timeout {
			delete(o.table, key)
		}
	}
}

// both is the limiter and the original with one clock.
type both struct {
	*weir.Limiter
	*weirtest.Clock
	original original
}

func newBoth(t *testing.T, start time.Time) *both {
	clock := weirtest.NewClock(start)
	limiter := weir.MustNew(t, weir.Config{Now: clock.Now, Timeout: time.Nanosecond})
	return &both{limiter, clock, original{map[originalKey]*originalRow{}}}
}

// verdicts returns the results of both for one call.
func (b *both) verdicts(t *testing.T, id string, scale, limit int64) (weirs, originals string) {
	v, err := b.Verdict(id, scale, limit)
	require.NoError(t, err)
	return v.String(), b.original.checkRate(b.Now(), id, scale, limit)
}

var y2012 = time.Date(2012, 5, 1, 12, 0, 0, 0, time.UTC)

// In random traces each ID has one scale and one limit, as in the original's use. The original
// sweeps after its timeout of 300 s, which no scale here exceeds; this limiter sweeps all the time.
func TestVerdictIsThatOfTheOriginal(t *testing.T) {
	scales := []int64{1, 7, 1000, 30_000, 300_000}
	limits := []int64{1, 2, 3, 500}
	for seed := range uint64(slow.N(20, 50, 2000)) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		b := newBoth(t, y2012.Add(time.Duration(rnd.Int64N(1e6))*time.Millisecond))
		var denied int
		for call := range 1000 {
			n := rnd.IntN(len(scales) * len(limits))
			scale, limit := scales[n/len(limits)], limits[n%len(limits)]
			weirs, originals := b.verdicts(t, fmt.Sprint(scale, "-", limit), scale, limit)
			require.Equal(t, originals, weirs, "seed %d, call %d: scale %d, limit %d", seed, call, scale,
				limit)
			if strings.HasPrefix(weirs, "{fail") {
				denied++
			}
			if rnd.IntN(3) == 0 {
				b.Advance(time.Duration(rnd.Int64N(1+rnd.Int64N(2000))) * time.Millisecond)
			}
			if rnd.IntN(50) == 0 {
				b.Sweep()
				b.original.removeOld(b.Now(), 300_000)
			}
		}
		require.NotZero(t, denied, "a trace without a denial shows nothing")
	}
}

func TestVerdictDiffersAtLimitZero(t *testing.T) {
	b := newBoth(t, y2012)
	weirs, originals := b.verdicts(t, "id", 1000, 0)
	assert.Equal(t, "{ok, continue}", originals, "the original lets the first hit of a window through")
	assert.Equal(t, "{fail, 0}", weirs)
	weirs, originals = b.verdicts(t, "id", 1000, 0)
	assert.Equal(t, originals, weirs, "the second is the same")
}

func TestVerdictDiffersAtScaleZero(t *testing.T) {
	b := newBoth(t, y2012)
	assert.Panics(t, func() { b.original.checkRate(b.Now(), "id", 0, 1) }, "the original crashes")
	for _, scale := range []int64{0, -1} {
		_, err := b.Verdict("id", scale, 1)
		assert.ErrorIs(t, err, weir.ErrScale, "scale %d", scale)
	}
}

func TestVerdictDiffersWhereScalesShareAWindowNumber(t *testing.T) {
	b := newBoth(t, y2012.Add(30*time.Minute)) // here both scales are in a window of the same number
	weirs, originals := b.verdicts(t, "id", 3_600_000, 1)
	require.Equal(t, "{ok, continue}", weirs)
	require.Equal(t, originals, weirs)
	weirs, originals = b.verdicts(t, "id", 3_600_001, 1)
	assert.Equal(t, "{fail, 1}", originals, "the original shares the counter")
	assert.Equal(t, "{ok, continue}", weirs)
}

func TestVerdictDiffersWhereTheOriginalLosesALiveCount(t *testing.T) {
	b := newBoth(t, time.Unix(1_336_003_200, 0)) // the start of a day
	const day, timeout = 86_400_000, 300_000
	b.verdicts(t, "id", day, 1)
	b.Advance(timeout*time.Millisecond + time.Millisecond)
	b.original.removeOld(b.Now(), timeout)
	b.Sweep()
	weirs, originals := b.verdicts(t, "id", day, 1)
	assert.Equal(t, "{ok, continue}", originals, "the original swept the counter in mid-window")
	assert.Equal(t, "{fail, 1}", weirs)
}

func TestVerdictDiffersByHalfAMillisecond(t *testing.T) {
	b := newBoth(t, time.Unix(1_336_003_200, 0))
	b.verdicts(t, "id", 1000, 1)
	b.Advance(time.Second - 500*time.Microsecond)
	weirs, originals := b.verdicts(t, "id", 1000, 1)
	assert.Equal(t, "{ok, continue}", originals, "the original rounds up into the next window")
	assert.Equal(t, "{fail, 1}", weirs)
}

func TestVerdictDiffersWhereALimitRises(t *testing.T) {
	b := newBoth(t, y2012)
	for range 3 {
		b.verdicts(t, "id", 60_000, 1)
	}
	weirs, originals := b.verdicts(t, "id", 60_000, 3)
	assert.Equal(t, "{fail, 3}", originals, "the original counted what it denied")
	assert.Equal(t, "{ok, continue}", weirs)
}
