package recipes

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
)

func Example_userAndOrganisation() {
	ctx, limiter := context.Background(), newLimiter()
	defer limiter.Close()

	window := limiter.SlidingWindow()
	admit := func(user, org string) (weir.Decision, error) {
		return weir.Decide(ctx,
			weir.Ask{Strategy: window, Request: weir.Request{
				Key: weir.JoinKey("user", user), Limit: 2, Duration: time.Minute}},
			weir.Ask{Strategy: window, Request: weir.Request{
				Key: weir.JoinKey("org", org), Limit: 3, Duration: time.Minute}},
		)
	}
	for _, user := range []string{"ann", "ann", "ann", "bob", "bob"} {
		d, err := admit(user, "acme")
		if err != nil {
			log.Fatal(err) // could not decide
		}
		fmt.Println(user, d.Allowed(), "by", []string{"the user", "the organisation"}[d.By])
	}
	// Output:
	// ann true by the user
	// ann true by the user
	// ann false by the user
	// bob true by the organisation
	// bob false by the organisation
}

func Example_tokens() {
	ctx, limiter := context.Background(), newLimiter()
	defer limiter.Close()
	generate := func() uint64 { return 300 } // how many tokens it took

	bucket := limiter.TokenBucket(0)
	complete := func(user string, maxTokens uint64) error {
		res, err := weir.Reserve(ctx, bucket, &weir.Request{
			Key: user, Limit: 10_000, Duration: time.Minute, Cost: maxTokens})
		if err != nil {
			return err
		}
		if !res.Allowed() {
			denied := res.Result()
			return fmt.Errorf("%d tokens are used, try again at %s",
				denied.TotalRequests, denied.ExpiresAt.Format(time.TimeOnly))
		}
		defer res.Cancel(ctx) // if generate panics; after Commit it does nothing
		return res.Commit(ctx, generate())
	}
	for range 3 {
		fmt.Println(complete("ann", 9_600))
	}
	// Output:
	// <nil>
	// <nil>
	// 600 tokens are used, try again at 12:00:01
}

func Example_priorityHeadroom() {
	ctx, limiter := context.Background(), newLimiter()
	defer limiter.Close()

	window := limiter.SlidingWindow()
	user := weir.Request{Key: "db", Limit: 100, Duration: time.Second}
	batch := user
	batch.Limit = 80 // of the same count: 20 are left for users
	count := func(r weir.Request) (admitted int) {
		for range 1000 {
			if res, err := window.Run(ctx, &r); err == nil && res.Allowed() {
				admitted++
			}
		}
		return admitted
	}
	fmt.Println(count(batch), count(user), count(batch))
	// Output: 80 20 0
}

func Example_priorityHeadroomOfATokenBucket() {
	ctx, limiter := context.Background(), newLimiter()
	defer limiter.Close()

	// Both flow in at 100 a second, and are one bucket. Batch jobs leave 20 of its 100 tokens.
	users, batch := limiter.TokenBucket(100), limiter.TokenBucket(80)
	count := func(s weir.Strategy) (admitted int) {
		for range 1000 {
			res, err := s.Run(ctx, &weir.Request{Key: "db", Limit: 100, Duration: time.Second})
			if err == nil && res.Allowed() {
				admitted++
			}
		}
		return admitted
	}
	fmt.Println(count(batch), count(users), count(batch))
	// Output: 80 20 0
}

// The headroom is exact while both call at once. Without a common count it is not: the control.
func TestHeadroomIsExact(t *testing.T) {
	limiter := newLimiter()
	defer limiter.Close()
	for name, s := range map[string][2]weir.Strategy{
		"window": {limiter.SlidingWindow(), limiter.SlidingWindow()},
		"bucket": {limiter.TokenBucket(100), limiter.TokenBucket(80)},
	} {
		limits := [2]uint64{100, 80}
		if name == "bucket" {
			limits[1] = 100 // the rate; its burst is lower
		}
		race := func(keys [2]string) (users, batch int64) {
			var admitted [2]atomic.Int64
			var g errgroup.Group
			for i := range 8 {
				g.Go(func() error {
					for range 50 {
						r := &weir.Request{Key: keys[i%2], Limit: limits[i%2], Duration: time.Second}
						res, err := s[i%2].Run(t.Context(), r)
						if err != nil {
							return err
						}
						admitted[i%2].Add(int64(res.State))
					}
					return nil
				})
			}
			require.NoError(t, g.Wait())
			return admitted[0].Load(), admitted[1].Load()
		}
		for i := range 50 {
			key := fmt.Sprint(name, i)
			users, batch := race([2]string{key, key})
			assert.EqualValues(t, 100, users+batch, name)
			assert.LessOrEqual(t, batch, int64(80), name)
			users, batch = race([2]string{key + "users", key + "batch"})
			assert.EqualValues(t, 180, users+batch, "control")
		}
	}
}
