package httpclient_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httpclient"
)

func ExampleTransport() {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	limiter, err := weir.New(weir.Config{Now: func() time.Time { return noon }})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	client := http.Client{Transport: &httpclient.Transport{
		Limit: limiter.FixedWindow().Limit(2, time.Minute), Now: func() time.Time {
			return noon
		},
		Key:    func(*http.Request) string { return "the API" },
		NoWait: true,
	}}
	for range 3 {
		resp, err := client.Get(server.URL)
		if limited := (*httpclient.LimitError)(nil); errors.As(err, &limited) {
			fmt.Printf("%v, come back in %v\n", limited.Key, limited.Wait)
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(resp.Status)
		resp.Body.Close()
	}
	// Output:
	// 200 OK
	// 200 OK
	// the API, come back in 1m0s
}
