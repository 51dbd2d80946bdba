package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// okServer answers every request with OK.
type okServer struct {
	pb.UnimplementedRateLimitServiceServer
}

func (okServer) ShouldRateLimit(
	context.Context, *pb.RateLimitRequest,
) (*pb.RateLimitResponse, error) {
	return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}, nil
}

func serveBare(ctx context.Context, addr string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	pb.RegisterRateLimitServiceServer(s, okServer{})
	return s.Serve(l)
}

func freeAddr(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// load is the result of one measurement of a server.
type load struct {
	rate float64 // requests per second
	p99  time.Duration
	cpu  time.Duration // CPU time of the server per request
}

const values = 10_000

// requests are built before the measurements.
var requests = func() (list [values]*pb.RateLimitRequest) {
	for i := range list {
		list[i] = &pb.RateLimitRequest{Domain: "bench", Descriptors: []*common.RateLimitDescriptor{{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: strconv.Itoa(i)}}}}}
	}
	return list
}()

// measure sends requests to a server, at most concurrency at a time.
func measure(ctx context.Context, s server, concurrency int) (load, error) {
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return load{}, err
	}
	defer func() { _ = conn.Close() }()
	client := pb.NewRateLimitServiceClient(conn)
	if _, err := client.ShouldRateLimit(ctx, requests[0], grpc.WaitForReady(true)); err != nil {
		return load{}, err
	}
	if _, _, err := loop(ctx, client, concurrency, *benchtime/5); err != nil {
		return load{}, err
	}
	before := cpuOf(s.cmd.Process.Pid)
	took, elapsed, err := loop(ctx, client, concurrency, *benchtime)
	if err != nil {
		return load{}, err
	}
	spent := cpuOf(s.cmd.Process.Pid) - before
	slices.Sort(took)
	return load{float64(len(took)) / elapsed.Seconds(), took[len(took)*99/100],
		spent / time.Duration(len(took))}, nil
}

// tick is the unit of the CPU times in /proc/PID/stat.
const tick = time.Second / 100

// cpuOf returns the CPU time of a process, or 0 where /proc does not exist. Other load on the
// machine hardly affects it.
func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), ") ") // the process name may contain spaces
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick
}

// loop sends requests for the time d. It returns the latency of each request and the total time.
func loop(ctx context.Context, client pb.RateLimitServiceClient, concurrency int,
	d time.Duration) ([]time.Duration, time.Duration, error) {
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var group sync.WaitGroup
	began := time.Now()
	for i := range concurrency {
		group.Go(func() {
			var took []time.Duration
			var err error
			for n := i * values / concurrency; err == nil && time.Since(began) < d; n++ {
				asked := time.Now()
				var resp *pb.RateLimitResponse
				resp, err = client.ShouldRateLimit(ctx, requests[n%values])
				if err == nil && resp.OverallCode != pb.RateLimitResponse_OK {
					err = fmt.Errorf("got %v, want OK", resp.OverallCode)
				}
				took = append(took, time.Since(asked))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			if err != nil {
				failed = err
			}
		})
	}
	group.Wait()
	return all, time.Since(began), failed
}
