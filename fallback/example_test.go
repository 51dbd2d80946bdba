package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/weirtest"
)

// A service of three instances loses its Redis, represented here by a Fake. Each instance continues
// with a third of the remaining limit.
func ExampleNew() {
	clock := weirtest.NewClock(time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC))
	counted := func(n uint64) weirtest.Answer {
		return func(_ context.Context, r *weir.Request, now time.Time) (weir.Result, error) {
			return weir.Result{State: weir.Allow, TotalRequests: n,
				ExpiresAt: now.Truncate(r.Duration).Add(r.Duration)}, nil
		}
	}
	redis := weirtest.Sequence(counted(88), counted(91),
		weirtest.Fail(errors.New("connection refused")))
	redis.Now = clock.Now

	limiter, err := weir.New(weir.Config{Now: clock.Now})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	f, err := fallback.New(redis, limiter.FixedWindow(), fallback.Config{Instances: 3, Now: clock.Now})
	if err != nil {
		panic(err)
	}
	for range 6 {
		op := &weir.Op{Request: weir.Request{Key: "10.0.0.7", Limit: 100, Duration: time.Minute}}
		f.Do(context.Background(), []*weir.Op{op})
		if op.Err != nil {
			panic(op.Err)
		}
		fmt.Println(op.Result.State, op.Result.TotalRequests, "by", op.Source)
	}
	// Output:
	// Allow 88 by primary
	// Allow 91 by primary
	// Allow 98 by local
	// Allow 99 by local
	// Allow 100 by local
	// Deny 100 by local
}
