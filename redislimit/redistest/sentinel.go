package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// MasterName is the Sentinel's name of its master.
const MasterName = "limits"

// Sentinel is a master, its replica, and one Sentinel that watches them and is a quorum by itself.
type Sentinel struct {
	Addr            string
	Master, Replica *Server
	process         *Server
}

// StartSentinel starts the three and waits until the Sentinel knows the replica and the replica
// follows the master.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	master := Start(t)
	replica := StartReplica(t, master)
	host, port, _ := net.SplitHostPort(master.Addr)
	own := FreePort(t)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, `port %d
bind 127.0.0.1
sentinel monitor %s %s %s 1
sentinel down-after-milliseconds %s 500
sentinel failover-timeout %s 1000
`, own, MasterName, host, port, MasterName, MasterName), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Sentinel{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(own)), Master: master,
		Replica: replica}
	s.process = &Server{Addr: s.Addr, t: t, args: []string{conf, "--sentinel"}}
	if !s.process.start() {
		t.Fatalf("the Sentinel does not start:\n%s", s.process.log)
	}
	t.Cleanup(s.process.end)
	// By default it polls the INFO of servers every ten seconds. Before 7.0 that cannot be changed,
	// and this takes as long.
	_ = s.process.Client().Do(context.Background(), "sentinel", "debug", "info-period", 200).Err()
	s.AwaitReplica()
	return s
}

// Do runs one command of the Sentinel's.
func (s *Sentinel) Do(args ...any) any { return s.process.Do(args...) }

// AwaitReplica waits until the Sentinel knows a replica to promote: it knows of them by the INFO of
// their master.
func (s *Sentinel) AwaitReplica() {
	t := s.process.t
	t.Helper()
	Eventually(t, 2*startTimeout, "the Sentinel finds the replica", func() bool {
		replicas, _ := s.Do("sentinel", "replicas", MasterName).([]any)
		text := fmt.Sprint(replicas...)
		return len(replicas) == 1 && strings.Contains(text, "master-link-status:ok") &&
			!strings.Contains(text, "_down")
	})
}

// StartReplica starts a server that follows master, and waits until it has what master has.
func StartReplica(t testing.TB, master *Server) *Server {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr)
	r := Start(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	master.Do("config", "set", "repl-diskless-sync-delay", "0")
	Eventually(t, startTimeout, "the replica follows", func() bool {
		return r.Info("master_link_status") == "up"
	})
	return r
}
