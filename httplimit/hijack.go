package httplimit

import (
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
)

// hijackedConn notes the status of the answer that is written to it, and its end.
type hijackedConn struct {
	net.Conn
	status   atomic.Int32 // 0: nothing was written; unknownStatus
	inFlight *inFlight    // nil: no place is held
	closed   atomic.Bool
}

func (c *hijackedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.status.Load() == 0 {
		c.status.CompareAndSwap(0, parseStatus(p[:n]))
	}
	return n, err
}

// Close closes the connection. The place is released with it if the handler has returned.
func (c *hijackedConn) Close() error {
	err := c.Conn.Close()
	if c.inFlight != nil && !c.closed.Swap(true) && c.inFlight.parts.Add(-1) == 0 {
		c.inFlight.release()
	}
	return err
}

// closeWriter is implemented by connections of TCP and TLS; proxies look for it.
type closeWriter interface{ CloseWrite() error }

// halfConn is a hijackedConn whose two directions can be closed separately.
type halfConn struct {
	*hijackedConn
	closeWriter
}

// unknownStatus stands for a first write that is not the whole status line of a final answer.
const unknownStatus = -1

// parseStatus returns the status of an answer that begins with p, such as "HTTP/1.1 200 OK".
func parseStatus(p []byte) int32 {
	const line, code = len("HTTP/1.1 200"), len("HTTP/1.1 ")
	if len(p) < line || string(p[:code-2]) != "HTTP/1." {
		return unknownStatus
	}
	status, _ := strconv.Atoi(string(p[code:line])) // 0 for others
	if status >= 200 || status == http.StatusSwitchingProtocols {
		return int32(status)
	}
	return unknownStatus
}
