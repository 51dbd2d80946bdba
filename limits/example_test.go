package limits_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/weirtest"
)

func limiterAt(clock *weirtest.Clock) *weir.Limiter {
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	if err != nil {
		panic(err)
	}
	return limiter
}

// noon returns the clock of the examples, which stands still so that they always print the same.
func noon() *weirtest.Clock {
	return weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
}

// A hit that the second limit denies takes nothing from the first one.
func ExampleAll() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	perMinute := limiter.TokenBucket(5).Limit(60, time.Minute)
	perDay := limiter.FixedWindow().Limit(2, 24*time.Hour)
	both := limits.All(perMinute, perDay)
	for range 3 {
		out, err := both.Take(context.Background(), "10.0.0.7", 1)
		fmt.Println(out.Allowed(), "by", out.By, err)
	}
	out, err := perMinute.Peek(context.Background(), "10.0.0.7")
	fmt.Println("left this minute:", out.Left, err)
	// Output:
	// true by fixed window, 2 in 24h <nil>
	// true by fixed window, 2 in 24h <nil>
	// false by fixed window, 2 in 24h <nil>
	// left this minute: 3 <nil>
}

// A user and an organisation, requests and tokens: all limits admit the request, or none counts it.
func ExampleDecide() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	requests := limiter.SlidingWindow().Limit(2, time.Minute)
	tokens := limiter.TokenBucket(0).Limit(1000, time.Minute)
	ask := func(user, org string, cost uint64) {
		out, err := limits.Decide(context.Background(), requests.For(user), tokens.For(org).Cost(cost))
		if err != nil {
			panic(err)
		}
		fmt.Println(out)
	}
	ask("ann", "acme", 600)
	ask("bob", "acme", 600) // over the tokens of the organisation
	ask("bob", "acme", 300)
	ask("bob", "acme", 50)
	ask("bob", "acme", 50) // over the requests of the user
	// Output:
	// allowed, 1 of 2 left: sliding window, 2 in 1m
	// denied for 12s, 400 of 1000 left: token bucket, 1000 in 1m
	// allowed, 1 of 2 left: sliding window, 2 in 1m
	// allowed, 0 of 2 left: sliding window, 2 in 1m
	// denied for 1m30s, 0 of 2 left: sliding window, 2 in 1m
}

// One request, and the tokens that it came to.
func ExampleReserve_several() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	requests := limiter.FixedWindow().Limit(60, time.Minute)
	tokens := limiter.SlidingWindow().Limit(1000, time.Minute)
	v, err := limits.Reserve(context.Background(), requests.For("ann"),
		tokens.For("ann").Cost(400)) // an estimate
	if err != nil {
		panic(err)
	}
	defer v.Cancel(context.Background()) // does nothing after CommitEach
	if !v.Allowed() {
		return
	}
	if err := v.CommitEach(context.Background(), 1, 150); err != nil {
		panic(err)
	}
	out, err := tokens.Peek(context.Background(), "ann")
	fmt.Println(out.TotalRequests, err)
	// Output: 150 <nil>
}

// A middleware keeps Attempts from request to request.
func ExampleAttempts() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	attempts := limits.Attempts{limits.NewAttempt(limiter.FixedWindow()),
		limits.NewAttempt(limiter.SlidingLog())}
	attempts[1].Advisory = true // it is tried out, and denies nothing
	for range 3 {
		attempts[0].Op.Request = weir.Request{Key: "ann", Limit: 5, Duration: time.Second}
		attempts[1].Op.Request = weir.Request{Key: "ann", Limit: 2, Duration: time.Second}
		allowed, err := attempts.Take(context.Background(), nil)
		if err != nil {
			panic(err)
		}
		fmt.Println(allowed, attempts[0].Remaining(), attempts[1].Denies())
	}
	// Output:
	// true 4 false
	// true 3 false
	// true 2 true
}
