// Command web answers each client address twice in a minute.
package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weirgo/weir/httplimit"
)

func main() {
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hello")
	})
	server := httptest.NewServer(httplimit.PerIP(2, time.Minute)(hello))
	defer server.Close()
	for range 3 {
		resp, err := http.Get(server.URL)
		if err != nil {
			panic(err)
		}
		fmt.Println(resp.Status)
		_ = resp.Body.Close()
	}
}
