package weir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/weirtest"
)

// noon returns the clock of the examples, which stands still so that they always print the same.
func noon() *weirtest.Clock {
	return weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
}

func limiterAt(clock *weirtest.Clock) *weir.Limiter {
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

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

func Example() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	for range 3 {
		res, err := limiter.CheckRate("10.0.0.7", 3_600_000, 2) // at most 2 hits an hour
		if err != nil {
			log.Fatal(err) // could not decide
		}
		fmt.Println(res.State, res.TotalRequests)
	}
	// Output:
	// Allow 1
	// Allow 2
	// Deny 2
}

func ExampleNew() {
	_, err := weir.New(weir.Config{MaxBuckets: 100_000, Timeout: 5 * time.Minute})
	fmt.Println(err)
	_, err = weir.New(weir.Config{Timeout: -time.Second})
	fmt.Println(err)
	// Output:
	// <nil>
	// weir: negative Config: MaxBuckets 0, Timeout -1s, SweepEvery 0s
}

func ExampleConfig_now() {
	clock := noon()
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	for range 2 {
		res, _ := limiter.CheckRate("id", 1000, 1)
		fmt.Println(res.State)
	}
	clock.Advance(time.Second)
	res, _ := limiter.CheckRate("id", 1000, 1)
	fmt.Println(res.State)
	// Output:
	// Allow
	// Deny
	// Allow
}

func ExampleLimiter_CheckRate() {
	clock := noon()
	limiter := limiterAt(clock)
	defer limiter.Close()

	clock.Advance(10 * time.Second)
	for range 2 {
		res, err := limiter.CheckRate("10.0.0.7", 30_000, 1)
		if err != nil {
			log.Fatal(err)
		}
		if !res.Allowed() {
			fmt.Println("come back in", res.RetryAfter(clock.Now()))
		}
	}
	_, err := limiter.CheckRate("", 30_000, 1)
	fmt.Println(err, errors.Is(err, weir.ErrID))
	// Output:
	// come back in 20s
	// weir: bad id: empty true
}

// A user may have two answers under way at a time. A third request is refused, or waits.
func ExampleHold() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	ctx, answers := context.Background(), limiter.InFlight()
	alice := &weir.Request{Key: "alice", Limit: 2, Duration: time.Minute}
	for range 3 {
		held, err := weir.Hold(ctx, answers, alice)
		if denied := (*weir.DeniedError)(nil); errors.As(err, &denied) {
			fmt.Println(denied.Result.TotalRequests, "are under way")
			continue
		}
		if err != nil {
			log.Fatal(err) // could not decide
		}
		defer held.Release(ctx)
		fmt.Println("answering")
	}
	// Output:
	// answering
	// answering
	// 2 are under way
}

func ExampleHoldWait() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	answers := limiter.InFlight()
	alice := &weir.Request{Key: "alice", Limit: 1, Duration: time.Minute}
	first, err := weir.HoldWait(context.Background(), answers, alice)
	if err != nil {
		log.Fatal(err)
	}
	time.AfterFunc(time.Millisecond, func() { first.Release(context.Background()) })

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	second, err := weir.HoldWait(ctx, answers, alice) // until the first has ended
	if err != nil {
		log.Fatal(err)
	}
	defer second.Release(ctx)
	fmt.Println("answering")
	// Output: answering
}

func ExampleLimiter_Inspect() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	for range 3 {
		limiter.CheckRate("10.0.0.7", 60_000, 2)
	}
	b, err := limiter.Inspect("10.0.0.7", 60_000)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(b.Count, "admitted,", b.Denied, "denied until", b.Ends.Format(time.TimeOnly))
	// Output: 2 admitted, 1 denied until 12:01:00
}

func ExampleLimiter_Reset() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	limiter.CheckRate("10.0.0.7", 60_000, 1)
	if err := limiter.Reset("10.0.0.7", 60_000); err != nil {
		log.Fatal(err)
	}
	res, _ := limiter.CheckRate("10.0.0.7", 60_000, 1)
	fmt.Println(res.State)
	// Output: Allow
}

func ExampleLimiter_Buckets() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	limiter.CheckRate("10.0.0.7", 60_000, 5)
	limiter.CheckRate("10.0.0.8", 60_000, 5)
	for b := range limiter.Buckets() {
		fmt.Println(b.ID, b.Count, b.Scale)
	}
	// Unordered output:
	// 10.0.0.7 1 1m0s
	// 10.0.0.8 1 1m0s
}

func ExampleLimiter_Sweep() {
	clock := noon()
	limiter := limiterAt(clock)
	defer limiter.Close()

	limiter.CheckRate("10.0.0.7", 60_000, 5)
	fmt.Println(limiter.Sweep())
	clock.Advance(time.Hour)
	fmt.Println(limiter.Sweep())
	// Output:
	// 0
	// 1
}

func ExampleLimiter_Stats() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	for range 3 {
		limiter.CheckRate("10.0.0.7", 60_000, 2)
	}
	s := limiter.Stats()
	fmt.Println(s.Checks, "checks:", s.Allowed, "allowed,", s.Denied, "denied;", s.Buckets, "bucket")
	// Output: 3 checks: 2 allowed, 1 denied; 1 bucket
}

func ExampleLimiter_Close() {
	limiter := limiterAt(noon())
	fmt.Println(limiter.Close())
	_, err := limiter.CheckRate("10.0.0.7", 60_000, 1)
	fmt.Println(err)
	// Output:
	// <nil>
	// weir: limiter is closed
}

func ExampleLimiter_FixedWindow() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	var strategy weir.Strategy = limiter.FixedWindow()
	res, err := strategy.Run(context.Background(), &weir.Request{
		Key: "10.0.0.7", Limit: 100, Duration: time.Minute, Cost: 40,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.State, res.TotalRequests)
	b, _ := limiter.Inspect("10.0.0.7", 60_000) // the counter of CheckRate
	fmt.Println(b.Count)
	// Output:
	// Allow 40
	// 40
}

func ExampleLimiter_Calendar() {
	limiter := limiterAt(weirtest.NewClock(time.Date(2027, time.January, 31, 9, 0, 0, 0, time.UTC)))
	defer limiter.Close()

	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}
	for _, unit := range []weir.CalendarUnit{weir.Day, weir.Week, weir.Month, weir.Month.From(31)} {
		res, err := limiter.Calendar(unit, berlin).Run(context.Background(),
			&weir.Request{Key: "alice", Limit: 10_000})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(unit, res.State, res.ExpiresAt.In(berlin))
	}
	// Output:
	// day Allow 2027-02-01 00:00:00 +0100 CET
	// week Allow 2027-02-01 00:00:00 +0100 CET
	// month Allow 2027-02-01 00:00:00 +0100 CET
	// month:31 Allow 2027-02-28 00:00:00 +0100 CET
}

func ExampleCalendar_Inspect() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	daily := limiter.Calendar(weir.Day, time.UTC)
	_, _ = daily.Run(context.Background(), &weir.Request{Key: "alice", Limit: 100, Cost: 40})
	b, err := daily.Inspect("alice")
	fmt.Println(b.Count, b.Calendar, b.Scale, err)
	// Output: 40 day@UTC 24h0m0s <nil>
}

func ExampleWindowCounter_Run() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	for _, cost := range []uint64{8, 5, 2} {
		res, err := limiter.FixedWindow().Run(context.Background(), &weir.Request{
			Key: "10.0.0.7", Limit: 10, Duration: time.Minute, Cost: cost,
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(cost, res.State, res.TotalRequests)
	}
	// Output:
	// 8 Allow 8
	// 5 Deny 8
	// 2 Allow 10
}

func ExampleDo() {
	limiter := limiterAt(noon())
	defer limiter.Close()
	window, ctx := limiter.FixedWindow(), context.Background()
	alice := weir.Request{Key: "alice", Limit: 10, Duration: time.Minute}

	look := &weir.Op{Verb: weir.OpPeek, Request: alice}
	err := weir.Do(ctx, window, look)
	fmt.Println("would", look.Result.State, err)

	charge := &weir.Op{Verb: weir.OpCharge, Request: alice} // admitted elsewhere
	charge.Cost = 12
	err = weir.Do(ctx, window, charge)
	fmt.Println("charged", err)

	err = weir.Do(ctx, window, look)
	fmt.Println("would", look.Result.State, "at", look.Result.TotalRequests, err)

	err = weir.Do(ctx, window, &weir.Op{Verb: weir.OpHits, Request: alice})
	fmt.Println(err)
	// Output:
	// would Allow <nil>
	// charged <nil>
	// would Deny at 12 <nil>
	// weir: fixed window cannot list hits: unsupported operation
}

// Only failed logins count: the cost of a successful one is given back, by its receipt.
func ExampleReceipt() {
	limiter := limiterAt(noon())
	defer limiter.Close()
	logins, ctx := limiter.FixedWindow(), context.Background()

	login := &weir.Op{Request: weir.Request{Key: "alice", Limit: 3, Duration: time.Minute}, Keep: true}
	if err := weir.Do(ctx, logins, login); err != nil {
		log.Fatal(err)
	}
	login.Verb = weir.OpReturn // the password was right
	if err := weir.Do(ctx, logins, login); err != nil {
		log.Fatal(err)
	}
	b, _ := limiter.Inspect("alice", 60_000)
	fmt.Println(b.Count)
	// Output: 0
}

// Another store has counted 7 and is now unavailable.
func ExampleBacklog() {
	clock := noon()
	limiter := limiterAt(clock)
	defer limiter.Close()

	op := &weir.Op{Request: weir.Request{Key: "alice", Limit: 10, Duration: time.Minute}}
	op.Backlog = &weir.Backlog{Counted: &weir.Result{TotalRequests: 7,
		ExpiresAt: clock.Now().Add(time.Minute)}}
	if err := weir.Do(context.Background(), limiter.FixedWindow(), op); err != nil {
		log.Fatal(err)
	}
	fmt.Println(op.Result.TotalRequests)
	// Output: 8
}

func ExampleLimiter_Verdict() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	for range 2 {
		v, err := limiter.Verdict("10.0.0.7", 30_000, 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(v)
	}
	// Output:
	// {ok, continue}
	// {fail, 1}
}

func ExampleVerdict_String() {
	fmt.Println(weir.Verdict{OK: true})
	fmt.Println(weir.Verdict{Limit: 500})
	// Output:
	// {ok, continue}
	// {fail, 500}
}

func ExampleJoinKey() {
	fmt.Println(weir.JoinKey("10.0.0.7", "GET /"))
	fmt.Println(weir.JoinKey("a", "b:c") == weir.JoinKey("a:b", "c"))
	// Output:
	// 8:10.0.0.75:GET /
	// false
}

func ExampleResult_Allowed() {
	fmt.Println(weir.Result{State: weir.Allow}.Allowed(), weir.Result{}.Allowed())
	// Output: true false
}

func ExampleResult_RetryAfter() {
	now := noon().Now()
	denied := weir.Result{ExpiresAt: now.Add(90 * time.Second)}
	fmt.Println(denied.RetryAfter(now))
	fmt.Println(denied.RetryAfter(now.Add(time.Hour)))
	never := weir.Result{}
	fmt.Println(never.RetryAfter(now) > 100*365*24*time.Hour)
	// Output:
	// 1m30s
	// 0s
	// true
}

func ExampleState_String() {
	fmt.Println(weir.Allow, weir.Deny)
	// Output: Allow Deny
}

// Half of the previous window still counts when half of the current one has passed.
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

// Meta identifies the users behind an address, and Entries lists them.
func ExampleLimiter_SlidingLog() {
	clock := noon()
	limiter := limiterAt(clock)
	defer limiter.Close()

	hits := limiter.SlidingLog()
	r := weir.Request{Key: "10.0.0.7", Limit: 2, Duration: time.Minute}
	for _, user := range []string{"ann", "bob", "cy"} {
		r.Meta = user
		verdicts(hits, 1, r)
		clock.Advance(time.Second)
	}
	list := &weir.Op{Verb: weir.OpHits, Request: r}
	err := weir.Do(context.Background(), hits, list)
	for _, e := range list.Hits {
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

// The bucket refills at 10 tokens a second and holds up to 3.
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

// Run waits for its turn, here a tenth of a second. A caller whose context is done leaves the
// queue.
func ExampleLimiter_LeakyBucket() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	queue := limiter.LeakyBucket(1) // one request may wait
	tenASecond := weir.Request{Key: "mail", Limit: 10, Duration: time.Second}
	verdicts(queue, 1, tenASecond) // the first does not wait
	for range 2 {
		impatient, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		_, err := queue.Run(impatient, &tenASecond)
		fmt.Println(err)
		cancel()
	}
	// Output:
	// [Allow]
	// context deadline exceeded
	// context deadline exceeded
}

// A request that one tier denies is not counted by any.
func ExampleLimiter_Tiers() {
	clock := noon()
	limiter := limiterAt(clock)
	defer limiter.Close()

	tiers := limiter.Tiers(
		weir.Tier{Limit: 2, Duration: time.Second},
		weir.Tier{Limit: 3, Duration: 10 * time.Second},
	)
	r := weir.Request{Key: "10.0.0.7"}
	limit := tiers.Limit()
	verdicts(limit, 3, r)
	clock.Advance(time.Second)
	verdicts(limit, 1, r)
	out, err := limit.Take(context.Background(), "10.0.0.7", 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.State, "by", out.By)
	// Output:
	// [Allow Allow Deny]
	// [Allow]
	// Deny by tiers, 3 in 10s
}

func ExampleAbout() {
	limiter := limiterAt(noon())
	defer limiter.Close()
	limit := limiter.SlidingWindow().Limit(10, time.Second)
	fmt.Println(weir.CounterOf(limit).About().Name)
	// Output: sliding window
}

// Limits count separately unless their strategy, their numbers and their name are equal.
func ExampleLimit() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	reads := limiter.SlidingWindow().Limit(2, time.Minute).Named("reads")
	writes := limiter.SlidingWindow().Limit(2, time.Minute).Named("writes")
	fmt.Println(reads.Allow("ann"), reads.Allow("ann"), reads.Allow("ann"))
	fmt.Println(writes.Allow("ann"), writes.Allow("bob"))
	// Output:
	// true true false
	// true true
}

func ExampleLimiter_Counter() {
	clock := noon()
	limiter := limiterAt(clock)
	defer limiter.Close()

	s := limiter.Counter() // the period begins with the first hit
	clock.Advance(40 * time.Second)
	verdicts(s, 3, weir.Request{Key: "10.0.0.7", Limit: 2, Duration: time.Minute})
	clock.Advance(59 * time.Second)
	verdicts(s, 1, weir.Request{Key: "10.0.0.7", Limit: 2, Duration: time.Minute})
	clock.Advance(time.Second)
	verdicts(s, 1, weir.Request{Key: "10.0.0.7", Limit: 2, Duration: time.Minute})
	// Output:
	// [Allow Allow Deny]
	// [Deny]
	// [Allow]
}

func ExampleLimiter_List() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	s := limiter.List()
	r := &weir.Request{Key: "10.0.0.7", Limit: 2, Duration: time.Minute}
	for _, r.Meta = range []string{"alice", "bob", "carol"} {
		if _, err := s.Run(context.Background(), r); err != nil {
			log.Fatal(err)
		}
	}
	entries, err := ops.Hits(context.Background(), s, r)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Println(e.Meta)
	}
	// Output:
	// alice
	// bob
}

func ExampleNewCounterStrategy() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	verdicts(weir.NewCounterStrategy(limiter), 3, weir.Request{Key: "some-user", Limit: 2,
		Duration: time.Minute})
	verdicts(weir.NewSortedSetCounterStrategy(limiter), 3, weir.Request{Key: "some-user", Limit: 2,
		Duration: time.Minute})
	// Output:
	// [Allow Allow Deny]
	// [Allow Allow Deny]
}

func ExampleWait() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	s := limiter.TokenBucket(1) // one token, refilled every 20 ms
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 3 {
		_, err := weir.Wait(ctx, s, &weir.Request{Key: "upstream", Limit: 50, Duration: time.Second})
		fmt.Println(err)
	}
	_, err = weir.Wait(ctx, s, &weir.Request{Key: "upstream", Limit: 1, Duration: time.Hour, Cost: 2})
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// weir: bad limit: a cost of 2 can never pass
}

func ExampleResult_Remaining() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	res, err := limiter.CheckRate("10.0.0.7", time.Minute.Milliseconds(), 5)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Remaining(5))
	// Output: 4
}

func ExampleDo_resetPrefix() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	hour := limiter.FixedWindow()
	for _, key := range []string{"acme/alice", "acme/bob", "other/carol"} {
		if _, err := hour.Run(context.Background(),
			&weir.Request{Key: key, Limit: 100, Duration: time.Hour}); err != nil {
			panic(err)
		}
	}
	reset := &weir.Op{Verb: weir.OpResetPrefix, Request: weir.Request{Key: "acme/"}}
	err = weir.Do(context.Background(), hour, reset)
	fmt.Println(reset.Result.TotalRequests, err)
	// Output: 2 <nil>
}

func ExampleLimiter_Save() {
	day := (24 * time.Hour).Milliseconds()
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := limiter.CheckRate("10.0.0.7", day, 1); err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer // for a file, see SaveFile
	if err := limiter.Save(&file); err != nil {
		log.Fatal(err)
	}
	limiter.Close()

	restarted, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer restarted.Close()
	if err := restarted.Load(&file); err != nil {
		log.Print(err) // starts without counts; keep the file
	}
	res, err := restarted.CheckRate("10.0.0.7", day, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.State)
	// Output: Deny
}

func ExampleLimiter_SaveFile() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "counts")
	day := (24 * time.Hour).Milliseconds()

	start := func() *weir.Limiter {
		limiter, err := weir.New(weir.Config{})
		if err != nil {
			log.Fatal(err)
		}
		if err := limiter.LoadFile(name); errors.Is(err, fs.ErrNotExist) {
			fmt.Println("first start")
		} else if err != nil {
			log.Fatal(err)
		}
		return limiter
	}
	limiter := start()
	if _, err := limiter.CheckRate("10.0.0.7", day, 1); err != nil {
		log.Fatal(err)
	}
	if err := limiter.SaveFile(name); err != nil {
		log.Fatal(err)
	}
	limiter.Close()

	restarted := start()
	defer restarted.Close()
	res, err := restarted.CheckRate("10.0.0.7", day, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.State)
	// Output:
	// first start
	// Deny
}

func ExampleLimiter_Checkpoint() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "counts")

	serve := func() weir.State {
		limiter, err := weir.New(weir.Config{})
		if err != nil {
			log.Fatal(err)
		}
		defer limiter.Close()
		if err := limiter.LoadFile(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Fatal(err) // the next save would replace the file
		}
		ctx, stop := context.WithCancel(context.Background()) // or signal.NotifyContext
		var saving sync.WaitGroup
		saving.Go(func() {
			warn := func(err error) { log.Print(err) }
			if err := limiter.Checkpoint(ctx, name, time.Minute, warn); err != nil {
				log.Print(err)
			}
		})
		res, err := limiter.CheckRate("10.0.0.7", (24 * time.Hour).Milliseconds(), 1)
		if err != nil {
			log.Print(err)
		}
		stop()
		saving.Wait()
		return res.State
	}
	fmt.Println(serve(), serve())
	// Output: Allow Deny
}
