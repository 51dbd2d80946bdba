package main

import (
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/redislimit"
)

func main() {
	limiter := must(weir.New(weir.Config{}))
	client := redis.NewClient(redislimit.Options("127.0.0.1:6379"))
	store := must(redislimit.New(client, redislimit.Config{Timeout: time.Second}))
	shared := must(fallback.New(store.SlidingWindow(), limiter.SlidingWindow(), fallback.Config{
		Instances: 2,
		Timeout:   time.Second, // so long a request may wait for Redis; 50 ms will do in a data center
	}))
	perClient := shared.Limit(4, time.Hour)
	balancers := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	guard := httplimit.New(perClient, httplimit.Config{Extractor: httplimit.ClientIP(balancers)})
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	log.Fatal(http.ListenAndServe(os.Args[1], guard(page))) // an address of its own for each
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
