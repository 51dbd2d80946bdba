package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/weirgo/weir/httplimit"
)

func main() {
	guard := httplimit.PerIP(3, time.Hour)
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", guard(page)))
}
