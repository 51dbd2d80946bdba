package connectlimit_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/connectlimit"
	"github.com/weirgo/weir/httplimit"
)

func ExampleNewServer() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limit := connectlimit.NewServer(limiter.SlidingWindow(), httplimit.Config{
		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()), // per peer and procedure
		Limit:     2,
		Duration:  time.Hour,
	})
	const procedure = "/ping.v1.PingService/Ping"
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewUnaryHandler(procedure, // pingv1connect.NewPingServiceHandler(…)
		func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			return connect.NewResponse(&emptypb.Empty{}), nil
		}, connect.WithInterceptors(limit)))
	server := httptest.NewServer(mux)
	defer server.Close()

	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+procedure)
	for range 3 {
		if _, err := client.CallUnary(context.Background(),
			connect.NewRequest(&emptypb.Empty{})); err != nil {
			fmt.Println(connect.CodeOf(err), connectlimit.RetryDelay(err) > 0)
			continue
		}
		fmt.Println("ok")
	}
	// Output:
	// ok
	// ok
	// resource_exhausted true
}
