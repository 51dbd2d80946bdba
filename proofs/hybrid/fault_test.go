package hybrid_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// fault is one way in which a server can fail.
type fault struct {
	name string

	// with causes the fault, and returns a function that repairs it.
	with func(t *testing.T, b *bench) (repair func())

	direct  bool // the client connects to the server, not to the proxy
	cold    bool // the fault concerns new connections: do not warm up
	answers bool // the server still answers PING
}

func set(name, value, back string) func(*testing.T, *bench) func() {
	return func(_ *testing.T, b *bench) func() {
		b.server.Do("config", "set", name, value)
		return func() { b.server.Do("config", "set", name, back) }
	}
}

func act(action redistest.Action) func(*testing.T, *bench) func() {
	return func(_ *testing.T, b *bench) func() {
		b.proxy.OnCommand(func(command []string) redistest.Action {
			if strings.HasPrefix(strings.ToLower(command[0]), "eval") {
				return action
			}
			return redistest.Pass
		})
		return func() { b.proxy.OnCommand(nil) }
	}
}

var faults = []fault{
	{name: "OOM", answers: true, with: set("maxmemory", "1", "0")},
	{name: "READONLY", answers: true, with: func(_ *testing.T, b *bench) func() {
		b.server.Do("replicaof", "127.0.0.1", "1")
		return func() { b.server.Do("replicaof", "no", "one") }
	}},
	{name: "NOREPLICAS", answers: true, with: set("min-replicas-to-write", "1", "0")},
	{name: "CLIENT PAUSE WRITE", answers: true, with: func(_ *testing.T, b *bench) func() {
		b.server.Do("client", "pause", 600_000, "write")
		return func() { b.server.Do("client", "unpause") }
	}},
	{name: "DEBUG SLEEP", direct: true, with: func(t *testing.T, b *bench) func() {
		slept := make(chan struct{})
		go func() {
			defer close(slept)
			c := redis.NewClient(&redis.Options{Addr: b.server.Addr, MaxRetries: -1,
				ReadTimeout: time.Minute})
			defer c.Close()
			_ = c.Do(context.Background(), "debug", "sleep", "5").Err()
		}()
		c := redis.NewClient(&redis.Options{Addr: b.server.Addr, MaxRetries: -1,
			ReadTimeout: 500 * time.Millisecond})
		defer c.Close()
		redistest.Eventually(t, 4*time.Second, "the server sleeps", func() bool {
			return c.Ping(context.Background()).Err() != nil
		})
		return func() { <-slept }
	}},
	{name: "SIGSTOP", direct: true, with: func(_ *testing.T, b *bench) func() {
		b.server.Freeze()
		return b.server.Thaw
	}},
	{name: "BUSY script", with: busy},
	{name: "maxclients", direct: true, cold: true, with: maxclients},
	{name: "SIGKILL", direct: true, with: func(_ *testing.T, b *bench) func() {
		b.server.Kill()
		return b.server.Restart
	}},
	{name: "reply lost", with: act(redistest.LoseReply)},
	{name: "reset before the server", with: act(redistest.Reset)},
	{name: "black hole behind the server", with: act(redistest.HoldReply)},
	{name: "black hole before the server", with: act(redistest.BlackHole)},
	{name: "connection refused", with: func(_ *testing.T, b *bench) func() {
		b.proxy.Refuse(true)
		return func() { b.proxy.Refuse(false) }
	}},
	{name: "latency beyond the timeout", with: func(_ *testing.T, b *bench) func() {
		b.proxy.Latency(2 * time.Second)
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

// maxclients uses up the server's only connection.
func maxclients(t *testing.T, b *bench) func() {
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
}

const probeInterval = 300 * time.Millisecond

// start starts a bench with one instance, warms it up, and causes the fault.
func (f fault) start(t *testing.T, cfg fallback.Config) (*bench, *fallback.Fallback, func()) {
	b := newBench(t, "--enable-debug-command", "local")
	addr := b.proxy.Addr
	if f.direct {
		addr = b.server.Addr
	}
	h := hybridAt(t, addr, cfg)
	if !f.cold {
		warmUp(t, h)
	}
	return b, h, f.with(t, b)
}

// During every fault, each of 64 callers gets a local decision in time, both before the breaker
// opens and afterwards.
func TestEveryFaultIsDecidedLocally(t *testing.T) {
	slow.Test(t)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Run("while the breaker is closed", func(t *testing.T) {
				_, h, repair := f.start(t, fallback.Config{MinCalls: 1 << 30}) // it does not open
				defer repair()
				requireLocal(t, h, fallback.DefaultTimeout+slack)
			})
			t.Run("once it has opened", func(t *testing.T) {
				_, h, repair := f.start(t, fallback.Config{ProbeInterval: probeInterval})
				defer repair()
				for h.Stats().State == fallback.Closed {
					requireLocal(t, h, time.Minute)
				}
				requireLocal(t, h, fallback.DefaultTimeout+slack)
			})
		})
	}
}

// A server that has lost its scripts is not a fault: primary decides all requests.
func TestScriptFlushIsNoFault(t *testing.T) {
	b := newBench(t)
	// Slow machines must not cause failures.
	h := hybridAt(t, b.server.Addr, fallback.Config{Timeout: 10 * time.Second})
	warmUp(t, h)
	for range 3 {
		b.server.Do("script", "flush")
		out, _ := callAll(h, day, callers)
		_, by := slowest(t, out)
		assert.Equal(t, map[weir.Source]int{weir.FromPrimary: callers}, by)
	}
}

// The control: with go-redis's default settings the store delays its callers, and only fallback
// does not.
func TestFaultControlDefaultClientIsSlow(t *testing.T) {
	slow.Test(t)
	b := newBench(t)
	c := redis.NewClient(&redis.Options{Addr: b.server.Addr, PoolSize: 10})
	defer c.Close()
	_, err := redislimit.New(c, redislimit.Config{})
	assert.ErrorIs(t, err, redislimit.ErrUnsafeClient)
	store, err := redislimit.New(c, redislimit.Config{AllowUnsafeClient: true})
	require.NoError(t, err)
	l := newLimiter(t, nil)
	h := newFallback(t, store.FixedWindow(), l.FixedWindow(), fallback.Config{})
	ask(t, h, day)
	b.server.Freeze()
	defer b.server.Thaw()
	out, late := callAll(h, day, 4)
	took, _ := slowest(t, out)
	assert.LessOrEqual(t, took, fallback.DefaultTimeout+slack+late, "fallback does not delay callers")
	start := time.Now()
	_, err = store.FixedWindow().Run(t.Context(), &day)
	require.Error(t, err)
	t.Logf("%v with fallback, %v without", took, time.Since(start))
	assert.Greater(t, time.Since(start), time.Second, "the store alone does")
}

// With a frozen server, ten connections and 64 callers, no caller waits much longer than the
// timeout.
func TestFrozenServerDelaysNoCaller(t *testing.T) {
	slow.Test(t)
	b := newBench(t)
	// So that the breaker stays closed and every caller waits.
	h := hybridAt(t, b.server.Addr, fallback.Config{MinCalls: 1 << 30})
	warmUp(t, h)
	b.server.Freeze()
	defer b.server.Thaw()
	for range 5 {
		requireLocal(t, h, 60*time.Millisecond)
	}
}

// When the server is killed, local decides at once.
func TestKilledServerIsDecidedLocally(t *testing.T) {
	slow.Test(t)
	b := newBench(t)
	h := hybridAt(t, b.server.Addr, fallback.Config{})
	var first []time.Duration
	for range 5 {
		warmUp(t, h)
		b.server.Kill()
		for i := range 12 {
			start := time.Now()
			_, by := ask(t, h, day)
			took := time.Since(start)
			assert.Equal(t, weir.FromLocal, by)
			if i == 0 {
				first = append(first, took)
			}
		}
		b.server.Restart()
	}
	t.Logf("first decisions after %v", first)
	// The test uses the median, as single calls may wait for a processor.
	assert.LessOrEqual(t, quantile(first, 0.5), 5*time.Millisecond)
}

// The first probe after writes work again closes the breaker, and no earlier one does, even if the
// server answers PING. The test counts probes, not milliseconds; package fallback tests the
// interval between them on a virtual clock.
func TestRecovery(t *testing.T) {
	slow.Test(t)
	hold := time.Duration(slow.N(1, 1, 60)) * time.Second
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			// Only a fault exceeds this timeout, even on a busy machine.
			_, h, repair := f.start(t, fallback.Config{ProbeInterval: probeInterval, Timeout: time.Second,
				MinCalls: 1, Stall: -1})
			f.hold(t, h, hold)
			repair()
			before := h.Stats()
			took := recovery(t, h)
			after := h.Stats()
			t.Logf("after %v; %d probes before, %d then", took.Round(time.Millisecond), before.Probes,
				after.Probes-before.Probes)
			assert.LessOrEqual(t, after.Probes, before.Probes+1)
			for range 100 {
				_, by := ask(t, h, day)
				require.Equal(t, weir.FromPrimary, by)
			}
			assert.Equal(t, after.Opens, h.Stats().Opens, "it stays closed")
		})
	}
}

// hold makes requests until the breaker opens. If the server still answers PING, it then checks for
// a while that the breaker stays open.
func (f fault) hold(t *testing.T, h *fallback.Fallback, hold time.Duration) {
	t.Helper()
	// A signal may take a moment to arrive.
	redistest.Eventually(t, 10*time.Second, "the breaker opens", func() bool {
		ask(t, h, day)
		return h.Stats().State != fallback.Closed
	})
	if !f.answers {
		return
	}
	opens := h.Stats().Opens
	// The pace of a client.
	for start := time.Now(); time.Since(start) < hold; time.Sleep(5 * time.Millisecond) {
		_, by := ask(t, h, day)
		require.Equal(t, weir.FromLocal, by)
	}
	assert.Equal(t, opens, h.Stats().Opens, "the breaker must not close and reopen")
}

// recovery returns how long it takes until primary decides.
func recovery(t *testing.T, h *fallback.Fallback) time.Duration {
	t.Helper()
	return redistest.Eventually(t, 10*time.Second, "primary decides", func() bool {
		_, by := ask(t, h, day)
		return by == weir.FromPrimary
	})
}
