package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// FreePort returns a TCP port of the loopback interface that nobody listens on, and keeps it for
// the test: no other call of FreePort returns it before the test has ended, in no process, and the
// system gives it neither to who listens on port 0 nor to a connection. FreePort holds the UDP port
// of the same number, so the port is free again when the process ends, however it does.
func FreePort(t testing.TB) int {
	t.Helper()
	first := ephemeral()
	const lowest, tries = 10_000, 1000
	for range tries {
		addr := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(first-lowest))
		kept, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue // another test has it
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			kept.Close()
			continue
		}
		l.Close()
		t.Cleanup(func() { kept.Close() })
		return l.Addr().(*net.TCPAddr).Port
	}
	t.Fatalf("no free port from %d to %d in %d tries", lowest, first-1, tries)
	return 0
}

// ephemeral returns the first of the ports that the system chooses itself.
func ephemeral() int {
	const usual, lowest = 32_768, 11_000
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return usual // of Linux: that of others is higher
	}
	var first int
	if _, err := fmt.Sscan(string(text), &first); err != nil || first < lowest {
		return usual
	}
	return first
}
