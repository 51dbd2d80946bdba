package redislimit

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/calendar"
)

// Store makes the strategies that count in one Redis. It holds no counts, and is safe for
// concurrent use. Strategies of different kinds never share a count; strategies of one kind, prefix
// and server do, from whichever process.
type Store struct {
	server server
	prefix string
	grace  any              // ms, ready to be an argument
	now    func() time.Time // nil: the server's clock
	clocks clocks
	prompt bool // no call outlasts the deadline of its context
}

// FixedWindow counts in windows of r.Duration aligned to the Unix epoch, and admits at most twice
// the limit in any span of one Duration. The counterpart of weir's FixedWindow.
func (s *Store) FixedWindow() *Strategy {
	return s.strategy("fixed", fixedWindow, fixed{}, weir.About{Lapses: weir.LapsesWithWindow})
}

// SlidingWindow counts as FixedWindow does, and adds the window before, weighted by how much of it
// the last Duration still covers. The counterpart of weir's SlidingWindow.
func (s *Store) SlidingWindow() *Strategy {
	return s.strategy("sliding", slidingWindow, sliding{}, weir.About{Lapses: weir.LapsesWithWindows})
}

// Counter counts in a period of r.Duration that starts with the caller's first hit.
func (s *Store) Counter() *Strategy {
	return s.strategy("counter", counter, anchored{}, weir.About{})
}

// SlidingLog keeps the admitted requests of the last r.Duration, each with its instant: the exact
// rolling window. It is a list with one element, of 56 bytes and the Meta, for each of them. The
// counterpart of weir's SlidingLog.
func (s *Store) SlidingLog() *Log {
	return s.log("log", slidingLog, rolling{})
}

// List keeps the admitted requests of a period of r.Duration that starts with the caller's first,
// in a list: a Counter that also records the callers.
func (s *Store) List() *Log {
	return s.log("list", list, listed{})
}

// TokenBucket gives each caller a bucket of burst tokens (0: the request's Limit), which fills at
// Limit tokens in Duration; a hit takes one. It fails with weir.ErrLimit for a bucket that would
// take longer than 1<<62 ns, 146 years, to fill. The counterpart of weir's TokenBucket.
func (s *Store) TokenBucket(burst uint64) *Strategy {
	return s.strategy("token", tokenBucket, token{burst: burst},
		weir.About{Burst: burst, Lapses: weir.LapsesByToken})
}

// Calendar counts in hours, days, weeks, months or years of a time zone, whatever r.Duration is. A
// nil zone is UTC. It panics if unit.Check fails. The counterpart of weir's Calendar.
//
// The clock of the server decides, but the rules of the zone are this process's: it sends
// the window that holds its own time, the one before and the next one, and the script counts in
// the one of the three which holds the time of the server. If none does, since the clocks differ by
// more than a window, the call fails with ErrClock and counts nothing. Processes count together if
// they give the unit, its first day and the zone the same names, in windows that end at the same
// instant: one whose rules of the zone are older counts windows apart whose ends were changed.
//
// ResetPrefix resets the keys of this calendar, and not of others.
func (s *Store) Calendar(unit weir.CalendarUnit, zone *time.Location) *Calendar {
	of, err := calendar.New(calendar.Unit(unit), zone)
	if err != nil {
		panic("redislimit: " + err.Error())
	}
	// The name of a zone may be anything, and a key has its braces around the caller.
	name := strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace(of.String())
	c := &Calendar{Strategy{
		store: s, kind: "calendar", script: calendarWindow,
		protocol: &dated{of: of, name: name, now: func() time.Time { return s.read().now }},
	}}
	return describe(c, &c.Strategy, weir.About{Window: of.Unit().Length(), Period: of.String()})
}

// Tiers holds several limits at once over one key, all or nothing, in one round trip: 1000 in 1 s,
// 5000 in 10 s, 7000 in 15 s. The request's own Limit and Duration are ignored. With a Duration
// that cannot be or is given twice, or with none, its Limit panics, and weir.NewLimit and each call
// fail with weir.ErrScale. Tiers of the same Durations count together, in whatever order they are
// given. The counterpart of weir's Tiers.
//
// Time is cut into slices, as long as the greatest common divisor of the Durations. A decision
// reads one number for each slice of the longest tier that has a hit: about 0.6 µs of the server's
// time and 13 bytes each, or 56 bytes with over 512 of them (hash-max-listpack-entries). Up to 1024
// slices it equals its counterpart. Of longer tiers the older slices are merged, so that a caller
// has at most about 500 of them (1 s and 24 h), and 32 more for each doubling: then a hit counts
// for up to 1/32 of its age longer than in the counterpart, never shorter, and a refund of a hit
// older than 64 slices gives nothing back.
func (s *Store) Tiers(tiers ...weir.Tier) *Tiers {
	given := slices.Clone(tiers)
	names, err := namesOf(given)
	if err != nil {
		return s.tiers(several{bad: err}, given)
	}
	t := several{limits: make([]int64, len(tiers)), least: tiers[0].Limit}
	all := make([]algorithm.Tier, len(tiers))
	for i, tier := range given {
		t.limits[i], t.least = clamp(tier.Limit), min(t.least, tier.Limit)
		all[i] = algorithm.Tier{Limit: t.limits[i], Scale: tier.Duration.Milliseconds()}
	}
	t.slice = algorithm.NewTiers(all).Slice()
	for i, tier := range given {
		t.args = append(t.args, tier.Duration.Milliseconds()/t.slice, t.limits[i])
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(len(a)-len(b), strings.Compare(a, b))
	})
	t.name = strings.Join(names, "-")
	return s.tiers(t, given)
}

// InFlight bounds how much of a caller's work is in flight at one time, in all processes together:
// it can weir.OpHold. Each place is a lease of r.Duration by the server's clock, which weir.Hold
// renews until it is released, so a process that dies gives its places back one Duration after it
// last renewed them. Run takes a lease that nobody renews. It is a sorted set with a member of
// about 40 bytes for each lease. The counterpart of weir's InFlight.
//
// Reset takes all leases back, also of work that is in flight: it is counted again with its next
// renewal, if there is room.
func (s *Store) InFlight() *InFlight {
	f := &InFlight{Strategy{store: s, kind: "flight", script: inFlight, protocol: leased{}}}
	return describe(f, &f.Strategy, weir.About{InFlight: true,
		Verbs: weir.VerbsOf(weir.OpHold, weir.OpRenew, weir.OpRelease)})
}

// Heartbeat reports this process to Redis from now on, until Close, and counts the processes that
// do so. It fails with ErrConfig. It holds a goroutine, and returns before Redis has answered.
//
//	beat, err := store.Heartbeat(redislimit.HeartbeatConfig{})
//	…
//	defer beat.Close()
//	f, err := fallback.New(store.FixedWindow(), limiter.FixedWindow(),
//		fallback.Config{Instances: 3, InstancesFunc: beat.Instances})
func (s *Store) Heartbeat(cfg HeartbeatConfig) (*Heartbeat, error) {
	if strings.ContainsAny(cfg.Fleet, "{}") || cfg.Every < 0 || cfg.Keep < 0 {
		return nil, fmt.Errorf("%w: heartbeat of %q every %v, kept for %v", ErrConfig, cfg.Fleet,
			cfg.Every, cfg.Keep)
	}
	cfg.Every, cfg.Keep = max(time.Millisecond, cmp.Or(cfg.Every, defaultEvery)),
		cmp.Or(cfg.Keep, defaultKeep)
	ctx, stop := context.WithCancel(context.Background())
	h := &Heartbeat{store: s, cfg: cfg, id: rand.Text(), stop: stop, done: make(chan struct{})}
	go h.run(ctx)
	return h, nil
}

func (s *Store) sortedSet() *Strategy {
	return s.strategy("zset", sortedSet, rolling{}, weir.About{})
}

func (s *Store) strategy(kind string, sc *script, p protocol, a weir.About) *Strategy {
	of := &Strategy{store: s, kind: kind, script: sc, protocol: p}
	return describe(of, of, a)
}

func (s *Store) log(kind string, sc *script, p protocol) *Log {
	l := &Log{Strategy{store: s, kind: kind, script: sc, protocol: p}}
	return describe(l, &l.Strategy, weir.About{Verbs: weir.VerbsOf(weir.OpHits)})
}

func (s *Store) tiers(t several, tiers []weir.Tier) *Tiers {
	sorted := append([]weir.Tier{}, tiers...) // not nil
	slices.SortFunc(sorted, func(a, b weir.Tier) int { return cmp.Compare(a.Duration, b.Duration) })
	of := &Tiers{Strategy{store: s, kind: "tiers", script: tiered, protocol: t}, tiers}
	return describe(of, &of.Strategy, weir.About{Bound: true, Tiers: sorted})
}

// args begins a command for eval, with room for the head and for the numbers that the scripts add
// to the arguments that all share. See clock.lua.
func (s *Store) args(op any) []any {
	return append(make([]any, head, head+12), op, s.grace)
}

// do makes calls, and sets the outcome of their ops.
func (s *Store) do(ctx context.Context, calls ...*call) {
	s.server.do(ctx, calls...)
	for _, c := range calls {
		if c.err == nil {
			c.err = c.finish()
		}
		c.op.Err = c.err
	}
}

// read reads the clock for a command.
func (s *Store) read() reading {
	if s.now != nil {
		return reading{nil, s.now()}
	}
	return reading{&s.clocks, s.clocks.here()}
}

// New returns a Store on c. It sends nothing to the server: it works, and the Store will, while the
// server is down. It fails with ErrUnsafeClient when the settings of c would break a promise,
// unless cfg.AllowUnsafeClient is set, and with ErrConfig. The client stays the caller's to close.
//
// Whatever the client's settings are, this package's commands are never sent twice by go-redis:
// they are marked as not to be retried.
func New(c redis.UniversalClient, cfg Config) (*Store, error) {
	switch {
	case c == nil:
		return nil, fmt.Errorf("%w: no client", ErrConfig)
	case strings.ContainsAny(cfg.Prefix, "{}"):
		return nil, fmt.Errorf("%w: braces in prefix %q", ErrConfig, cfg.Prefix)
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("%w: the timeout %v is negative", ErrConfig, cfg.Timeout)
	}
	err := checkClient(c, cmp.Or(cfg.Timeout, DefaultTimeout))
	if err != nil && !cfg.AllowUnsafeClient {
		return nil, err
	}
	s := newStore(c, cfg)
	s.prompt = err == nil
	return s, nil
}

func newStore(c redis.UniversalClient, cfg Config) *Store {
	grace := DefaultGrace
	if cfg.Now != nil {
		grace = DefaultClockGrace
	}
	s := &Store{prefix: cmp.Or(cfg.Prefix, DefaultPrefix), now: cfg.Now,
		grace: max(0, cmp.Or(cfg.Grace, grace)).Milliseconds()}
	s.server.client, s.server.onCall = c, cfg.OnCall
	s.server.deadlines.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	s.clocks.start(time.Now)
	return s
}
