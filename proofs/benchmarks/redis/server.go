package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"
)

// startServer starts a redis-server that persists nothing on a free port of the loopback interface.
func startServer(ctx context.Context) (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(addr)
	dir, err := os.MkdirTemp("", "redis-bench")
	if err != nil {
		return "", nil, err
	}
	var log bytes.Buffer
	server := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", dir)
	server.Stdout = &log
	if err := server.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		_ = os.RemoveAll(dir)
	}
	if err := awaitServer(ctx, addr); err != nil {
		stop()
		return "", nil, fmt.Errorf("%w\n%s", err, &log)
	}
	return addr, stop, nil
}

func awaitServer(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c := redis.NewClient(options(addr))
	defer c.Close()
	for c.Ping(ctx).Err() != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis-server does not reply: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}
