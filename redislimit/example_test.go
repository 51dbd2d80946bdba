package redislimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/redislimit"
)

// memory returns a client of an in-process Redis, so that the examples run anywhere, and a function
// that closes both.
func memory() (client *redis.Client, end func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	client = redis.NewClient(redislimit.Options(server.Addr()))
	return client, func() { _ = client.Close(); server.Close() }
}

// noon is the clock of the examples. Without Config.Now, the clock of Redis decides.
func noon() time.Time { return time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC) }

func ExampleNew() {
	client, end := memory() // client := redis.NewClient(redislimit.Options("127.0.0.1:6379"))
	defer end()
	store, err := redislimit.New(client, redislimit.Config{Now: noon, Timeout: time.Second})
	if err != nil {
		panic(err)
	}
	perMinute := store.FixedWindow()
	for range 3 {
		res, err := perMinute.Run(context.Background(), &weir.Request{Key: "10.0.0.7", Limit: 2,
			Duration: time.Minute})
		if err != nil {
			panic(err)
		}
		fmt.Println(res.State, res.TotalRequests, res.ExpiresAt.Format(time.TimeOnly))
	}
	// Output:
	// Allow 1 12:01:00
	// Allow 2 12:01:00
	// Deny 2 12:01:00
}

// New rejects a client with the library's default settings, and names the settings.
func ExampleNew_unsafe() {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	_, err := redislimit.New(client, redislimit.Config{})
	fmt.Println(errors.Is(err, redislimit.ErrUnsafeClient))
	// Output: true
}

func ExampleStore_Tiers() {
	client, end := memory()
	defer end()
	store, err := redislimit.New(client, redislimit.Config{Now: noon, Timeout: time.Second})
	if err != nil {
		panic(err)
	}
	tiers := store.Tiers(weir.Tier{Limit: 5, Duration: time.Second},
		weir.Tier{Limit: 7, Duration: time.Minute})
	for _, cost := range []uint64{4, 2, 1} {
		out, err := tiers.Limit().Take(context.Background(), "10.0.0.7", cost)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%d: %v by %v\n", cost, out.State, out.By)
	}
	// Output:
	// 4: Allow by tiers, 5 in 1s
	// 2: Deny by tiers, 5 in 1s
	// 1: Allow by tiers, 5 in 1s
}

// The hits of a Log show the users behind an address.
func ExampleLog() {
	client, end := memory()
	defer end()
	store, err := redislimit.New(client, redislimit.Config{Now: noon, Timeout: time.Second})
	if err != nil {
		panic(err)
	}
	log := store.SlidingLog()
	ctx := context.Background()
	for _, user := range []string{"ada", "grace"} {
		if _, err := log.Run(ctx, &weir.Request{Key: "10.0.0.7", Limit: 100, Duration: time.Hour,
			Meta: user}); err != nil {
			panic(err)
		}
	}
	op := &weir.Op{Verb: weir.OpHits, Request: weir.Request{Key: "10.0.0.7", Limit: 100,
		Duration: time.Hour}}
	log.Do(ctx, []*weir.Op{op})
	if op.Err != nil {
		panic(op.Err)
	}
	for _, hit := range op.Hits {
		fmt.Println(hit.At.UTC().Format(time.TimeOnly), hit.Cost, hit.Meta)
	}
	// Output:
	// 12:00:00 1 ada
	// 12:00:00 1 grace
}

// No server listens at the address: it is down, and nothing was admitted.
func ExampleClassify() {
	client := redis.NewClient(redislimit.Options("127.0.0.1:1"))
	defer client.Close()
	store, err := redislimit.New(client, redislimit.Config{})
	if err != nil {
		panic(err)
	}
	_, err = store.FixedWindow().Run(context.Background(), &weir.Request{Key: "10.0.0.7", Limit: 2,
		Duration: time.Minute})
	fmt.Println(redislimit.Classify(err))
	// Output: down
}
