package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

func main() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	perClient := limiter.SlidingWindow().Limit(3, time.Hour)
	guard := httplimit.New(perClient, httplimit.Config{Extractor: httplimit.RemoteAddr()})
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", guard(hello)))
}
