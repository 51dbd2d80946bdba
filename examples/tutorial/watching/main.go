package main

import (
	"cmp"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/metrics"
	"github.com/weirgo/weir/metrics/weirprom"
)

func main() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	stats := new(httplimit.Stats)
	guard := httplimit.New(limiter.SlidingWindow().Limit(3, time.Hour), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Stats: stats,
		Shadow: true, // report and count, but let every request pass
	})
	prometheus.MustRegister(weirprom.New("", metrics.Limiter(limiter.Stats),
		metrics.HTTP(stats.Count)))

	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hello")
	})
	mux := http.NewServeMux()
	mux.Handle("/", guard(hello))
	mux.Handle("GET /metrics", promhttp.Handler()) // in production at an address of its own
	addr := cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080")
	log.Fatal(http.ListenAndServe(addr, mux))
}
