package redistest

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// Cluster is a Redis Cluster of masters without replicas.
type Cluster struct {
	Nodes []*Server
}

// StartCluster starts a Cluster of three masters, with args added to their command lines, and waits
// until each of them says it is whole.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{}
	for range 3 {
		// The bus's own default port, 10000 above, may be beyond the last one.
		c.Nodes = append(c.Nodes,
			Start(t, append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
				"--cluster-port", strconv.Itoa(FreePort(t))}, args...)...))
	}
	for i, n := range c.Nodes {
		n.Do("cluster", "addslotsrange", i*slots/3, (i+1)*slots/3-1)
		n.Do("cluster", "set-config-epoch", i+1)
	}
	first := c.Nodes[0]
	for _, n := range c.Nodes[1:] {
		host, port, _ := net.SplitHostPort(first.Addr)
		n.Do("cluster", "meet", host, port, first.busPort())
	}
	Eventually(t, startTimeout, "cluster comes together", func() bool {
		for _, n := range c.Nodes {
			info, _ := n.Do("cluster", "info").(string)
			if !strings.Contains(info, "cluster_state:ok") ||
				!strings.Contains(info, "cluster_known_nodes:3") {
				return false
			}
		}
		time.Sleep(10 * time.Millisecond) // between two looks
		return true
	})
	return c
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.Addr
	}
	return addrs
}

// Move moves a slot and the keys in it to the node of that index, in the steps of redis-cli's
// reshard.
func (c *Cluster) Move(slot int64, to int) {
	target := c.Nodes[to]
	var source *Server
	for _, n := range c.Nodes {
		if n.owns(slot) {
			source = n
		}
	}
	if source == nil || source == target {
		return
	}
	target.Do("cluster", "setslot", slot, "importing", source.id())
	source.Do("cluster", "setslot", slot, "migrating", target.id())
	host, port, _ := net.SplitHostPort(target.Addr)
	for {
		keys := source.Do("cluster", "getkeysinslot", slot, 10).([]any)
		if len(keys) == 0 {
			break
		}
		source.Do(append([]any{"migrate", host, port, "", 0, 5000, "keys"}, keys...)...)
	}
	target.Do("cluster", "setslot", slot, "node", target.id())
	for _, n := range c.Nodes {
		n.Do("cluster", "setslot", slot, "node", target.id())
	}
}
