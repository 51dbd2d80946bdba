package pages

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
	"github.com/weirgo/weir/limits"
)

func Example_userAndOrganisation() {
	ctx, limiter := context.Background(), newLimiter()
	defer limiter.Close()

	perUser := limiter.SlidingWindow().Limit(2, time.Minute).Named("user")
	perOrg := limiter.SlidingWindow().Limit(3, time.Minute).Named("org")
	for _, user := range []string{"ann", "ann", "ann", "bob", "bob"} {
		out, err := limits.Decide(ctx, perUser.For(user), perOrg.For("acme"))
		if err != nil {
			log.Fatal(err) // could not decide
		}
		fmt.Println(user, out.Allowed(), "by", out.By.Name())
	}
	// Output:
	// ann true by user
	// ann true by user
	// ann false by user
	// bob true by org
	// bob false by org
}

func Example_tokens() {
	ctx, limiter := context.Background(), newLimiter()
	defer limiter.Close()
	generate := func() uint64 { return 300 } // how many tokens it took

	tokens := limiter.TokenBucket(0).Limit(10_000, time.Minute)
	complete := func(user string, maxTokens uint64) error {
		res, err := tokens.Reserve(ctx, user, maxTokens)
		if err != nil {
			return err
		}
		if !res.Allowed() {
			return fmt.Errorf("%d tokens are used, try again at %s",
				res.TotalRequests, res.ExpiresAt.Format(time.TimeOnly))
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
	limiter := newLimiter()
	defer limiter.Close()

	users := limiter.SlidingWindow().Limit(100, time.Second).Named("db")
	batch := limiter.SlidingWindow().Limit(80, time.Second).Named("db") // 20 are left for users
	count := func(limit *weir.Limit) (admitted int) {
		for range 1000 {
			if limit.Allow("primary") {
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
	window := limiter.SlidingWindow()
	for name, limits := range map[string][2]*weir.Limit{
		"window": {window.Limit(100, time.Second), window.Limit(80, time.Second)},
		"bucket": {limiter.TokenBucket(100).Limit(100, time.Second),
			limiter.TokenBucket(80).Limit(100, time.Second)},
	} {
		race := func(keys [2]string) (users, batch int64) {
			var admitted [2]atomic.Int64
			var g errgroup.Group
			for i := range 8 {
				g.Go(func() error {
					for range 50 {
						out, err := limits[i%2].Named("db").Take(t.Context(), keys[i%2], 1)
						if err != nil {
							return err
						}
						admitted[i%2].Add(int64(out.State))
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
