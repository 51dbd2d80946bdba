package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// flawed returns a Factory of references with the given flaws, and laws that sweep them.
func flawed(f flaws) (Factory, Laws) {
	var last *rolling
	return func(_ testing.TB, clock Clock) weir.Strategy {
		last = newRolling(clock, f)
		return last
	}, Laws{Sweep: func() { last.sweep() }}
}

func windows(late time.Duration) Factory {
	return func(_ testing.TB, clock Clock) weir.Strategy {
		return &window{now: clock.Now, late: late, used: make(map[string]uint64)}
	}
}

func buckets(f bucketFlaws) Factory {
	return func(_ testing.TB, clock Clock) weir.Strategy {
		return &bucket{bucketFlaws: f, now: clock.Now, debt: make(map[string]debt)}
	}
}

// answer is a strategy that is a function.
type answer func(r *weir.Request) (*weir.Result, error)

func (a answer) Run(_ context.Context, r *weir.Request) (*weir.Result, error) { return a(r) }

func always(a answer) Factory { return func(testing.TB, Clock) weir.Strategy { return a } }

func twice(limit uint64) uint64 { return 2 * limit }

var (
	windowLaws = Laws{Span: twice, Aligned: true}
	bucketLaws = Laws{Span: func(limit uint64) uint64 { return 2*limit - 1 }, Proportional: true}
)

func TestReferencesKeepTheLaws(t *testing.T) {
	histories := slow.N(15, 60, 1000)
	keeps := func(t *testing.T, make Factory, laws Laws) {
		laws.Histories = histories
		Test(t, newTestClock, make, laws)
	}
	t.Run("rolling window", func(t *testing.T) {
		make, laws := flawed(flaws{})
		keeps(t, make, laws)
	})
	t.Run("fixed window", func(t *testing.T) { keeps(t, windows(0), windowLaws) })
	t.Run("token bucket", func(t *testing.T) { keeps(t, buckets(bucketFlaws{}), bucketLaws) })
	t.Run("a duration of its own", func(t *testing.T) {
		make, laws := flawed(flaws{})
		laws.FixedDuration, laws.Durations = true, []time.Duration{time.Minute}
		keeps(t, func(t testing.TB, clock Clock) weir.Strategy {
			return weir.Strategy(&customRun{make(t, clock).(*rolling),
				func(s *rolling, r *weir.Request) (*weir.Result, error) {
					own := *r
					own.Duration = time.Minute
					return s.Run(context.Background(), &own)
				}})
		}, laws)
	})
	t.Run("a limit of its own", func(t *testing.T) {
		make, laws := flawed(flaws{})
		laws.Fixed, laws.Limits, laws.Durations = true, []uint64{1000}, []time.Duration{time.Minute}
		keeps(t, func(t testing.TB, clock Clock) weir.Strategy {
			return weir.Strategy(&customRun{make(t, clock).(*rolling),
				func(s *rolling, r *weir.Request) (*weir.Result, error) {
					own := *r
					own.Limit, own.Duration = 1000, time.Minute
					return s.Run(context.Background(), &own)
				}})
		}, laws)
	})
}

func TestDeclaredGranuleIsKept(t *testing.T) {
	coarse := func(_ testing.TB, clock Clock) weir.Strategy {
		s := newRolling(clock, flaws{})
		s.now = func() time.Time { return clock.Now().Truncate(time.Millisecond) }
		return s
	}
	Test(t, newTestClock, coarse, Laws{Granule: time.Millisecond})
	caught(t, "Span", coarse, Laws{}) // without the declaration the law fails
}

func TestInvalidLawsAreRefused(t *testing.T) {
	for _, c := range []struct {
		laws Laws
		want string
	}{
		{Laws{}, ""},
		{Laws{Skip: map[string]string{"Span": "why"}}, ""},
		{Laws{Waits: true, Skip: map[string]string{"Pace": "why"}}, ""},
		{Laws{Limits: []uint64{1, 0}}, "Laws.Limits"},
		{Laws{Burst: func(limit uint64) uint64 { return limit / 2 }}, "Laws.Limits"},
		{Laws{Durations: []time.Duration{time.Microsecond}}, "Laws.Durations"},
		{Laws{Granule: time.Second}, "Laws.Durations"},
		{Laws{Skip: map[string]string{"Spam": "why"}}, "there is no law Spam"},
		{Laws{Skip: map[string]string{"Pace": "why"}}, "there is no law Pace"},
	} {
		if why := c.laws.withDefaults().invalid(); c.want == "" {
			assert.Empty(t, why)
		} else {
			assert.Contains(t, why, c.want)
		}
	}
}

// customRun is a rolling window with another Run.
type customRun struct {
	*rolling
	run func(*rolling, *weir.Request) (*weir.Result, error)
}

func (b *customRun) About() *weir.About { return b.rolling.About().By(b) }

func (b *customRun) Run(_ context.Context, r *weir.Request) (*weir.Result, error) {
	return b.run(b.rolling, r)
}

// wrapper is a Counter around another one, which forgets to make its About its own.
type wrapper struct{ of weir.Counter }

func (w *wrapper) About() *weir.About { return w.of.About() }

func (w *wrapper) Do(ctx context.Context, ops []*weir.Op) { w.of.Do(ctx, ops) }

func (w *wrapper) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, w.of, r)
}

func TestAForeignAboutIsFound(t *testing.T) {
	make, laws := flawed(flaws{})
	caught(t, "About", func(t testing.TB, clock Clock) weir.Strategy {
		return &wrapper{make(t, clock).(weir.Counter)}
	}, laws)
}

// verdict returns how the strategy breaks the law, or "" if it does not.
func verdict(t *testing.T, name string, make Factory, laws Laws) (how string) {
	t.Helper()
	laws.Histories = 100 // also with -short
	laws = laws.withDefaults()
	at := slices.IndexFunc(lawsOf(laws), func(l law) bool { return l.name == name })
	require.NotEqual(t, -1, at, "there must be a law %s", name)
	inBubble(t, laws.Waits, func(t *testing.T) {
		s := newSuite(t, name, newTestClock, make, laws)
		require.Empty(t, s.skips(lawsOf(laws)[at]))
		if err := s.holds(lawsOf(laws)[at]); err != nil {
			how = err.Error()
		}
	})
	return how
}

// caught requires the strategy to break the law, and logs how.
func caught(t *testing.T, name string, make Factory, laws Laws) {
	t.Helper()
	how := verdict(t, name, make, laws)
	assert.NotEmpty(t, how, "the law %s must be broken", name)
	t.Logf("%s: %s", name, how)
}

// No law may run for ever on a strategy that does nothing right.
func TestLawsEndOnStrategiesThatAlwaysFail(t *testing.T) {
	nothing := func(_ testing.TB, clock Clock) weir.Strategy {
		return &customRun{newRolling(clock, flaws{}),
			func(*rolling, *weir.Request) (*weir.Result, error) { return nil, nil }}
	}
	for what, make := range map[string]Factory{
		"admits everything": always(func(r *weir.Request) (*weir.Result, error) {
			return &weir.Result{State: weir.Allow, TotalRequests: max(r.Cost, 1),
				ExpiresAt: time.Now().Add(r.Duration)}, nil
		}),
		"denies everything": always(func(r *weir.Request) (*weir.Result, error) {
			return &weir.Result{TotalRequests: r.Limit, ExpiresAt: time.Now().Add(r.Duration)}, nil
		}),
		"decides nothing": always(func(*weir.Request) (*weir.Result, error) {
			return nil, errors.New("the store is down")
		}),
		"answers nothing": nothing,
	} {
		t.Run(what, func(t *testing.T) {
			laws := Laws{Histories: 10}.withDefaults()
			for _, l := range decidingLaws {
				if s := newSuite(t, l.name, newTestClock, make, laws); s.skips(l) == "" {
					err := s.holds(l)
					if l.name == "Exact" || l.name == "Cost" {
						assert.Error(t, err, l.name)
					}
				}
			}
		})
	}
}

func TestBrokenStrategiesAreCaughtByTheRightLaw(t *testing.T) {
	withRun := func(run func(*rolling, *weir.Request) (*weir.Result, error)) Factory {
		return func(_ testing.TB, clock Clock) weir.Strategy {
			return &customRun{newRolling(clock, flaws{}), run}
		}
	}
	ctx := context.Background()
	for _, broken := range []struct {
		what string
		law  string
		flaws
		make Factory // instead of flaws
		laws Laws    // with make
	}{
		{what: "admits one over the limit", law: "Exact", flaws: flaws{spare: 1}},
		{what: "reads the count and increments it later", law: "Exact",
			flaws: flaws{readsThenWrites: true}},
		{what: "reads the count and increments it at once", law: "Exact",
			flaws: flaws{writesAtOnce: true}},
		{what: "a denial is charged", law: "DenialTakesNothing", flaws: flaws{countsDenials: true}},
		{what: "a denial extends the wait", law: "Hammering", flaws: flaws{extendsWait: true}},
		{what: "ExpiresAt of a denial is always one Duration later", law: "RetryInstant",
			flaws: flaws{wholeDuration: true}},
		{what: "the window's edge is a millisecond late", law: "RetryInstant",
			flaws: flaws{late: time.Millisecond}},
		{what: "the window's edge is a millisecond early", law: "Span",
			flaws: flaws{late: -time.Millisecond}},
		{what: "the windows are not aligned to the epoch", law: "Aligned",
			make: windows(time.Millisecond),
			laws: windowLaws},
		{what: "the windows are aligned to the year 1", law: "Aligned",
			make: func(_ testing.TB, clock Clock) weir.Strategy {
				return &window{now: clock.Now, fromYear1: true, used: make(map[string]uint64)}
			},
			laws: windowLaws},
		{what: "a fixed window claims to be a rolling one", law: "Span", make: windows(0)},
		{what: "cost is ignored", law: "Cost",
			make: withRun(func(s *rolling, r *weir.Request) (*weir.Result, error) {
				one := *r
				one.Cost = 1
				return s.Run(ctx, &one)
			})},
		{what: "a cost over the limit has an ExpiresAt", law: "CostOverLimit",
			flaws: flaws{retriesImpossible: true}},
		{what: "adding cost wraps around", law: "CostOverLimit", flaws: flaws{overflows: true}},
		{what: "the first hit passes at limit 0", law: "LimitZero", flaws: flaws{admitsFirst: true}},
		{what: "the total excludes the request", law: "TotalRequests", flaws: flaws{excludesSelf: true}},
		{what: "the sweeper deletes live state", law: "Sweep",
			flaws: flaws{sweeps: func(age, d time.Duration) bool { return age > d*2/3 }}},
		{what: "the sweeper is a nanosecond early", law: "Sweep",
			flaws: flaws{sweeps: func(age, d time.Duration) bool { return age >= d-1 }}},
		{what: "a clock that steps back adds tokens", law: "ClockBack",
			make: buckets(bucketFlaws{goesBack: true}),
			laws: bucketLaws},
		{what: "the retry instant is a nanosecond too early", law: "RetryInstant",
			flaws: flaws{early: 1}},
		{what: "the retry instant is a nanosecond too late", law: "RetryInstant",
			flaws: flaws{early: -1}},
		{what: "the period ends a nanosecond later than it says", law: "FreshAgain",
			flaws: flaws{tooLong: -1}},
		{what: "the period ends a nanosecond earlier than it says", law: "FreshAgain",
			flaws: flaws{tooLong: 1}},
		{what: "key and duration are joined without a separator", law: "Keys",
			flaws: flaws{slot: func(r weir.Request) slot {
				return slot{key: strings.TrimSuffix(r.Key+r.Duration.String(), "s")}
			}}},
		{what: "keys are compared without case", law: "Keys",
			flaws: flaws{slot: func(r weir.Request) slot {
				return slot{strings.ToLower(r.Key), r.Duration}
			}}},
		{what: "duration is ignored", law: "Durations",
			flaws: flaws{slot: func(r weir.Request) slot { return slot{r.Key, 0} }}},
		{what: "duration is cut to seconds", law: "Durations",
			flaws: flaws{slot: func(r weir.Request) slot {
				return slot{r.Key, r.Duration.Truncate(time.Second)}
			}}},
		{what: "a changed limit clears the count", law: "LimitChange",
			flaws: flaws{clearsOnChange: true}},
		{what: "a changed limit keeps tokens, not their share", law: "LimitChange",
			make: buckets(bucketFlaws{keepsTokens: true}), laws: bucketLaws},
		{what: "the request's pointer is kept", law: "Request", flaws: flaws{keepsRequest: true}},
		{what: "the request is changed", law: "Request",
			make: withRun(func(s *rolling, r *weir.Request) (*weir.Result, error) {
				r.Meta = "seen"
				return s.Run(ctx, r)
			})},
		{what: "the result is shared", law: "Request",
			make: func(_ testing.TB, clock Clock) weir.Strategy {
				shared := new(weir.Result)
				return &customRun{newRolling(clock, flaws{}),
					func(s *rolling, r *weir.Request) (*weir.Result, error) {
						res, err := s.Run(ctx, r)
						if err == nil {
							*shared = *res
						}
						return shared, err
					}}
			}, laws: Laws{Inexact: true}}, // otherwise the race detector reports it first
		{what: "input is not checked", law: "BadInput", flaws: flaws{skipsValidation: true}},
		{what: "an error comes with a result", law: "BadInput",
			make: withRun(func(s *rolling, r *weir.Request) (*weir.Result, error) {
				res, err := s.Run(ctx, r)
				if err != nil {
					res = &weir.Result{}
				}
				return res, err
			})},
		{what: "bad input is a denial", law: "BadInput",
			make: withRun(func(s *rolling, r *weir.Request) (*weir.Result, error) {
				res, err := s.Run(ctx, r)
				if errors.Is(err, weir.ErrScale) {
					return &weir.Result{}, nil
				}
				return res, err
			})},
		{what: "counts although the context is done, and fails", law: "Context",
			make: func(_ testing.TB, clock Clock) weir.Strategy {
				return &ignoresContext{newRolling(clock, flaws{})}
			}},
		{what: "peeking counts", law: "Peek", flaws: flaws{peekCounts: true}},
		{what: "refunds into the next period", law: "Refund", flaws: flaws{anyPeriod: true}},
		{what: "refunds hits that no longer count", law: "Refund",
			make: buckets(bucketFlaws{refundsExpired: true}),
			laws: bucketLaws},
		{what: "gives no Receipt", law: "Receipt", flaws: flaws{ignoresKeep: true}},
		{what: "gives back twice by a Receipt", law: "Receipt", flaws: flaws{returnsTwice: true}},
		{what: "gives back more than a Receipt has", law: "Receipt", flaws: flaws{returnsMore: true}},
		{what: "refunds below zero", law: "Refund", flaws: flaws{refundsBelowZero: true}},
		{what: "resets every key", law: "Reset", flaws: flaws{resetsAll: true}},
		{what: "seeding lowers the count", law: "Seed", flaws: flaws{seedLowers: true}},
		{what: "seeds an expired count", law: "Seed", flaws: flaws{seedsLate: true}},
		{what: "reads the count and refunds later", law: "Refund", flaws: flaws{racyChanges: true}},
		{what: "reads the count and charges later", law: "Charge", flaws: flaws{racyChanges: true}},
		{what: "charges only up to the limit", law: "Charge", flaws: flaws{chargesToCap: true}},
		{what: "a late release gives back what another holds", law: "Hold",
			flaws: flaws{releasesOthers: true}},
		{what: "a renewal has no effect", law: "Hold", flaws: flaws{renewsNothing: true}},
		{what: "a place that was given away is taken again", law: "Hold", flaws: flaws{renewsOver: true}},
		{what: "holds one over the limit", law: "Hold", flaws: flaws{spare: 1}},
	} {
		t.Run(broken.what, func(t *testing.T) {
			make, laws := broken.make, broken.laws
			if make == nil {
				make, laws = flawed(broken.flaws)
			}
			caught(t, broken.law, make, laws)
		})
	}
}

// hasty are counts of which none expires, each read under a lock and written under another.
type hasty struct {
	now    func() time.Time
	mu     sync.Mutex
	counts map[string]uint64 // guarded by mu
}

func (s *hasty) Run(_ context.Context, r *weir.Request) (*weir.Result, error) {
	expires := s.now().Add(r.Duration)
	s.mu.Lock()
	n := s.counts[r.Key]
	s.mu.Unlock()
	if n+max(r.Cost, 1) > r.Limit {
		return &weir.Result{TotalRequests: n, ExpiresAt: expires}, nil
	}
	s.mu.Lock()
	s.counts[r.Key] = n + max(r.Cost, 1)
	s.mu.Unlock()
	return &weir.Result{State: weir.Allow, TotalRequests: n + max(r.Cost, 1), ExpiresAt: expires}, nil
}

// A race is found without the race detector and without a pause of the strategy's own, if that
// reads the clock after the count or under a lock; if before, as far as two processors are free.
func TestRacesWithoutAPauseAreFound(t *testing.T) {
	rounds := slow.N(3, 20, 200)
	found := func(of Factory) (n int) {
		for range rounds {
			if verdict(t, "Exact", of, Laws{}) != "" {
				n++
			}
		}
		return n
	}
	assert.Equal(t, rounds, found(func(_ testing.TB, clock Clock) weir.Strategy {
		return newRolling(clock, flaws{writesAtOnce: true})
	}))
	before := found(func(_ testing.TB, clock Clock) weir.Strategy {
		return &hasty{now: clock.Now, counts: map[string]uint64{}}
	})
	t.Logf("%d of %d of a strategy that reads the clock before the count", before, rounds)
}

// brokenLaws returns the laws that a strategy breaks, as Test reports them, with their messages.
func brokenLaws(t *testing.T, make Factory, laws Laws) (names []string, how map[string]string) {
	how = map[string]string{}
	laws = laws.withDefaults()
	for _, l := range lawsOf(laws) {
		s := newSuite(t, l.name, newTestClock, make, laws)
		if s.skips(l) != "" {
			continue
		}
		if err := s.holds(l); err != nil {
			names, how[l.name] = append(names, l.name), err.Error()
			if l.first {
				return names, how
			}
		}
	}
	return names, how
}

// Mistakes that every other law would stumble over are reported once, and plainly.
func TestCommonMistakesAreReportedOnce(t *testing.T) {
	ctx := context.Background()
	withRun := func(run func(*rolling, *weir.Request) (*weir.Result, error)) Factory {
		return func(_ testing.TB, clock Clock) weir.Strategy {
			return &customRun{newRolling(clock, flaws{}), run}
		}
	}
	changing := func(change func(r *weir.Request)) Factory {
		return withRun(func(s *rolling, r *weir.Request) (*weir.Result, error) {
			change(r)
			return s.Run(ctx, r)
		})
	}
	for what, row := range map[string]struct {
		make    Factory
		law     string
		message string
	}{
		"the clock is ignored": {func(testing.TB, Clock) weir.Strategy {
			s := newRolling(&testClock{onRead: func() {}}, flaws{})
			s.now = time.Now
			return s
		}, "Clock", "the strategy does not read the clock that newStrategy is given: ExpiresAt is 20"},
		"Cost 0 becomes 1": {changing(func(r *weir.Request) { r.Cost = max(r.Cost, 1) }), "Run",
			"Run changed its Request: Cost was 0 and is 1"},
		"the Key gets a prefix": {changing(func(r *weir.Request) {
			r.Key = "p:" + strings.TrimPrefix(r.Key, "p:")
		}), "Run", "Run changed its Request: Key was caller and is p:caller"},
		"the Limit is lowered": {changing(func(r *weir.Request) { r.Limit = min(r.Limit, 50) }), "Run",
			"Run changed its Request: Limit was 100 and is 50"},
		"the Duration is rounded": {changing(func(r *weir.Request) {
			r.Duration = max(time.Second, r.Duration.Round(time.Second))
		}), "Run", "Run changed its Request: Duration was 10ms and is 1s"},
		"Meta is dropped": {changing(func(r *weir.Request) { r.Meta = "" }), "Run",
			"Run changed its Request: Meta was meta and is"},
		"no Result": {withRun(func(*rolling, *weir.Request) (*weir.Result, error) { return nil, nil }), "Run",
			"Run returned neither a Result nor an error"},
		"a Result with an error": {withRun(func(s *rolling, r *weir.Request) (*weir.Result, error) {
			return &weir.Result{}, errors.New("down")
		}), "Run", "Run returned an error with a Result"},
		"a State of its own": {withRun(func(s *rolling, r *weir.Request) (*weir.Result, error) {
			return &weir.Result{State: 200}, nil
		}), "Run", "Run returned State 200"},
		"an error": {withRun(func(s *rolling, r *weir.Request) (*weir.Result, error) {
			return nil, errors.New("down")
		}), "Run", "Run failed on a valid request: down"},
		"the Request is kept": {func(_ testing.TB, clock Clock) weir.Strategy {
			return newRolling(clock, flaws{keepsRequest: true})
		}, "Request", "one was admitted before, and the caller has since changed its Request"},
		"keys share a count": {func(_ testing.TB, clock Clock) weir.Strategy {
			return newRolling(clock, flaws{slot: func(r weir.Request) slot { return slot{"", r.Duration} }})
		}, "Keys", "the Result with requests for other keys"},
		"Durations share a count": {func(_ testing.TB, clock Clock) weir.Strategy {
			return newRolling(clock, flaws{slot: func(r weir.Request) slot { return slot{r.Key, 0} }})
		}, "Durations", "the Result with requests in other Durations"},
	} {
		names, how := brokenLaws(t, row.make, Laws{Histories: 20})
		t.Logf("%s: %v", what, names)
		if assert.Contains(t, how, row.law, what) {
			assert.Contains(t, how[row.law], row.message, what)
		}
		if row.law == "Run" || row.law == "Clock" {
			assert.Equal(t, []string{row.law}, names, what)
		}
	}
}

// ignoresContext counts first and checks the context afterwards.
type ignoresContext struct{ *rolling }

func (d *ignoresContext) About() *weir.About { return d.rolling.About().By(d) }

func (d *ignoresContext) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, err := d.rolling.Run(ctx, r)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return res, err
}
