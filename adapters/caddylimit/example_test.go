package caddylimit_test

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	_ "github.com/weirgo/weir/adapters/caddylimit"
)

// start runs Caddy with a site in this process and returns its address.
func start(site string) (addr string) {
	for try := 0; ; try++ {
		listener, err := net.Listen("tcp", "127.0.0.1:0") // find a free port
		if err != nil {
			log.Fatal(err)
		}
		addr = listener.Addr().String()
		_ = listener.Close()
		config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(`{
			admin off
			auto_https off
			persist_config off
			log {
				output discard
			}
		}
		http://`+addr+` {`+site+`}`), nil)
		if err != nil {
			log.Fatal(err)
		}
		err = caddy.Load(config, true)
		if err == nil {
			return addr
		}
		// Another program has taken the port.
		if try == 5 || !strings.Contains(err.Error(), "address already in use") {
			log.Fatal(err)
		}
	}
}

// The example runs Caddy with the directive in this process. xcaddy builds a program with it.
func ExampleHandler() {
	addr := start(`
		weir 2/1h
		respond hello
	`)
	for range 3 {
		resp, err := http.Get("http://" + addr)
		if err != nil {
			log.Fatal(err)
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode, resp.Header.Get("RateLimit-Policy"))
	}
	http.DefaultClient.CloseIdleConnections()
	if err := caddy.Stop(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 200 "1h";q=2;w=3600
	// 200 "1h";q=2;w=3600
	// 429 "1h";q=2;w=3600
}
