package redistest

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A port is another test's only when this one has ended, and never the system's.
func TestFreePortIsKeptForItsTest(t *testing.T) {
	seen := map[int]bool{}
	t.Run("a test", func(t *testing.T) {
		for range 300 {
			port := FreePort(t)
			require.False(t, seen[port], "%d is kept", port)
			require.Less(t, port, ephemeral())
			seen[port] = true
			l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
			require.NoError(t, err)
			l.Close()
			_, err = net.ListenPacket("udp", "127.0.0.1:"+strconv.Itoa(port))
			assert.Error(t, err, "another process sees that %d is kept", port)
		}
	})
	for port := range seen {
		l, err := net.ListenPacket("udp", "127.0.0.1:"+strconv.Itoa(port))
		require.NoError(t, err, "%d is no longer kept", port)
		l.Close()
	}
}
