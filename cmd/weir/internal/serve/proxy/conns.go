package proxy

import (
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/internal/doors/clientaddr"
)

// connBounds bounds the connections of one server.
type connBounds struct {
	max     int                   // 0: no bound
	perAddr int                   // of one IPv4 address or IPv6 /64, and of its requests; 0: no bound
	admin   int                   // of the admin address
	exempt  func(netip.Addr) bool // from perAddr; nil: none
	send    time.Duration         // in which a client must take a piece of a response; 0: no bound
}

// counted returns the IPv4 address or IPv6 /64 that a peer's connections are counted for, or the
// zero Prefix if the peer is exempt.
func (b *connBounds) counted(peer net.Addr) netip.Prefix {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := clientaddr.Plain(tcp.AddrPort().Addr())
	if b.exempt != nil && b.exempt(addr) {
		return netip.Prefix{}
	}
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits) // bits are in range
	return p
}

// conns is a net.Listener with bounds. A connection over the bound of its address is closed. A
// connection over the bound of all replaces the one that has been without a request for the
// longest, or is closed if each has a request. So silent connections, however many, do not keep
// clients out.
type conns struct {
	net.Listener
	send atomic.Int64 // connBounds.send

	mu      sync.Mutex
	bounds  connBounds           // guarded by mu
	open    int                  // guarded by mu
	byAddr  map[netip.Prefix]int // guarded by mu
	serving map[netip.Prefix]int // guarded by mu; requests by address
	waiting list.List            // guarded by mu; of *conn without a request, the longest first

	refused, evicted atomic.Uint64

	refusing atomic.Bool
	end      sync.Once
	ended    chan struct{} // closed by Close
}

// conn is a connection of conns. It embeds the *net.TCPConn for half-closing.
//
// A Write fails if the client does not take it within connBounds.send: a client that reads nothing
// would otherwise hold the request, or the WebSocket, for ever. A stream without data is not slow.
type conn struct {
	*net.TCPConn
	owner *conns
	// the write deadline that net/http or crypto/tls set, in ns since the epoch; 0: none
	until atomic.Int64
	addr  netip.Prefix // the peer's, as perAddr counts it; zero: perAddr does not count it
	begun atomic.Bool  // bytes were read

	serving int           // guarded by owner.mu; requests
	served  bool          // guarded by owner.mu; there was one
	waits   *list.Element // guarded by owner.mu; in owner.waiting, or nil
	closed  bool          // guarded by owner.mu
}

func newConns(l net.Listener, b connBounds) *conns {
	cs := &conns{Listener: l, byAddr: make(map[netip.Prefix]int),
		serving: make(map[netip.Prefix]int), ended: make(chan struct{})}
	cs.bind(b)
	return cs
}

// bind sets the bounds. Connections that are open stay so, and count as they did when they came.
func (cs *conns) bind(b connBounds) {
	cs.send.Store(int64(b.send))
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.bounds = b
}

// refuse ends new connections. http.Server, for which a listener without them is a failure, waits
// in Accept until Close.
func (cs *conns) refuse() {
	cs.refusing.Store(true)
	_ = cs.Listener.Close()
}

// Close implements net.Listener.
func (cs *conns) Close() error {
	cs.end.Do(func() { close(cs.ended) })
	if cs.refusing.Load() {
		return nil
	}
	return cs.Listener.Close()
}

// awaitNone waits until no connection is open, ctx ends or d has passed.
func (cs *conns) awaitNone(ctx context.Context, d time.Duration) {
	cs.await(ctx, d, func() bool { return cs.open == 0 })
}

// endNew closes the connections that have sent nothing, and, once ctx has ended or d has passed,
// those whose first request has not arrived in whole: http.Server keeps them for seconds after
// Shutdown.
func (cs *conns) endNew(ctx context.Context, d time.Duration) {
	cs.closeNew(func(c *conn) bool { return !c.begun.Load() })
	cs.await(ctx, d, func() bool { return len(cs.withoutRequest()) == 0 })
	cs.closeNew(func(*conn) bool { return true })
}

// closeNew closes the connections without a request so far for which is is true.
func (cs *conns) closeNew(is func(*conn) bool) {
	cs.mu.Lock()
	all := cs.withoutRequest()
	cs.mu.Unlock()
	for _, c := range all {
		if is(c) {
			_ = c.Close() // best effort, as Shutdown's
		}
	}
}

// withoutRequest returns the connections that have had none so far. mu is held.
func (cs *conns) withoutRequest() (all []*conn) {
	for e := cs.waiting.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*conn); !c.served {
			all = append(all, c)
		}
	}
	return all
}

// await waits until done, which is called with mu held, ctx ends or d has passed.
func (cs *conns) await(ctx context.Context, d time.Duration, done func() bool) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		cs.mu.Lock()
		over := done()
		cs.mu.Unlock()
		if over {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Accept implements net.Listener.
func (cs *conns) Accept() (net.Conn, error) {
	for {
		accepted, err := cs.Listener.Accept()
		if err != nil {
			if cs.refusing.Load() {
				<-cs.ended
			}
			return nil, err
		}
		cs.mu.Lock()
		bounds := cs.bounds
		cs.mu.Unlock()
		c := &conn{TCPConn: accepted.(*net.TCPConn), owner: cs,
			addr: bounds.counted(accepted.RemoteAddr())}
		evict, ok := cs.admit(c)
		if evict != nil {
			cs.evicted.Add(1)
			_ = evict.Close() // best effort: it is no longer counted
		}
		if ok {
			return c, nil
		}
		cs.refused.Add(1)
		_ = c.TCPConn.Close()
	}
}

// admit counts c if the bounds allow it. If it returns evict, c takes that connection's place.
func (cs *conns) admit(c *conn) (evict *conn, ok bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if n := cs.bounds.perAddr; n > 0 && c.addr.IsValid() && cs.byAddr[c.addr] >= n {
		return nil, false
	}
	if cs.bounds.max > 0 && cs.open >= cs.bounds.max {
		longest := cs.waiting.Front()
		if longest == nil {
			return nil, false
		}
		evict = longest.Value.(*conn)
		cs.remove(evict)
	}
	cs.open++
	cs.byAddr[c.addr]++
	c.waits = cs.waiting.PushBack(c)
	return evict, true
}

// remove stops counting c. mu is held.
func (cs *conns) remove(c *conn) {
	if c.closed {
		return
	}
	c.closed = true
	cs.open--
	cs.byAddr[c.addr]--
	if cs.byAddr[c.addr] == 0 {
		delete(cs.byAddr, c.addr)
	}
	c.leave()
}

// leave takes c out of waiting, if it is there. mu is held.
func (c *conn) leave() {
	if c.waits != nil {
		c.owner.waiting.Remove(c.waits)
		c.waits = nil
	}
}

// headerTimeout is how long the header of a request may take from its first byte, and the first
// byte of a connection.
const headerTimeout = 10 * time.Second

// Read implements net.Conn. The first bytes of a connection begin headerTimeout anew, as net/http
// has it for later requests. It reads the first 14 bytes alone, to look for HTTP/2: if the deadline
// passed between these and the rest, it would take them for the whole line, and answer 400 to a
// valid request.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if n > 0 && !c.begun.Swap(true) {
		_ = c.TCPConn.SetReadDeadline(time.Now().Add(headerTimeout)) // it fails if Read does
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if send := c.owner.send.Load(); send > 0 {
		deadline := time.Now().Add(time.Duration(send))
		if until := c.until.Load(); until == 0 || deadline.UnixNano() < until {
			_ = c.TCPConn.SetWriteDeadline(deadline) // it fails if Write does
		}
	}
	return c.TCPConn.Write(b)
}

// ReadFrom hides that of *net.TCPConn, which has no deadline for each piece.
func (c *conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{c}, r) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	until := int64(0)
	if !t.IsZero() {
		until = max(1, t.UnixNano())
	}
	c.until.Store(until)
	return c.TCPConn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.owner.mu.Lock()
	c.owner.remove(c)
	c.owner.mu.Unlock()
	return c.TCPConn.Close()
}

// begin and end mark the start and the end of a request on c. HTTP/2 serves several at a time.
// begin reports false if the address has too many.
func (c *conn) begin() bool {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	if c.addr.IsValid() {
		if n := c.owner.bounds.perAddr; n > 0 && c.owner.serving[c.addr] >= n {
			return false
		}
		c.owner.serving[c.addr]++
	}
	c.serving++
	c.served = true
	c.leave()
	return true
}

func (c *conn) end() {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	if n, ok := c.owner.serving[c.addr]; ok {
		c.owner.serving[c.addr]--
		if n == 1 {
			delete(c.owner.serving, c.addr)
		}
	}
	c.serving--
	if c.serving == 0 && !c.closed {
		c.waits = c.owner.waiting.PushBack(c)
	}
}

type connKey struct{}

// connContext is http.Server's ConnContext: it lets occupy find the connection.
func connContext(ctx context.Context, nc net.Conn) context.Context {
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok { // TLS
		nc = t.NetConn()
	}
	c, ok := nc.(*conn)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, connKey{}, c)
}

// occupy marks the connections of requests that next serves.
func occupy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			if !c.begin() {
				c.owner.refused.Add(1)
				w.Header().Set("Retry-After", "1")
				http.Error(w, "Too many requests of this address are in flight.", http.StatusServiceUnavailable)
				return
			}
			defer c.end()
		}
		next.ServeHTTP(w, r)
	})
}

// collect collects the figures.
func (cs *conns) collect(ch chan<- prometheus.Metric) {
	cs.mu.Lock()
	open, waiting := cs.open, cs.waiting.Len()
	cs.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(descConns, prometheus.GaugeValue, float64(open))
	ch <- prometheus.MustNewConstMetric(descWaiting, prometheus.GaugeValue, float64(waiting))
	refused, evicted := float64(cs.refused.Load()), float64(cs.evicted.Load())
	ch <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, refused)
	ch <- prometheus.MustNewConstMetric(descEvicted, prometheus.CounterValue, evicted)
}
