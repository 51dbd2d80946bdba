package httplimit

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestStatusOfAHijackedConnection(t *testing.T) {
	for text, want := range map[string]int32{
		"HTTP/1.1 401":                        401,
		"HTTP/1.1 200 OK\r\n\r\n":             200,
		"HTTP/1.0 404 Not Found\r\n":          404,
		"HTTP/1.1 101 Switching Protocols":    101,
		"HTTP/1.1 599 ?":                      599,
		"HTTP/1.1 100 Continue\r\n":           unknownStatus,
		"HTTP/1.1 102 Processing":             unknownStatus,
		"HTTP/1.1 199 ?":                      unknownStatus,
		"HTTP/1.1 40":                         unknownStatus,
		"HTTP/1.1 2x0 OK":                     unknownStatus,
		"HTTP/2.0 200 OK":                     unknownStatus,
		"HTTPS1.1 200 OK":                     unknownStatus,
		"ICAP/1.0 200 OK":                     unknownStatus,
		"220 mail 200 ready":                  unknownStatus,
		"a text of which 200 stands anywhere": unknownStatus,
		"":                                    unknownStatus,
	} {
		assert.Equal(t, want, parseStatus([]byte(text)), "%q", text)
	}
}

// shortConn writes a part of what it gets.
type shortConn struct {
	net.Conn
	most int
}

func (c *shortConn) Write(p []byte) (int, error) { return min(len(p), c.most), nil }

// The first write says the status, as far as it is written: the client has seen no more.
func TestTheFirstWriteOfAHijackedConnectionCounts(t *testing.T) {
	for _, row := range []struct {
		most   int
		writes []string
		want   int32
	}{
		{100, []string{"HTTP/1.1 401 Unauthorized\r\n", "HTTP/1.1 200 OK\r\n"}, 401},
		{100, []string{"junk", "HTTP/1.1 200 OK\r\n"}, unknownStatus},
		{12, []string{"HTTP/1.1 401 Unauthorized\r\n"}, 401},
		{11, []string{"HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n"}, unknownStatus},
		{100, nil, 0},
	} {
		c := &hijackedConn{Conn: &shortConn{most: row.most}}
		for _, text := range row.writes {
			n, err := c.Write([]byte(text))
			assert.NoError(t, err)
			assert.Equal(t, min(len(text), row.most), n)
		}
		assert.Equal(t, row.want, c.status.Load(), "%d %q", row.most, row.writes)
	}
}
