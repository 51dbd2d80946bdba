package hybrid_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// outage is one way in which a fleet temporarily loses its Redis.
type outage struct {
	name      string
	roundTrip time.Duration
	timeout   time.Duration // of decisions; 0 means the default
	lasts     time.Duration
	args      []string // of the server
	direct    bool     // without the proxy
	workers   int      // of each instance; 0 means 8
	sentinel  bool     // a Sentinel monitors the server and promotes its replica
	cut       func(t *testing.T, b *bench) (repair func())
}

// bench starts the server, and the Sentinel if the outage needs one.
func (o outage) bench(t *testing.T) *bench {
	if !o.sentinel {
		b := newBench(t, o.args...)
		b.proxy.Latency(o.roundTrip)
		return b
	}
	s := redistest.StartSentinel(t)
	return &bench{server: s.Master, sentinel: s, proxy: redistest.NewProxy(t, s.Master.Addr)}
}

// perInstance is the number of workers of each instance.
func (o outage) perInstance() int { return cmp.Or(o.workers, 8) }

// client returns a client for one instance.
func (o outage) client(b *bench) *redis.Client {
	addr := b.proxy.Addr
	if o.direct {
		addr = b.server.Addr
	}
	opts := redislimit.Options(addr)
	opts.PoolSize = 10
	if o.workers > 0 {
		opts.PoolSize = o.workers // so that all workers may dial at once
	}
	dialsIn(opts, b.proxy)
	if b.sentinel == nil {
		return redis.NewClient(opts)
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: redistest.MasterName, SentinelAddrs: []string{b.sentinel.Addr},
		MaxRetries: opts.MaxRetries,
		PoolSize:   opts.PoolSize,
		Dialer:     opts.Dialer, DisableIdentity: true,
		ContextTimeoutEnabled: true, DialerRetries: opts.DialerRetries,
		DialerRetryTimeout: opts.DialerRetryTimeout,
		DialTimeout:        opts.DialTimeout, ReadTimeout: opts.ReadTimeout,
		WriteTimeout: opts.WriteTimeout,
		PoolTimeout:  opts.PoolTimeout,
	})
}

func cutKill(t *testing.T, b *bench) func()   { b.server.Kill(); return b.server.Restart }
func cutFreeze(t *testing.T, b *bench) func() { b.server.Freeze(); return b.server.Thaw }
func cutPartition(t *testing.T, b *bench) func() {
	b.proxy.Partition(true)
	return func() { b.proxy.Partition(false) }
}

var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

// outages are the rows of the recovery table.
var outages = []outage{
	{name: "kill and restart", lasts: 2 * time.Second, args: durable, cut: cutKill},
	{name: "kill and restart, nothing persisted", lasts: 2 * time.Second, cut: cutKill},
	{name: "freeze", lasts: 2 * time.Second, direct: true, cut: cutFreeze},
	{name: "partition of 3 s", lasts: 3 * time.Second, cut: cutPartition},
	{name: "partition of 3 s, 64 callers an instance", lasts: 3 * time.Second, workers: 64,
		cut: cutPartition},
	{name: "partition of 30 s", lasts: 30 * time.Second, cut: cutPartition},
	{name: "100 ms of extra latency", lasts: 2 * time.Second,
		cut: func(_ *testing.T, b *bench) func() {
			b.proxy.Latency(100 * time.Millisecond)
			return func() { b.proxy.Latency(0) }
		}},
	{name: "lost replies", lasts: 2 * time.Second, cut: act(redistest.LoseReply)},
	{name: "READONLY", lasts: 2 * time.Second, cut: func(_ *testing.T, b *bench) func() {
		b.server.Do("replicaof", "127.0.0.1", "1")
		return func() { b.server.Do("replicaof", "no", "one") }
	}},
	{name: "failover by Sentinel", direct: true, sentinel: true,
		cut: func(t *testing.T, b *bench) func() {
			b.server.Kill()
			return func() {
				redistest.Eventually(t, 30*time.Second, "the Sentinel names the replica as master",
					func() bool {
						at, _ := b.sentinel.Do("sentinel", "get-master-addr-by-name", redistest.MasterName).([]any)
						return len(at) == 2 && net.JoinHostPort(at[0].(string),
							at[1].(string)) == b.sentinel.Replica.Addr
					})
				b.server = b.sentinel.Replica
			}
		}},
	{name: "OOM", lasts: 2 * time.Second, cut: set("maxmemory", "1", "0")},
	{name: "2 s at a round trip of 1 ms", roundTrip: time.Millisecond, lasts: 2 * time.Second,
		cut: cutPartition},
	{name: "2 s at a round trip of 10 ms", roundTrip: 10 * time.Millisecond, lasts: 2 * time.Second,
		cut: cutPartition},
	{name: "2 s at a round trip of 15 ms", roundTrip: 15 * time.Millisecond, lasts: 2 * time.Second,
		cut: cutPartition},
	{name: "2 s at a round trip of 20 ms", roundTrip: 20 * time.Millisecond,
		timeout: 80 * time.Millisecond,
		lasts:   2 * time.Second, cut: cutPartition},
	{name: "2 s at a round trip of 40 ms", roundTrip: 40 * time.Millisecond,
		timeout: 160 * time.Millisecond,
		lasts:   2 * time.Second, cut: cutPartition},
}

// dialsIn delays the dials of o by a round trip of p, as handshakes are answered by the kernel
// without delay.
func dialsIn(o *redis.Options, p *redistest.Proxy) {
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if rtt := p.RoundTrip(); rtt > 0 {
			time.Sleep(rtt) // as long as a handshake over that network takes
		}
		return dial(ctx, network, addr)
	}
}

const (
	recoveryInstances = 3
	recoveryCallers   = 4 // keys
)

// row is the result of one outage.
type row struct {
	recovered time.Duration // from the repair until primary decided on every instance
	late      time.Duration // the same, measured from the last stall of the machine
	stalls    int
	errors    int64
	admitted  uint64 // the most admitted for one key
	over      uint64 // cost admitted over the bound
	// the most counted by primary for one key beyond what was admitted or whose reply was lost
	charged int64
	perCall float64
	opens   uint64
}

// stalls records when the machine stalls. A decision or probe that is late because of a stall says
// nothing about fallback.
type stalls struct {
	mu sync.Mutex
	at []time.Time // guarded by mu; the end of each stall, in order
}

// watch records stalls of this process and the server longer than limit until ctx is done.
func watch(ctx context.Context, server *redistest.Server, limit time.Duration) *stalls {
	s, client := &stalls{}, server.Client()
	loop := func(do func(), takes time.Duration) {
		for ctx.Err() == nil {
			start := time.Now()
			if do(); time.Since(start) > takes+limit {
				s.mu.Lock()
				s.at = append(s.at, time.Now())
				s.mu.Unlock()
			}
		}
	}
	const nap = 2 * time.Millisecond
	go loop(func() { time.Sleep(nap) }, nap)                             // measures how late that is
	go loop(func() { _ = client.Ping(ctx).Err(); time.Sleep(nap) }, nap) // between two PINGs
	return s
}

// last returns the end of the last stall between since and before, or since if there was none, and
// the number of stalls.
func (s *stalls) last(since, before time.Time) (last time.Time, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.at {
		if at.After(since) && at.Before(before) {
			since = at
			n++
		}
	}
	return since, n
}

// recoveringFleet is a set of instances under load.
type recoveringFleet struct {
	limit     uint64
	instances []*fallback.Fallback
	failed    atomic.Int64

	mu       sync.Mutex
	admitted [recoveryCallers]uint64 // guarded by mu
	// guarded by mu; decided locally, perhaps after primary counted them
	uncertain [recoveryCallers]uint64
	first     [recoveryInstances]time.Time // guarded by mu; first decision by primary after repaired
	calls     [recoveryInstances]int       // guarded by mu
	repaired  time.Time                    // guarded by mu
}

func newRecoveringFleet(t *testing.T, b *bench, o outage, probeInterval time.Duration,
	limit uint64) *recoveringFleet {
	f := &recoveringFleet{limit: limit}
	for range recoveryInstances {
		c := o.client(b)
		t.Cleanup(func() { _ = c.Close() })
		s, err := redislimit.New(c, redislimit.Config{Timeout: o.timeout})
		require.NoError(t, err)
		l := newLimiter(t, nil)
		i := newFallback(t, s.FixedWindow(), l.FixedWindow(), fallback.Config{
			Instances: recoveryInstances, Timeout: o.timeout, ProbeInterval: probeInterval, IsDown: isDown,
		})
		f.instances = append(f.instances, i)
	}
	return f
}

func (f *recoveringFleet) request(k int) *weir.Request {
	return &weir.Request{Key: fmt.Sprint("caller ", k), Limit: f.limit, Duration: 365 * 24 * time.Hour}
}

// load makes 400 requests a second on every instance until ctx is done.
func (f *recoveringFleet) load(ctx context.Context, o outage) *sync.WaitGroup {
	var all sync.WaitGroup
	workers := o.perInstance()
	for w := range recoveryInstances * workers {
		all.Go(func() {
			for n := w; ctx.Err() == nil; n++ {
				f.ask(w%recoveryInstances, n%recoveryCallers)
				time.Sleep(time.Duration(workers) * time.Second / 400) // the pace of the callers
			}
		})
	}
	return &all
}

func (f *recoveringFleet) ask(i, k int) {
	before := f.instances[i].Stats().State
	res, by, err := runSource(context.Background(), f.instances[i], f.request(k))
	now := time.Now()
	if err != nil {
		f.failed.Add(1)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[i]++
	if res.Allowed() {
		f.admitted[k]++
	}
	if by == weir.FromLocal && before == fallback.Closed {
		f.uncertain[k]++
	}
	if by == weir.FromPrimary && !f.repaired.IsZero() && f.first[i].IsZero() {
		f.first[i] = now
	}
}

// recovered records the time from the repair until primary decided on every instance. It returns
// false if that has not happened yet.
func (f *recoveringFleet) recovered(stalls *stalls, out *row) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.first {
		if at.IsZero() {
			return false
		}
		last, n := stalls.last(f.repaired, at)
		out.recovered, out.late = max(out.recovered, at.Sub(f.repaired)), max(out.late, at.Sub(last))
		out.stalls = max(out.stalls, n)
	}
	return true
}

// runOutage runs a fleet through an outage.
func runOutage(t *testing.T, o outage, probeInterval time.Duration, limit uint64) (out row) {
	b := o.bench(t)
	f := newRecoveringFleet(t, b, o, probeInterval, limit)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	workers := f.load(ctx, o)
	redistest.Eventually(t, time.Minute, "primary decides", func() bool {
		for _, i := range f.instances {
			if i.Stats().Primary < 20 {
				return false
			}
		}
		return true
	})
	repair := o.cut(t, b)
	time.Sleep(o.lasts) // the outage
	repair()
	stalls := watch(ctx, b.server, cmp.Or(o.timeout, fallback.DefaultTimeout)/2)
	f.mu.Lock()
	f.repaired = time.Now()
	f.mu.Unlock()
	redistest.Eventually(t, time.Minute, "primary decides on all instances",
		func() bool { return f.recovered(stalls, &out) })
	time.Sleep(200 * time.Millisecond) // late replies arrive
	if !o.direct {
		out.perCall = f.perCall(b)
	}
	cancel()
	workers.Wait()
	f.reconcileAll(t)
	f.checkCounts(t, b, &out)
	if !o.direct {
		f.oneEach(t, b)
	}
	return out
}

// commands returns how many decisions the proxy has seen, and how many calls of primary ended, late
// ones included.
func (f *recoveringFleet) commands(b *bench) (sent, calls uint64) {
	for _, i := range f.instances {
		s := i.Stats()
		calls += s.Primary + s.Failures
	}
	return uint64(b.proxy.Seen()["evalsha"]), calls
}

// perCall returns the commands for each call during half a second.
func (f *recoveringFleet) perCall(b *bench) float64 {
	sent, calls := f.commands(b)
	time.Sleep(500 * time.Millisecond) // what is counted in this time is the result
	sentThen, callsThen := f.commands(b)
	return float64(sentThen-sent) / float64(max(1, callsThen-calls))
}

// oneEach checks that each call sent one command, and each probe at most four. Nothing may be in
// flight. A call that ends when its caller cancels may count as neither success nor failure.
func (f *recoveringFleet) oneEach(t *testing.T, b *bench) {
	sent, most := f.commands(b)
	least := uint64(0)
	for _, i := range f.instances {
		s := i.Stats()
		least += s.Primary
		most += 4 * s.Probes
	}
	for _, n := range f.uncertain {
		most += n
	}
	assert.GreaterOrEqual(t, sent, least)
	assert.LessOrEqual(t, sent, most)
}

// reconcileAll uses every key on every instance, so that all debts are charged.
func (f *recoveringFleet) reconcileAll(t *testing.T) {
	for i := range f.instances {
		for k := range recoveryCallers {
			redistest.Eventually(t, 20*time.Second, "primary decides for each caller", func() bool {
				r := f.request(k)
				r.Cost = f.limit + 1 // never admitted, so counts nothing
				_, by, err := runSource(t.Context(), f.instances[i], r)
				return err == nil && by == weir.FromPrimary
			})
		}
	}
}

// checkCounts compares the cost admitted with the bound, and the counts of primary with the cost
// admitted.
func (f *recoveringFleet) checkCounts(t *testing.T, b *bench, out *row) {
	s := storeAt(t, b.server.Addr, redislimit.Config{Timeout: 5 * time.Second}).FixedWindow()
	bound := f.limit + (recoveryInstances-1)*((f.limit+recoveryInstances-1)/recoveryInstances)
	out.charged = -1 << 62
	for k := range recoveryCallers {
		r := f.request(k)
		r.Cost = f.limit + 1
		res, err := ops.Peek(t.Context(), s, r)
		require.NoError(t, err)
		out.admitted = max(out.admitted, f.admitted[k])
		out.over += f.admitted[k] - min(f.admitted[k], bound)
		out.charged = max(out.charged,
			int64(res.TotalRequests)-int64(f.admitted[k])-int64(f.uncertain[k]))
	}
	out.errors = f.failed.Load()
	for _, i := range f.instances {
		out.opens += i.Stats().Opens
	}
}

// TestRecoveryTable measures how a fleet of three instances under load recovers from each outage.
// If RECOVERY_TABLE is set to a path, the table is written there and the outages run one after
// another. Otherwise they run in parallel and, except in make nightly, with shorter outages, a
// shorter probe interval and a lower limit.
func TestRecoveryTable(t *testing.T) {
	slow.Test(t)
	path, probeInterval, limit := os.Getenv("RECOVERY_TABLE"), fallback.DefaultProbeInterval,
		uint64(600)
	short := path == "" && slow.N(0, 0, 1) == 0
	latest := probeInterval*11/10 + 300*time.Millisecond
	if short {
		probeInterval, limit = 300*time.Millisecond, 200
		latest = probeInterval*21/10 + 300*time.Millisecond // a probe may fail on a busy machine
	}
	rows := make([]string, len(outages))
	t.Run("rows", func(t *testing.T) {
		for i, o := range outages {
			if short && o.lasts > 10*time.Second {
				continue // it would equal the partition of 3 s
			}
			if short {
				o.lasts = min(o.lasts, 800*time.Millisecond) // longer than a dial and two probes
			}
			t.Run(o.name, func(t *testing.T) {
				if path == "" {
					t.Parallel() // the rows mostly wait
				}
				r := runOutage(t, o, probeInterval, limit)
				t.Logf("%+v", r)
				assert.Zero(t, r.errors)
				assert.Zero(t, r.over)
				assert.LessOrEqual(t, r.late, latest, "since the last stall")
				assert.LessOrEqual(t, r.charged, int64(0), "at most one hit for each lost answer")
				commands := "–"
				if !o.direct {
					commands = fmt.Sprintf("%.1f", r.perCall)
				}
				rows[i] = fmt.Sprintf("| %s | %.2f s | %d | %d | %d | %s |\n", o.name, r.recovered.Seconds(),
					r.errors,
					r.admitted, max(0, r.charged), commands)
			})
		}
	})
	table := "| Outage | primary decides again on all instances after | callers' errors | " +
		"admitted, at most, " +
		"of 600 (bound 1000) " +
		"| counted, less admitted and lost answers | commands a decision |\n|---|--:|--:|--:|--:|--:|\n" +
		strings.Join(rows, "")
	if path != "" {
		require.NoError(t, os.WriteFile(path, []byte(table), 0o644))
	}
	t.Log("\n" + table)
}
