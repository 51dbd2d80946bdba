package weirtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/weirtest"
)

// greet is the code under test: it greets callers that are admitted.
func greet(s weir.Strategy, name string) string {
	res, err := s.Run(context.Background(), &weir.Request{Key: name, Limit: 5, Duration: time.Minute})
	switch {
	case err != nil:
		return "sorry, " + err.Error()
	case !res.Allowed():
		return "not now, " + name
	}
	return "hello, " + name
}

func ExampleFake() {
	fake := &weirtest.Fake{} // the zero value admits everything
	fmt.Println(greet(fake, "alice"))
	for _, call := range fake.Calls() {
		fmt.Println(call.Method, call.Request.Key, call.Request.Limit, call.Result.State)
	}
	// Output:
	// hello, alice
	// Run alice 5 Allow
}

func ExampleFake_answer() {
	long := func(ctx context.Context, r *weir.Request, now time.Time) (weir.Result, error) {
		if len(r.Key) > 5 {
			return weirtest.Deny(ctx, r, now)
		}
		return weirtest.Allow(ctx, r, now)
	}
	fake := &weirtest.Fake{Answer: long}
	fmt.Println(greet(fake, "alice"))
	fmt.Println(greet(fake, "barbara"))
	// Output:
	// hello, alice
	// not now, barbara
}

func ExampleFake_Unmet() {
	fake := &weirtest.Fake{}
	fake.Expect("Run", weir.Request{Key: "alice", Limit: 5})
	greet(fake, "bob")
	fmt.Println(fake.Unmet()) // in a test: defer fake.Verify(t)
	// Output:
	// expected a Run of "alice" limit 5, seen never
	// the calls were:
	// 	Run of "bob" limit 5 in 1m0s: Allow
}

func ExampleDenyAll() {
	fmt.Println(greet(weirtest.DenyAll(), "alice"))
	// Output: not now, alice
}

func ExampleDenyKeys() {
	fake := weirtest.DenyKeys("mallory")
	fmt.Println(greet(fake, "alice"))
	fmt.Println(greet(fake, "mallory"))
	// Output:
	// hello, alice
	// not now, mallory
}

func ExampleFailAll() {
	fmt.Println(greet(weirtest.FailAll(errors.New("the store is down")), "alice"))
	// Output: sorry, the store is down
}

func ExampleSequence() {
	fake := weirtest.Sequence(weirtest.Allow, weirtest.Fail(weir.ErrFull), weirtest.Deny)
	for range 4 {
		fmt.Println(greet(fake, "alice"))
	}
	// Output:
	// hello, alice
	// sorry, weir: table is full
	// not now, alice
	// not now, alice
}

func ExampleHang() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fake := &weirtest.Fake{Answer: weirtest.Hang}
	_, err := fake.Run(ctx, &weir.Request{Key: "alice"})
	fmt.Println(err)
	// Output: context deadline exceeded
}

func ExampleClock() {
	clock := weirtest.NewClock(time.Date(2026, 3, 1, 12, 0, 59, 0, time.UTC))
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	for range 3 {
		res, err := limiter.CheckRate("10.0.0.7", 60_000, 2)
		fmt.Println(res.State, err)
	}
	clock.Advance(time.Second) // into the next minute
	res, err := limiter.CheckRate("10.0.0.7", 60_000, 2)
	fmt.Println(res.State, err)
	// Output:
	// Allow <nil>
	// Allow <nil>
	// Deny <nil>
	// Allow <nil>
}

func ExampleTestStrategy() {
	var t *testing.T // your test's t

	weirtest.TestStrategy(t, func(t testing.TB, clock *weirtest.Clock) weir.Strategy {
		limiter, err := weir.New(weir.Config{Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { limiter.Close() })
		return limiter.FixedWindow()
	}, weirtest.Laws{
		// the most that is admitted across a window's edge
		Span:    func(limit uint64) uint64 { return 2 * limit },
		Aligned: true,
	})
}
