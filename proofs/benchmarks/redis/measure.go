package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
	"github.com/weirgo/weir/redislimit"
)

// sample is one measurement.
type sample struct {
	perSecond float64 // decisions
	trips     float64 // scripts run per decision
	script    float64 // µs of server time per script
	client    float64 // µs of CPU per decision
	server    float64 // µs of CPU per decision
}

// entrant is an open contestant and its results.
type entrant struct {
	*contestant
	stand
	decide
	calls, allowed int // totals
	samples        []sample
}

// meter takes the measurements.
type meter struct {
	client   *redis.Client
	entrants []*entrant
}

// enter opens c with its own keys and calls it once for each of them.
func (m *meter) enter(ctx context.Context, c *contestant) error {
	n := len(m.entrants)
	store, err := redislimit.New(m.client, redislimit.Config{Timeout: generous})
	if err != nil {
		return err
	}
	e := &entrant{contestant: c,
		stand: stand{client: m.client, store: store, limits: numbers[c.load], ids: make([]string, *keys)}}
	for i := range e.ids {
		e.ids[i] = fmt.Sprintf("%d.%d.%d.%d", 10+n, i>>16&255, i>>8&255, i&255)
	}
	m.entrants = append(m.entrants, e)
	e.decide, err = c.open(&e.stand)
	if err != nil {
		return err
	}
	filled, err := e.ask(ctx, len(e.ids), 0)
	if err == nil && (filled.calls != len(e.ids) || filled.allowed != filled.calls) {
		err = fmt.Errorf("%d of %d first calls were admitted", filled.allowed, filled.calls)
	}
	return err
}

func (m *meter) close() {
	for _, e := range m.entrants {
		for _, end := range e.closes {
			_ = end()
		}
	}
}

// measure runs one measurement of e and appends a sample.
func (m *meter) measure(ctx context.Context, e *entrant) error {
	before, err := m.read(ctx)
	if err != nil {
		return err
	}
	got, err := e.ask(ctx, e.rounds*len(e.ids), *benchtime)
	if err != nil {
		return err
	}
	after, err := m.read(ctx)
	if err != nil {
		return err
	}
	n, scripts := float64(got.calls), after.scripts-before.scripts
	e.samples = append(e.samples, sample{
		perSecond: n / got.took.Seconds(),
		trips:     scripts / n,
		script:    (after.usec - before.usec) / max(1, scripts),
		client:    (after.client - before.client) / n,
		server:    (after.server - before.server) / n,
	})
	want := 0
	if e.limit() == unlimited {
		want = got.calls
	}
	if got.allowed != want {
		return fmt.Errorf("%d of %d calls were admitted, want %d", got.allowed, got.calls, want)
	}
	return nil
}

// outcome counts calls and admissions.
type outcome struct {
	calls, allowed int
	took           time.Duration
}

// chunk is the number of calls that a caller makes between two clock readings.
const chunk = 16

// ask makes at least the given number of calls from all callers together, for at least the given
// time.
func (e *entrant) ask(ctx context.Context, calls int, long time.Duration) (outcome, error) {
	var next, made, allowed atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	begun := time.Now()
	for range cmp.Or(e.contestant.callers, *callers) {
		wg.Go(func() {
			for failed.Load() == nil {
				first := int(next.Add(chunk)) - chunk
				last := first + chunk
				if time.Since(begun) >= long {
					last = min(last, calls)
				}
				if first >= last {
					return
				}
				for i := first; i < last; i++ {
					ok, err := e.decide(ctx, e.ids[i%len(e.ids)])
					if err != nil {
						failed.CompareAndSwap(nil, &err)
						return
					}
					if ok {
						allowed.Add(1)
					}
				}
				made.Add(int64(last - first))
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return outcome{}, *err
	}
	got := outcome{int(made.Load()), int(allowed.Load()), time.Since(begun)}
	e.calls += got.calls
	e.allowed += got.allowed
	return got, nil
}

// reading holds the counters of the server and of this process.
type reading struct {
	scripts, usec  float64 // number of EVALSHA calls, and the µs they took
	client, server float64 // µs of CPU
}

func (m *meter) read(ctx context.Context) (now reading, err error) {
	info, err := m.client.InfoMap(ctx, "commandstats", "cpu").Result()
	if err != nil {
		return now, err
	}
	var user, sys float64
	stats := strings.NewReplacer("calls=", "", "usec=", "", ",",
		" ").Replace(info["Commandstats"]["cmdstat_evalsha"])
	_, _ = fmt.Sscan(stats, &now.scripts, &now.usec) // both stay 0 before the first script
	if _, err := fmt.Sscan(info["CPU"]["used_cpu_user"]+" "+info["CPU"]["used_cpu_sys"], &user,
		&sys); err != nil {
		return now, fmt.Errorf("INFO cpu: %w", err)
	}
	now.server = (user + sys) * 1e6
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return now, err
	}
	now.client = float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
	return now, nil
}

// report returns the text of RESULTS.md.
func (m *meter) report(ctx context.Context) ([]byte, error) {
	info, err := m.client.InfoMap(ctx, "server").Result()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Redis\n\nWritten by `go run ./proofs/benchmarks/redis`.\n\n"+
		"%d callers, each with its own connection, use %d keys in turn. The client has\n"+
		"`redislimit.Options`; the server runs on the same machine and persists nothing. Contestants\n"+
		"take turns of %v or longer, in %d rounds. Figures are medians; the ratio is the median of the\n"+
		"ratios within a round. An admitted decision counts one hit; a denied one finds its key's limit\n"+
		"spent. Script times come from `INFO commandstats`. CPU times are those of client and server;\n"+
		"other processes disturb them least. The program fails if a verdict differs from the table's\n"+
		"claim, or if Redis did not count exactly the admitted hits.\n\n"+
		"%s. redis-server %s, %s, go-redis %s.\n",
		*callers, *keys, *benchtime, *rounds,
		bench.Machine(), info["Server"]["redis_version"],
		rival+" "+bench.Version("github.com/go-redis/redis_rate/v10"),
		bench.Version("github.com/redis/go-redis/v9"))
	for _, load := range []string{admitted, denied, deniedByThird} {
		m.table(&b, load)
	}
	for _, callers := range crowds {
		m.table(&b, several(callers))
	}
	ratio := func(load string) float64 {
		return m.entrant(tiers, load).ratio(m.entrant(threeRivals, load))
	}
	fmt.Fprintf(&b,
		"\n%s checks its three limits in one round trip and charges all of them or none. %s\n"+
			"needs a round trip for each limit, up to the first that denies, and a request that the last "+
			"one\n"+
			"denies has already spent the others. %[1]s makes %.2[3]f times as many decisions where "+
			"requests "+
			"are\n"+
			"admitted, %.2[4]f where the first limit denies and %.2[5]f where the last one does.\n",
		tiers, rival, ratio(admitted), ratio(denied), ratio(deniedByThird))
	fmt.Fprintf(&b,
		"\nThe limits of one Decide may be of different keys and strategies. It takes one round trip, "+
			"as one call\n"+
			"of %s does, and makes", rival)
	for i, callers := range crowds {
		load := several(callers)
		fmt.Fprintf(&b, "%s %.2f", []string{"", ",", " and"}[i],
			m.entrant(oneDecide, load).ratio(m.entrant(threeCalls, load)))
	}
	b.WriteString(" times as many decisions as three calls.\n")
	return b.Bytes(), nil
}

// entrant returns the entrant with that name and load. It panics if there is none.
func (m *meter) entrant(name, load string) *entrant {
	for _, e := range m.entrants {
		if e.name == name && e.load == load {
			return e
		}
	}
	panic("no contestant " + name)
}

func (m *meter) table(b *bytes.Buffer, load string) {
	fmt.Fprintf(b, "\n| %s | decisions/s | × %s | CPU, client + server, µs | script, µs | "+
		"scripts per decision |\n|---|--:|--:|--:|--:|--:|\n", load, rivals[load])
	base := m.entrant(rivals[load], load)
	for _, e := range m.entrants {
		if e.load != load {
			continue
		}
		fmt.Fprintf(b, "| %s | %.0f | %.2f | %.1f + %.1f | %.2f | %.3f |\n", e.name,
			e.median(func(_ int, s sample) float64 { return s.perSecond }), e.ratio(base),
			e.median(func(_ int, s sample) float64 { return s.client }),
			e.median(func(_ int, s sample) float64 { return s.server }),
			e.median(func(_ int, s sample) float64 { return s.script }),
			e.median(func(_ int, s sample) float64 { return s.trips }))
	}
}

// check fails if Redis has not counted exactly the admitted hits, apart from unused leases.
func (e *entrant) check(ctx context.Context) error {
	spare := 0 // hits that leases may have taken and not used
	switch e.name {
	case "FixedWindow":
	case lease:
		spare = leased * len(e.ids)
	default:
		return nil
	}
	counted, fixed := 0, e.store.FixedWindow()
	for _, id := range e.ids {
		res, err := ops.Peek(ctx, fixed, &weir.Request{Key: id, Limit: e.limit(), Duration: period})
		if err != nil {
			return err
		}
		// Peek includes its own hit if it would be admitted.
		counted += int(res.TotalRequests) - int(res.State)
	}
	if counted < e.allowed || counted > e.allowed+spare {
		return fmt.Errorf("%d hits were admitted, but Redis counted %d", e.allowed, counted)
	}
	return nil
}

// ratio returns the median over all rounds of e's decisions per second divided by other's.
func (e *entrant) ratio(other *entrant) float64 {
	return e.median(func(i int, s sample) float64 { return s.perSecond / other.samples[i].perSecond })
}

// median returns the median of a figure over all rounds.
func (e *entrant) median(of func(round int, s sample) float64) float64 {
	var all []float64
	for i, s := range e.samples {
		all = append(all, of(i, s))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
