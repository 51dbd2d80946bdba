package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

func main() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := limiter.LoadFile("counts"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Fatal(err)
	}
	perClient := limiter.SlidingWindow().Limit(3, time.Hour)
	guard := httplimit.New(perClient, httplimit.Config{Extractor: httplimit.RemoteAddr()})
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: guard(page)}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			log.Fatal(err)
		}
	}()
	<-ctx.Done()
	stop() // a second signal ends the process at once
	// First the requests end, then the counts are saved.
	if err := errors.Join(server.Shutdown(context.Background()),
		limiter.SaveFile("counts")); err != nil {
		log.Fatal(err)
	}
}
