package caddylimit_test

import (
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	_ "github.com/weirgo/weir/contrib/caddy"
)

// A Caddy with the directive, in this process. In a program of its own, xcaddy builds it.
func ExampleHandler() {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // to find a free port
	if err != nil {
		log.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	caddyfile := `{
		admin off
		auto_https off
		persist_config off
		log {
			output discard
		}
	}
	http://` + addr + ` {
		weir 2/1h
		respond hello
	}`
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := caddy.Load(config, true); err != nil {
		log.Fatal(err)
	}
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
	// 200 "2/1h";q=2;w=3600
	// 200 "2/1h";q=2;w=3600
	// 429 "2/1h";q=2;w=3600
}
