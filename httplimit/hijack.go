package httplimit

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
)

// hijack hands the connection over. For CountIf it watches what the handler writes there: the answer
// to an upgrade is a 101, but it may as well be a 401.
func (w *responseWriter) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.(http.Hijacker).Hijack()
	if err != nil || w.more.client == nil || w.status != 0 {
		return conn, rw, err
	}
	watched := &hijackedConn{Conn: conn}
	w.more.client.hijacked = watched
	if rw != nil {
		rw.Writer.Reset(watched) // nothing is in it yet
	}
	return watched, rw, nil
}

// hijackedConn notes the status of the answer that is written to it.
type hijackedConn struct {
	net.Conn
	status atomic.Int32 // 0: nothing was written; unknownStatus
}

// unknownStatus stands for a first write that is not the whole status line of a final answer.
const unknownStatus = -1

func (c *hijackedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.status.Load() == 0 {
		c.status.CompareAndSwap(0, parseStatus(p[:n]))
	}
	return n, err
}

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
