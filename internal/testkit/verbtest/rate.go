package verbtest

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/weirtest"
)

// begin is when all histories do.
var begin = time.Unix(1_700_000_000, 123_456_789).UTC()

// Buckets returns a token bucket of a store that has counted nothing, on a clock.
type Buckets func(burst uint64, now func() time.Time) weir.Strategy

// RateStep is calls of Run at one instant.
type RateStep struct {
	After time.Duration // since the first step
	Runs  int
	Limit uint64
	Cost  uint64

	Allowed int
	Total   uint64        // of the last Result
	Wait    time.Duration // until its ExpiresAt
}

// RateRow is a history of one caller, whose requests have one Duration.
type RateRow struct {
	Name     string
	Burst    uint64
	Duration time.Duration
	Steps    []RateStep
}

// RateRows are histories in which the rate changes. What was used stays used, in tokens.
var RateRows = []RateRow{
	{"a raised rate helps at once", 16, 20 * time.Second, []RateStep{
		{0, 3, 10, 1, 3, 3, 6 * time.Second},
		{0, 1, 1000, 1, 1, 4, 80 * time.Millisecond},
	}},
	{"a lowered rate gives nothing away", 60, time.Minute, []RateStep{
		{0, 60, 60, 1, 60, 60, time.Minute},
		{0, 100, 6, 1, 0, 60, 10 * time.Second},
		{10*time.Second - 1, 1, 6, 1, 0, 60, 1},
		{10 * time.Second, 2, 6, 1, 1, 60, 10 * time.Second},
	}},
	{"a raised rate with a burst of its own", 20, time.Hour, []RateStep{
		{0, 20, 10, 1, 20, 20, 2 * time.Hour},
		{0, 1, 1000, 1, 0, 20, 3600 * time.Millisecond},
		{3600 * time.Millisecond, 2, 1000, 1, 1, 20, 3600 * time.Millisecond},
	}},
	{"a lowered rate with a burst of its own", 20, time.Hour, []RateStep{
		{0, 20, 600, 1, 20, 20, 2 * time.Minute},
		{0, 20, 6, 1, 0, 20, 10 * time.Minute},
		{10 * time.Minute, 20, 6, 1, 1, 20, 10 * time.Minute},
	}},
	{"a better plan on the same bucket", 5, time.Minute, []RateStep{
		{0, 4, 1, 1, 4, 4, 4 * time.Minute},
		{time.Second, 1, 600, 1, 1, 5, 498333334},
	}},
	{"what is missing is a part of a token", 2, time.Second, []RateStep{
		{0, 1, 3, 1, 1, 1, 333333334},
		{100 * time.Millisecond, 1, 1, 1, 1, 2, 1700000001}, // 0.7 tokens are missing, and 1/1e9
	}},
	{"a limit with a smaller burst", 0, time.Minute, []RateStep{
		{0, 60, 60, 1, 60, 60, time.Minute},
		{0, 1, 6, 1, 0, 60, 550 * time.Second},
		{0, 1, 120, 1, 1, 61, 30500 * time.Millisecond},
	}},
	{"limits that take turns", 4, time.Minute, []RateStep{
		{0, 4, 1, 1, 4, 4, 4 * time.Minute},
		{0, 1, 600, 1, 0, 4, 100 * time.Millisecond},
		{0, 1, 1, 1, 0, 4, time.Minute},
		{0, 1, 600, 1, 0, 4, 100 * time.Millisecond},
		{100 * time.Millisecond, 1, 1, 1, 1, 4, 4 * time.Minute},
	}},
	{"a limit of 0, and a cost that never fits, have no rate", 2, time.Second, []RateStep{
		{0, 2, 2, 1, 2, 2, time.Second},
		{0, 1, 0, 1, 0, 0, 0},
		{0, 1, 1, 3, 0, 2, 0},
		{500 * time.Millisecond, 1, 2, 1, 1, 2, time.Second},
	}},
	{"the rate of a bucket that is full", 2, time.Second, []RateStep{
		{0, 2, 2, 1, 2, 2, time.Second},
		{time.Second, 1, 1, 1, 1, 1, time.Second},
	}},
}

// Play plays a row, and returns how a store differs from it.
func (row *RateRow) Play(source Buckets) error {
	c := weirtest.NewClock(begin)
	s := source(row.Burst, c.Now)
	for i, step := range row.Steps {
		c.Set(begin.Add(step.After))
		var res *weir.Result
		allowed := 0
		for range step.Runs {
			var err error
			res, err = s.Run(context.Background(), &weir.Request{Key: "a", Limit: step.Limit,
				Duration: row.Duration, Cost: step.Cost})
			if err != nil {
				return err
			}
			allowed += int(res.State)
		}
		wait := time.Duration(0)
		if !res.ExpiresAt.IsZero() {
			wait = res.ExpiresAt.Sub(c.Now())
		}
		if allowed != step.Allowed || res.TotalRequests != step.Total || wait != step.Wait {
			return fmt.Errorf("%s, step %d: %d allowed, of %d, for %v; want %+v", row.Name, i, allowed,
				res.TotalRequests, wait, step)
		}
	}
	return nil
}

// bucket is the model of one caller: at full, no token is missing, if one flows in every each.
// exact is what is missing at the instant at, without any rounding. All but full may be anything in
// a bucket that is full.
type bucket struct {
	full, each int64
	exact      *big.Rat
	at         int64
	changes    *big.Rat // a nanosecond's tokens for each change of the rate since the bucket was full
}

// spaced returns b at now, at the rate of one token every each.
func (b bucket) spaced(each, now int64) bucket {
	if b.full <= now {
		return bucket{now, each, new(big.Rat), now, new(big.Rat)}
	}
	flowed := big.NewRat(now-b.at, b.each)
	b.exact = new(big.Rat).Sub(b.exact, flowed)
	if b.exact.Sign() < 0 {
		b.exact.SetInt64(0)
	}
	b.at = now
	if each != b.each {
		b.full, b.each = respaced(b.full, b.each, each, now), each
		b.changes = new(big.Rat).Add(b.changes, big.NewRat(1, each))
	}
	return b
}

// respaced returns when a bucket is full, at full if a token flows in every was, if one does every
// each from now on.
func respaced(full, was, each, now int64) int64 {
	ns := new(big.Int).Mul(big.NewInt(full-now), big.NewInt(each))
	return now + ns.Add(ns, big.NewInt(was-1)).Quo(ns, big.NewInt(was)).Int64()
}

// take returns b with n tokens less.
func (b bucket) take(n int64) bucket {
	b.full += n * b.each
	b.exact = new(big.Rat).Add(b.exact, new(big.Rat).SetInt64(n))
	return b
}

// check fails if b has more tokens at now than without any rounding, or has lost more of them than
// one nanosecond's for each change of the rate.
func (b bucket) check(now int64) error {
	lost := new(big.Rat).Sub(big.NewRat(b.full-now, b.each), b.exact)
	if lost.Sign() < 0 || lost.Cmp(b.changes) > 0 {
		return fmt.Errorf("%v tokens were lost, of at most %v", lost, b.changes)
	}
	return nil
}

// missing returns how many tokens are missing at now, a part of one as one.
func (b bucket) missing(now int64) int64 { return (max(0, b.full-now) + b.each - 1) / b.each }

// run decides at now, and returns the Result.
func (b *bucket) run(burst, cost, now int64, count bool) (res weir.Result) {
	tolerance := (burst - cost) * b.each
	allowed := b.full-now <= tolerance
	next := *b
	at := b.full - tolerance
	if allowed {
		next = b.take(cost)
		res.State, at = weir.Allow, next.full
	}
	res.TotalRequests, res.ExpiresAt = uint64(next.missing(now)), time.Unix(0, at)
	if count {
		*b = next
	}
	return res
}

// rateLimits are those of which a history has some.
var rateLimits = []uint64{1, 2, 3, 6, 7, 10, 60, 600, 997, 1000, 86400, 1e6, 1e7}

// RateDifferences makes steps random calls, and returns the first difference of a store from the
// model. Each history has a bucket for each of a few callers, and a few rates that take turns.
func RateDifferences(source Buckets, seed uint64, steps int) error {
	random := rand.New(rand.NewPCG(seed, 0))
	for history := uint64(0); steps > 0; history++ {
		n := min(steps, 200)
		if err := play(source, random, n); err != nil {
			return fmt.Errorf("history %d: %w", history, err)
		}
		steps -= n
	}
	return nil
}

func play(source Buckets, random *rand.Rand, steps int) error {
	burst := []uint64{0, 1, 2, 5, 20, 100}[random.IntN(6)]
	d := []time.Duration{time.Second, 20 * time.Second, time.Minute, time.Hour}[random.IntN(4)]
	rates := make([]uint64, 2+random.IntN(3))
	for i := range rates {
		rates[i] = rateLimits[random.IntN(len(rateLimits))]
	}
	c := weirtest.NewClock(begin)
	s, buckets, last := source(burst, c.Now), map[string]bucket{}, time.Duration(0)
	for step := range steps {
		switch random.IntN(6) {
		case 0:
			c.Advance(time.Duration(random.Int64N(int64(d)/4 + 1)))
		case 1, 2:
			c.Advance(time.Duration(random.Int64N(int64(d)/1000 + 2)))
		case 3:
			c.Advance(time.Duration(random.IntN(3)))
		case 4:
			if last > 0 && last < d {
				c.Advance(last - time.Duration(random.IntN(2)))
			}
		}
		r := weir.Request{Key: []string{"a", "b"}[random.IntN(2)], Duration: d,
			Limit: rates[random.IntN(len(rates))], Cost: random.Uint64N(4)}
		res, err := call(s, &r, random.IntN(10), burst, buckets, c.Now().UnixNano())
		if err != nil {
			return fmt.Errorf("step %d at %v, %+v of %d: %w", step, c.Now(), r, burst, err)
		}
		last = 0
		if res != nil && !res.Allowed() && !res.ExpiresAt.IsZero() {
			last = res.ExpiresAt.Sub(c.Now())
		}
	}
	return nil
}

// call makes one call on a store and on the model.
func call(s weir.Strategy, r *weir.Request, op int, burst uint64, buckets map[string]bucket,
	now int64) (got *weir.Result, err error) {
	ctx, cost := context.Background(), max(1, int64(r.Cost))
	if burst == 0 {
		burst = r.Limit
	}
	each := (int64(r.Duration)-1)/int64(r.Limit) + 1
	b := buckets[r.Key].spaced(each, now)
	if err := b.check(now); err != nil {
		return nil, err
	}
	if op == 0 {
		buckets[r.Key] = b.take(cost)
		return nil, ops.Charge(ctx, s, r)
	}
	want := weir.Result{TotalRequests: uint64(b.missing(now))}
	if possible := uint64(cost) <= burst; possible {
		want = b.run(int64(burst), cost, now, op > 2)
	} else if op > 2 {
		b = buckets[r.Key]
	}
	if op > 2 {
		buckets[r.Key] = b
		got, err = s.Run(ctx, r)
	} else {
		got, err = ops.Peek(ctx, s, r)
	}
	if err != nil {
		return nil, err
	}
	if got.State != want.State || got.TotalRequests != want.TotalRequests ||
		!got.ExpiresAt.Equal(want.ExpiresAt) {
		return nil, fmt.Errorf("op %d: %+v, want %+v", op, *got, want)
	}
	return got, nil
}

// ForgetfulBucket returns a Strategy whose buckets keep an instant and no rate: it is to be
// rejected.
func ForgetfulBucket(burst uint64, now func() time.Time) weir.Strategy {
	return &forgetful{burst, now, map[string]time.Time{}}
}

type forgetful struct {
	burst uint64
	now   func() time.Time
	full  map[string]time.Time
}

func (f *forgetful) Run(_ context.Context, r *weir.Request) (*weir.Result, error) {
	if r.Limit == 0 {
		return nil, errors.ErrUnsupported
	}
	now, full := f.now(), f.full[r.Key]
	if full.Before(now) {
		full = now
	}
	burst, cost := f.burst, max(1, r.Cost)
	if burst == 0 {
		burst = r.Limit
	}
	each := (r.Duration-1)/time.Duration(r.Limit) + 1
	res := &weir.Result{ExpiresAt: full.Add(-time.Duration(burst-cost) * each)}
	if !res.ExpiresAt.After(now) {
		full = full.Add(time.Duration(cost) * each)
		f.full[r.Key], res.State, res.ExpiresAt = full, weir.Allow, full
	}
	res.TotalRequests = uint64((full.Sub(now) + each - 1) / each)
	return res, nil
}
