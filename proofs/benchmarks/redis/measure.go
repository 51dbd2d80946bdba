package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/weirgo/weir"
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
		res, err := fixed.Peek(ctx, &weir.Request{Key: id, Limit: e.limit(), Duration: period})
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
