package weir_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/weirgo/weir"
)

// verdicts makes n requests and prints the verdicts.
func verdicts(s weir.Strategy, n int, r weir.Request) {
	var states []weir.State
	for range n {
		res, err := s.Run(context.Background(), &r)
		if err != nil {
			log.Fatal(err)
		}
		states = append(states, res.State)
	}
	fmt.Println(states)
}

// Half of the window before still counts when half of this one is over.
func ExampleLimiter_SlidingWindow() {
	clock := noon()
	limiter := limiterAt(clock)
	defer limiter.Close()

	perMinute := weir.Request{Key: "10.0.0.7", Limit: 4, Duration: time.Minute}
	sliding := limiter.SlidingWindow()
	verdicts(sliding, 5, perMinute)
	clock.Advance(90 * time.Second)
	verdicts(sliding, 3, perMinute)
	// Output:
	// [Allow Allow Allow Allow Deny]
	// [Allow Allow Deny]
}

// Who is behind an address? Meta says it, and Entries lists it.
func ExampleLimiter_SlidingLog() {
	clock := noon()
	limiter := limiterAt(clock)
	defer limiter.Close()

	log := limiter.SlidingLog()
	r := weir.Request{Key: "10.0.0.7", Limit: 2, Duration: time.Minute}
	for _, user := range []string{"ann", "bob", "cy"} {
		r.Meta = user
		verdicts(log, 1, r)
		clock.Advance(time.Second)
	}
	entries, err := log.Entries(context.Background(), &r)
	for _, e := range entries {
		fmt.Println(e.At.UTC().Format(time.TimeOnly), e.Meta)
	}
	fmt.Println(err)
	// Output:
	// [Allow]
	// [Allow]
	// [Deny]
	// 12:00:00 ann
	// 12:00:01 bob
	// <nil>
}

// 10 a second flow in, and up to 3 are kept.
func ExampleLimiter_TokenBucket() {
	clock := noon()
	limiter := limiterAt(clock)
	defer limiter.Close()

	bucket := limiter.TokenBucket(3)
	tenASecond := weir.Request{Key: "10.0.0.7", Limit: 10, Duration: time.Second}
	verdicts(bucket, 4, tenASecond)
	clock.Advance(100 * time.Millisecond)
	verdicts(bucket, 2, tenASecond)
	// Output:
	// [Allow Allow Allow Deny]
	// [Allow Deny]
}

// Run waits its turn, here for a tenth of a second; who gives up leaves the queue.
func ExampleLimiter_LeakyBucket() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	queue := limiter.LeakyBucket(1)
	tenASecond := weir.Request{Key: "mail", Limit: 10, Duration: time.Second}
	begun := time.Now()
	verdicts(queue, 2, tenASecond)
	fmt.Println(time.Since(begun) >= 99*time.Millisecond)

	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = queue.Run(gone, &tenASecond)
	fmt.Println(err)
	// Output:
	// [Allow Allow]
	// true
	// context canceled
}

// A request that one tier denies is charged to none.
func ExampleLimiter_Tiers() {
	clock := noon()
	limiter := limiterAt(clock)
	defer limiter.Close()

	tiers, err := limiter.Tiers(
		weir.Tier{Limit: 2, Duration: time.Second},
		weir.Tier{Limit: 3, Duration: 10 * time.Second},
	)
	if err != nil {
		log.Fatal(err)
	}
	r := weir.Request{Key: "10.0.0.7"}
	verdicts(tiers, 3, r)
	clock.Advance(time.Second)
	verdicts(tiers, 1, r)
	res, binding, _ := tiers.RunTier(context.Background(), &r)
	fmt.Println(res.State, "by", binding.Limit, "in", binding.Duration)
	// Output:
	// [Allow Allow Deny]
	// [Allow]
	// Deny by 3 in 10s
}

// What the first admitted is given back when the second denies.
func ExampleAll() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	both := weir.All(
		weir.Policy{Name: "burst", Strategy: limiter.TokenBucket(5), Limit: 60, Duration: time.Minute},
		weir.Policy{Name: "daily", Strategy: limiter.FixedWindow(), Limit: 2, Duration: 24 * time.Hour},
	)
	r := weir.Request{Key: "10.0.0.7"}
	verdicts(both, 3, r)
	// Output: [Allow Allow Deny]
}

func ExamplePolicy() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	reads := weir.Policy{Name: "reads", Strategy: limiter.FixedWindow(), Limit: 3, Duration: time.Minute}
	writes := weir.Policy{Name: "writes", Strategy: limiter.FixedWindow(), Limit: 1, Duration: time.Minute}
	r := weir.Request{Key: "10.0.0.7"}
	verdicts(writes, 2, r)
	verdicts(reads, 2, r)
	// Output:
	// [Allow Deny]
	// [Allow Allow]
}
