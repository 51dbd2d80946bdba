package redislimit_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

const (
	callers = 64
	slack   = 10 * time.Millisecond // allowed beyond the Timeout
)

// bench is a server, a proxy in front of it, and a Store on the proxy.
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

// storeAt returns a Store with its own client.
func (b *bench) storeAt(t *testing.T, addr string, timeout time.Duration) *redislimit.Store {
	o := redislimit.Options(addr)
	o.PoolSize = 10
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout
	o.DialTimeout = max(o.DialTimeout, min(timeout, time.Second))
	return storeOn(t, dial(t, o), redislimit.Config{Timeout: timeout})
}

// fault is one row of the table.
type fault struct {
	name string

	// with causes the fault, and returns a function that repairs it.
	with func(t *testing.T, b *bench) (repair func())

	ambiguous bool // a request that fails may have been counted
	direct    bool // the clients connect to the server, not to the proxy
	cold      bool // the fault concerns new connections: do not warm up
	harmless  bool // decisions do not fail
	forgets   bool // the server restarts without its counts
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
	{name: "NOREPLICAS", with: func(_ *testing.T, b *bench) func() {
		return set(b, "min-replicas-to-write", "1", "0")
	}},
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
			redistest.Eventually(t, 5*time.Second, "a connection is free", func() bool {
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
	{name: "restart", direct: true, harmless: true, cold: true,
		with: func(_ *testing.T, b *bench) func() {
			b.server.Kill()
			b.server.Restart()
			return func() {}
		}},
	{name: "connection refused", with: func(_ *testing.T, b *bench) func() {
		b.proxy.Refuse(true)
		return func() { b.proxy.Refuse(false) }
	}},
	{name: "reset before the server",
		with: func(_ *testing.T, b *bench) func() { return act(b, redistest.Reset) }},
	{name: "reply lost", ambiguous: true,
		with: func(_ *testing.T, b *bench) func() { return act(b, redistest.LoseReply) }},
	{name: "black hole before the server",
		with: func(_ *testing.T, b *bench) func() { return act(b, redistest.BlackHole) }},
	{name: "black hole behind the server", ambiguous: true,
		with: func(_ *testing.T, b *bench) func() { return act(b, redistest.HoldReply) }},
	{name: "latency beyond the timeout", ambiguous: true, with: func(_ *testing.T, b *bench) func() {
		b.proxy.Latency(2 * redislimit.DefaultTimeout)
		return func() { b.proxy.Latency(0) }
	}},
}

// busy makes the server run an endless script, and returns once it replies with BUSY.
func busy(t *testing.T, b *bench) func() {
	b.server.Do("config", "set", "busy-reply-threshold", "20")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c := redis.NewClient(&redis.Options{Addr: b.server.Addr, MaxRetries: -1,
			ReadTimeout: time.Minute})
		defer c.Close()
		_ = c.Eval(context.Background(), "while true do end", nil).Err()
	}()
	c := b.server.Client()
	redistest.Eventually(t, 5*time.Second, "the server is busy", func() bool {
		return redis.HasErrorPrefix(c.Get(context.Background(), "x").Err(), "BUSY")
	})
	return func() { b.server.Do("script", "kill"); <-ended }
}

// During every fault, each of 64 callers promptly gets an error, never a Result, and nothing is
// counted unless a reply was lost. After the fault, decisions succeed again.
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
			all := everyStrategy(t, b.store, r)
			untimed := everyStrategy(t, b.storeAt(t, b.server.Addr, generous), r)
			before := map[string]uint64{}
			for name, s := range all {
				if !f.cold {
					_, _ = s.Run(context.Background(), r) // connects
					before[name] = used(t, untimed[name], r)
				}
			}
			repair := f.with(t, b)
			for name, s := range all {
				if f.harmless {
					out, _ := callAll(s, r)
					for _, o := range out {
						assert.NoError(t, o.err, name)
					}
					before[name] += callers
					continue
				}
				requireInTime(t, name, redislimit.DefaultTimeout+slack, s, r, func(o outcome) {
					assert.Nil(t, o.res, name)
					assert.Equal(t, redislimit.Down, redislimit.Classify(o.err), "%s: %v", name, o.err)
				})
			}
			repair()
			for name, s := range all {
				took := redistest.Eventually(t, time.Second, name+" decides again", func() bool {
					_, err := ops.Peek(context.Background(), s, r)
					return err == nil
				})
				after := used(t, untimed[name], r) - 1 // without its own hit
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

// outcome is the result of one call.
type outcome struct {
	res  *weir.Result
	err  error
	took time.Duration
}

// callAll makes 64 concurrent decisions, and also returns the longest duration.
func callAll(s weir.Strategy, r *weir.Request) (out []outcome, slowest time.Duration) {
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

// rounds is the most rounds until all calls of one are answered in time. A busy machine delays some
// calls in some rounds; a missed deadline delays some in every round.
const rounds = 5

// requireInTime makes rounds of calls until all of one took at most limit plus the delay of the
// machine itself. It fails if there is no such round.
func requireInTime(t *testing.T, name string, limit time.Duration, s weir.Strategy, r *weir.Request,
	each func(outcome)) {
	t.Helper()
	var took []time.Duration
	for range rounds {
		late := redistest.Watch()
		out, slowest := callAll(s, r)
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

// With a frozen server, 64 callers share 10 connections, and none waits longer than the timeout.
func TestFrozenServerDelaysNoCaller(t *testing.T) {
	slow.Test(t)
	b := newBench(t)
	s := b.storeAt(t, b.server.Addr, redislimit.DefaultTimeout).FixedWindow()
	r := &weir.Request{Key: "a", Limit: 1_000_000, Duration: time.Hour}
	callAll(s, r) // fills the pool
	b.server.Freeze()
	defer b.server.Thaw()
	for range 5 {
		requireInTime(t, "FixedWindow", 60*time.Millisecond, s, r, func(o outcome) {
			assert.Nil(t, o.res)
			assert.Equal(t, redislimit.Down, redislimit.Classify(o.err), "%v", o.err)
		})
	}
}

// refusing is a client around another one, such as a circuit breaker, which sets no error of a
// command.
type refusing struct{ redis.UniversalClient }

var errRefused = errors.New("circuit open")

func (refusing) Process(context.Context, redis.Cmder) error { return errRefused }

func TestTheErrorOfAClientAroundRedis(t *testing.T) {
	client := dial(t, redislimit.Options(redistest.Start(t).Addr))
	s := storeOn(t, refusing{client}, redislimit.Config{AllowUnsafeClient: true}).FixedWindow()
	_, err := s.Run(t.Context(), &weir.Request{Key: "a", Limit: 3, Duration: time.Hour})
	assert.ErrorIs(t, err, errRefused)
}
