package main

import (
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

func main() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	balancers := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} // as narrow as you can
	client := httplimit.ClientIP(balancers)
	perClient := limiter.SlidingWindow().Limit(3, time.Hour)
	guard := httplimit.New(perClient, httplimit.Config{Extractor: client})
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux := http.NewServeMux()
	mux.Handle("/", guard(page))
	mux.Handle("GET /which-address", client) // until you have seen that it is right
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", mux))
}
