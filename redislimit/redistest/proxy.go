package redistest

import (
	"bufio"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Action selects what a Proxy does with a command.
type Action int

// The actions.
const (
	Pass Action = iota // forward the command, deliver the reply
	// forward the command, and break the connection instead of delivering the reply
	LoseReply
	HoldReply // forward the command, and never deliver the reply: a black hole behind the server
	BlackHole // neither forward the command nor reply
	Reset     // break the connection instead of forwarding the command
)

// Proxy stands between clients and one server and speaks the protocol: it sees each command and
// each reply, so it can lose exactly this one. It is safe for concurrent use.
type Proxy struct {
	Addr string

	listener net.Listener
	target   string

	mu      sync.Mutex
	decide  func(command []string) Action                  // guarded by mu
	answer  func(command []string) (reply []byte, ok bool) // guarded by mu
	latency time.Duration                                  // guarded by mu
	trips   atomic.Int64                                   // see Trips
	refuse  bool                                           // guarded by mu
	seen    map[string]int                                 // guarded by mu; by name
	conns   map[net.Conn]struct{}                          // guarded by mu
	// Guarded by mu; closed at the end of a partition, or nil.
	healed chan struct{}
	// Guarded by mu; fill the listener's queue in a partition.
	fillers []net.Conn
}

// NewProxy starts a Proxy in front of target, the address of a server. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{
		Addr: l.Addr().String(), listener: l, target: target,
		seen: map[string]int{}, conns: map[net.Conn]struct{}{},
	}
	go p.accept()
	t.Cleanup(p.close)
	return p
}

// OnCommand has f choose what happens to each command from now on, by the words of the command; nil
// passes all. f is called from many goroutines.
func (p *Proxy) OnCommand(f func(command []string) Action) {
	p.mu.Lock()
	p.decide = f
	p.mu.Unlock()
}

// Answer has f answer commands in the server's place, in the bytes of the protocol, where it
// reports true; nil: none.
func (p *Proxy) Answer(f func(command []string) ([]byte, bool)) {
	p.mu.Lock()
	p.answer = f
	p.mu.Unlock()
}

// Latency delays each reply from now on.
func (p *Proxy) Latency(d time.Duration) { p.mu.Lock(); p.latency = d; p.mu.Unlock() }

// Refuse breaks every connection, and each new one at once, until it is called with false.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
	if refuse {
		for c := range p.conns {
			reset(c)
		}
	}
}

// Partition cuts the proxy off, until it is called with false: connections stay open and carry
// nothing, and new ones are not answered, as on a network that drops packets. What was sent
// meanwhile arrives afterwards.
func (p *Proxy) Partition(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case cut == (p.healed != nil):
	case cut:
		p.healed = make(chan struct{})
		p.listen(0)
		for len(p.fillers) < 16 { // the queue holds one or two
			c, err := net.DialTimeout("tcp", p.Addr, 20*time.Millisecond)
			if err != nil {
				return
			}
			p.fillers = append(p.fillers, c)
		}
	default:
		close(p.healed)
		p.healed = nil
		p.listen(128)
		for _, c := range p.fillers {
			_ = c.Close()
		}
		p.fillers = nil
	}
}

// listen sets the length of the listener's queue. A full queue drops the packets that open
// connections.
func (p *Proxy) listen(queue int) {
	if raw, err := p.listener.(*net.TCPListener).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { setQueue(fd, queue) })
	}
}

// await returns when there is no partition.
func (p *Proxy) await() {
	p.mu.Lock()
	healed := p.healed
	p.mu.Unlock()
	if healed != nil {
		<-healed
	}
}

// RoundTrip returns what Latency was last called with: how long a client should take to dial.
func (p *Proxy) RoundTrip() time.Duration { p.mu.Lock(); defer p.mu.Unlock(); return p.latency }

// Seen returns how many commands came by, by their names in lower case, since the last Forget.
func (p *Proxy) Seen() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.seen)
}

// Trips returns how many round trips there were: commands that were sent together, in one write of
// at most 4 KB, are one.
func (p *Proxy) Trips() int { return int(p.trips.Load()) }

// Forget starts Seen anew.
func (p *Proxy) Forget() { p.mu.Lock(); clear(p.seen); p.trips.Store(0); p.mu.Unlock() }

func (p *Proxy) close() {
	p.Partition(false)
	_ = p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.await()
		p.mu.Lock()
		refuse := p.refuse
		if !refuse {
			p.conns[c] = struct{}{}
		}
		p.mu.Unlock()
		if refuse {
			reset(c)
			continue
		}
		go func() {
			p.serve(c)
			p.mu.Lock()
			delete(p.conns, c)
			p.mu.Unlock()
		}()
	}
}

// serve relays one connection, one command at a time.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		reset(client)
		return
	}
	defer server.Close()
	in, out := bufio.NewReader(client), bufio.NewReader(server)
	for {
		first := in.Buffered() == 0 // the client has all replies to what it has sent
		raw, words, err := readCommand(in)
		if first {
			p.trips.Add(1)
		}
		if err != nil || !p.relay(client, server, out, raw, words) {
			return
		}
	}
}

// relay carries one command and its reply, or what the fault makes of them, and reports whether to
// go on.
func (p *Proxy) relay(client, server net.Conn, out *bufio.Reader, raw []byte, words []string) bool {
	decide, answer, latency := p.note(words)
	if answer != nil {
		if reply, ok := answer(words); ok {
			_, err := client.Write(reply)
			return err == nil
		}
	}
	action := Pass
	if decide != nil {
		action = decide(words)
	}
	switch action {
	case BlackHole:
		hang(client)
		return false
	case Reset:
		reset(client)
		return false
	}
	p.await()
	if _, err := server.Write(raw); err != nil {
		return false
	}
	reply, err := readReply(out, nil)
	if err != nil {
		reset(client)
		return false
	}
	switch action {
	case LoseReply:
		reset(client)
		return false
	case HoldReply:
		hang(client)
		return false
	}
	if latency > 0 {
		time.Sleep(latency) // the network's
	}
	p.await()
	_, err = client.Write(reply)
	return err == nil
}

// note counts a command and returns what is set now.
func (p *Proxy) note(
	words []string,
) (func([]string) Action, func([]string) ([]byte, bool), time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(words) > 0 {
		p.seen[strings.ToLower(words[0])]++
	}
	return p.decide, p.answer, p.latency
}

// hang keeps a connection open and silent until the client gives up.
func hang(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// reset breaks a connection: with no time to linger, it closes with RST.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
