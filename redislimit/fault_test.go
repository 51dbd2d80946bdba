package redislimit_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

const (
	callers = 64
	slack   = 10 * time.Millisecond // beyond the Timeout
)

// bench is a server, the proxy before it and a Store behind that.
type bench struct {
	server *redistest.Server
	proxy  *redistest.Proxy
	store  *redislimit.Store
}

func newBench(t *testing.T, args ...string) *bench {
	b := &bench{server: redistest.Start(t, args...)}
	b.proxy = redistest.NewProxy(t, b.server.Addr)
	b.store = b.storeAt(t, b.proxy.Addr, redislimit.DefaultTimeout)
	return b
}

// storeAt is a Store on a client of its own.
func (b *bench) storeAt(t *testing.T, addr string, timeout time.Duration) *redislimit.Store {
	o := redislimit.Options(addr)
	o.PoolSize = 10
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout
	o.DialTimeout = max(o.DialTimeout, min(timeout, time.Second))
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	s, err := redislimit.New(c, redislimit.Config{Timeout: timeout})
	require.NoError(t, err)
	return s
}

// fault is one row of the table.
type fault struct {
	name string

	// with breaks the bench, and returns how to mend it.
	with func(t *testing.T, b *bench) (mend func())

	ambiguous bool // a request may have been counted though its answer was an error
	direct    bool // the clients connect to the server, not to the proxy
	cold      bool // the fault concerns new connections: do not warm up
	harmless  bool // no decision fails
	forgets   bool // the server comes back empty
}

func set(b *bench, name, value, back string) func() {
	b.server.Do("config", "set", name, value)
	return func() { b.server.Do("config", "set", name, back) }
}

func act(b *bench, action redistest.Action) func() {
	b.proxy.OnCommand(func(command []string) redistest.Action {
		if strings.HasPrefix(command[0], "eval") {
			return action
		}
		return redistest.Pass
	})
	return func() { b.proxy.OnCommand(nil) }
}

var faults = []fault{
	{name: "SIGKILL", direct: true, forgets: true, with: func(_ *testing.T, b *bench) func() {
		b.server.Kill()
		return b.server.Restart
	}},
	{name: "SIGSTOP", direct: true, ambiguous: true, with: func(_ *testing.T, b *bench) func() {
		b.server.Freeze()
		return b.server.Thaw
	}},
	{name: "OOM", with: func(_ *testing.T, b *bench) func() { return set(b, "maxmemory", "1", "0") }},
	{name: "READONLY", with: func(_ *testing.T, b *bench) func() {
		b.server.Do("replicaof", "127.0.0.1", "1")
		return func() { b.server.Do("replicaof", "no", "one") }
	}},
	{name: "NOREPLICAS", with: func(_ *testing.T, b *bench) func() { return set(b, "min-replicas-to-write", "1", "0") }},
	{name: "CLIENT PAUSE WRITE", ambiguous: true, with: func(_ *testing.T, b *bench) func() {
		b.server.Do("client", "pause", 60_000, "write")
		return func() { b.server.Do("client", "unpause") }
	}},
	{name: "BUSY script", ambiguous: true, with: busy},
	{name: "maxclients", direct: true, cold: true, with: func(t *testing.T, b *bench) func() {
		b.server.Do("config", "set", "maxclients", "1")
		hold, err := net.Dial("tcp", b.server.Addr)
		require.NoError(t, err)
		return func() {
			_ = hold.Close()
			redistest.Eventually(t, 5*time.Second, "a place is free", func() bool {
				c := redis.NewClient(&redis.Options{Addr: b.server.Addr, DisableIdentity: true})
				defer c.Close()
				return c.ConfigSet(context.Background(), "maxclients", "1000").Err() == nil
			})
		}
	}},
	{name: "SCRIPT FLUSH", harmless: true, with: func(_ *testing.T, b *bench) func() {
		b.server.Do("script", "flush")
		return func() {}
	}},
	{name: "restart", direct: true, harmless: true, cold: true, with: func(_ *testing.T, b *bench) func() {
		b.server.Kill()
		b.server.Restart()
		return func() {}
	}},
	{name: "connection refused", with: func(_ *testing.T, b *bench) func() {
		b.proxy.Refuse(true)
		return func() { b.proxy.Refuse(false) }
	}},
	{name: "reset before the server", with: func(_ *testing.T, b *bench) func() { return act(b, redistest.Reset) }},
	{name: "reply lost", ambiguous: true, with: func(_ *testing.T, b *bench) func() { return act(b, redistest.LoseReply) }},
	{name: "black hole before the server", with: func(_ *testing.T, b *bench) func() { return act(b, redistest.BlackHole) }},
	{name: "black hole behind the server", ambiguous: true, with: func(_ *testing.T, b *bench) func() { return act(b, redistest.HoldReply) }},
	{name: "latency beyond the timeout", ambiguous: true, with: func(_ *testing.T, b *bench) func() {
		b.proxy.Latency(2 * redislimit.DefaultTimeout)
		return func() { b.proxy.Latency(0) }
	}},
}

// busy has the server run a script that does not end, and waits until it says so.
func busy(t *testing.T, b *bench) func() {
	b.server.Do("config", "set", "busy-reply-threshold", "20")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c := redis.NewClient(&redis.Options{Addr: b.server.Addr, MaxRetries: -1, ReadTimeout: time.Minute})
		defer c.Close()
		_ = c.Eval(context.Background(), "while true do end", nil).Err()
	}()
	c := b.server.Client()
	redistest.Eventually(t, 5*time.Second, "the server is busy", func() bool {
		return redis.HasErrorPrefix(c.Get(context.Background(), "x").Err(), "BUSY")
	})
	return func() { b.server.Do("script", "kill"); <-ended }
}

// Every fault gives a prompt error to each of 64 callers: no admission, no denial made up, no
// panic, nothing counted unless it is the answer that was lost; and when the fault is over,
// decisions are made again.
func TestFaultTable(t *testing.T) {
	slow.Test(t)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			b := newBench(t)
			addr, timeout := b.proxy.Addr, redislimit.DefaultTimeout
			if f.direct {
				addr = b.server.Addr
			}
			if f.harmless {
				timeout = generous
			}
			b.store = b.storeAt(t, addr, timeout)
			r := &weir.Request{Key: "a", Limit: 1000, Duration: 24 * time.Hour}
			all := everyone(t, b.store, r)
			patient := everyone(t, b.storeAt(t, b.server.Addr, generous), r) // none of its decisions is late, and counted for nothing
			before := map[string]uint64{}
			for name, s := range all {
				if !f.cold {
					_, _ = s.Run(context.Background(), r) // it connects
					before[name] = used(t, patient[name], r)
				}
			}
			mend := f.with(t, b)
			for name, s := range all {
				if f.harmless {
					out, _ := storm(s, r)
					for _, o := range out {
						assert.NoError(t, o.err, name)
					}
					before[name] += callers
					continue
				}
				weather(t, name, redislimit.DefaultTimeout+slack, s, r, func(o outcome) {
					assert.Nil(t, o.res, name)
					assert.Equal(t, redislimit.Down, redislimit.Classify(o.err), "%s: %v", name, o.err)
				})
			}
			mend()
			for name, s := range all {
				took := redistest.Eventually(t, time.Second, name+" decides again", func() bool {
					_, err := s.Peek(context.Background(), r)
					return err == nil
				})
				after := used(t, patient[name], r) - 1 // less its own hit
				switch {
				case f.ambiguous:
					assert.LessOrEqual(t, after, before[name]+rounds*callers, name)
				case f.forgets:
					assert.Zero(t, after, name)
				default:
					assert.Equal(t, before[name], after, "%s: counted", name)
				}
				t.Logf("%-14s decides again after %v", name, took.Round(time.Millisecond))
			}
		})
	}
}

// used counts one hit and returns the total.
func used(t *testing.T, s weir.Strategy, r *weir.Request) uint64 {
	t.Helper()
	var total uint64
	redistest.Eventually(t, 5*time.Second, "a decision", func() bool {
		res, err := s.Run(context.Background(), r)
		if err == nil {
			total = res.TotalRequests
		}
		return err == nil
	})
	return total
}

// outcome is what one caller got.
type outcome struct {
	res  *weir.Result
	err  error
	took time.Duration
}

// storm is 64 callers at once, one decision each, and how long the slowest took.
func storm(s weir.Strategy, r *weir.Request) (out []outcome, slowest time.Duration) {
	out = make([]outcome, callers)
	var ready, done sync.WaitGroup
	ready.Add(callers)
	for i := range callers {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			start := time.Now()
			res, err := s.Run(context.Background(), r)
			out[i] = outcome{res, err, time.Since(start)}
		})
	}
	done.Wait()
	for _, o := range out {
		slowest = max(slowest, o.took)
	}
	return out, slowest
}

// rounds is how many storms there are, at most, until all of one were answered in time. A machine
// that is busy with other things makes some callers late in some rounds; a deadline that is not
// kept makes some late in all of them.
const rounds = 5

// weather storms until a round was within limit, and what the machine itself was late by, and fails
// if none was.
func weather(t *testing.T, name string, limit time.Duration, s weir.Strategy, r *weir.Request, each func(outcome)) {
	t.Helper()
	var took []time.Duration
	for range rounds {
		late := redistest.Watch()
		out, slowest := storm(s, r)
		allowed := limit + late()
		for _, o := range out {
			each(o)
		}
		if took = append(took, slowest.Round(100*time.Microsecond)); slowest <= allowed {
			t.Logf("%-14s slowest of %d: %v, for example %v", name, callers, took, out[0].err)
			return
		}
	}
	assert.Fail(t, "late in every round", "%s: %v, not %v", name, took, limit)
}

// A frozen server holds nobody for longer than the timeout: 64 callers share 10 connections, and
// none of them waits for another's.
func TestFrozenServerDelaysNobody(t *testing.T) {
	slow.Test(t)
	b := newBench(t)
	s := b.storeAt(t, b.server.Addr, redislimit.DefaultTimeout).FixedWindow()
	r := &weir.Request{Key: "a", Limit: 1_000_000, Duration: time.Hour}
	storm(s, r) // fills the pool
	b.server.Freeze()
	defer b.server.Thaw()
	for range 5 {
		weather(t, "FixedWindow", 60*time.Millisecond, s, r, func(o outcome) {
			assert.Nil(t, o.res)
			assert.Equal(t, redislimit.Down, redislimit.Classify(o.err), "%v", o.err)
		})
	}
}
