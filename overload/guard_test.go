package overload_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/overload"
	"github.com/weirgo/weir/weirtest"
)

var ctx = context.Background()

func limiterOf(t testing.TB, cfg weir.Config) *weir.Limiter {
	l, err := weir.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func guardOf(t testing.TB, cfg overload.Config) *overload.Guard {
	g, err := overload.New(limiterOf(t, weir.Config{}), cfg)
	require.NoError(t, err)
	return g
}

// fill enters until the guard refuses, and returns what was admitted and the refusal.
func fill(t testing.TB, g *overload.Guard, caller string, c overload.Class) (
	places []*overload.Place, full *overload.FullError,
) {
	for {
		p, err := g.Enter(ctx, caller, c)
		if err != nil {
			require.ErrorAs(t, err, &full)
			return places, full
		}
		places = append(places, p)
	}
}

func TestNewFailsForBadInput(t *testing.T) {
	l := limiterOf(t, weir.Config{})
	for text, cfg := range map[string]overload.Config{
		"the Goal -1s is negative":                {Goal: -time.Second},
		"the Most -1 is negative":                 {Most: -1},
		"bad Parts [0 0.5 1], want 0 < sheddable": {Parts: [3]float64{0, .5, 1}},
		"bad Parts [0.9 0.7 1]":                   {Parts: [3]float64{.9, .7, 1}},
		"bad Parts [0.5 1 0.9]":                   {Parts: [3]float64{.5, 1, .9}},
		"bad Parts [0.5 0.9 1.1]":                 {Parts: [3]float64{.5, .9, 1.1}},
		"bad Parts [NaN 0.9 1]":                   {Parts: [3]float64{math.NaN(), .9, 1}},
		"the Share -0.1 is out of bounds":         {Share: -.1},
		"the Share 1.1 is out of bounds":          {Share: 1.1},
		"the Share NaN is out of bounds":          {Share: math.NaN()},
	} {
		_, err := overload.New(l, cfg)
		assert.ErrorContains(t, err, "overload: "+text)
	}
	_, err := overload.New(nil, overload.Config{})
	assert.EqualError(t, err, "overload: the Limiter is nil, want one of weir.New")
	_, err = overload.New(l, overload.Config{Goal: 1, Most: 1, Parts: [3]float64{1, 1, 1}, Share: 1})
	assert.NoError(t, err)
}

func TestBadInputOfEnterCountsAsNothing(t *testing.T) {
	l := limiterOf(t, weir.Config{})
	g, err := overload.New(l, overload.Config{})
	require.NoError(t, err)
	before := g.Stats()
	for _, c := range []overload.Class{-128, -2, 2, 127} {
		_, err = g.Enter(ctx, "ann", c)
		assert.EqualError(t, err, "overload: the Class "+strconv.Itoa(int(c))+" is unknown, want -1, 0 or 1")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = g.Enter(ended, "ann", overload.Normal)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = g.Enter(ctx, strings.Repeat("x", 1025), overload.Normal)
	assert.ErrorIs(t, err, weir.ErrID)
	require.NoError(t, l.Close())
	for _, caller := range []string{"ann", ""} {
		_, err = g.Enter(ctx, caller, overload.Normal)
		assert.ErrorIs(t, err, weir.ErrClosed)
	}
	assert.Equal(t, before, g.Stats())
}

func TestClassesFillTheirParts(t *testing.T) {
	for _, tt := range []struct {
		cfg                         overload.Config
		sheddable, normal, critical int
	}{
		{overload.Config{Most: 10}, 7, 9, 10},
		{overload.Config{Most: 1}, 1, 1, 1},
		{overload.Config{Most: 100, Parts: [3]float64{.29, .58, .9}}, 29, 58, 90},
	} {
		g := guardOf(t, tt.cfg)
		sheddable, full := fill(t, g, "", overload.Sheddable)
		assert.Len(t, sheddable, tt.sheddable)
		assert.Equal(t, overload.FullError{Class: overload.Sheddable, InFlight: tt.sheddable,
			Most: tt.sheddable, RetryAfter: time.Second}, *full)
		normal, _ := fill(t, g, "", overload.Normal)
		assert.Len(t, normal, tt.normal-tt.sheddable)
		critical, _ := fill(t, g, "", overload.Critical)
		assert.Len(t, critical, tt.critical-tt.normal)
		assert.Equal(t, tt.critical, g.Stats().InFlight)
		for c := overload.Sheddable; c <= overload.Critical; c++ {
			assert.Equal(t, map[overload.Reason]uint64{overload.ClassFull: 1, overload.ShareUsed: 0},
				g.Stats().Refused[c], c)
		}
	}
}

func TestACallerHoldsItsShareOfWhatIsFree(t *testing.T) {
	g := guardOf(t, overload.Config{Most: 100, Parts: [3]float64{1, 1, 1}, Share: .5})
	ann, full := fill(t, g, "ann", overload.Normal)
	assert.Len(t, ann, 50, "shares count from half of the limit on")
	assert.Equal(t, overload.FullError{Reason: overload.ShareUsed, InFlight: 50, Most: 25,
		RetryAfter: time.Second}, *full)
	assert.EqualError(t, full, "overload: the caller holds 50 of at most 25")
	bob, full := fill(t, g, "bob", overload.Normal)
	assert.Len(t, bob, 17, "half of the 33 that are free")
	assert.Equal(t, 17, full.Most)
	nobody, full := fill(t, g, "", overload.Normal)
	assert.Len(t, nobody, 33, "an empty caller has no share")
	assert.EqualError(t, full, "overload: full: 100 of 100 for normal")
	nobody[0].Leave()
	eve, err := g.Enter(ctx, "eve", overload.Normal)
	require.NoError(t, err, "a caller who holds nothing may hold one")
	_ = eve
	assert.Equal(t, map[overload.Reason]uint64{overload.ClassFull: 1, overload.ShareUsed: 2},
		g.Stats().Refused[overload.Normal])
}

func TestCriticalRequestsShareAsIfHalfWereFree(t *testing.T) {
	g := guardOf(t, overload.Config{Most: 100})
	fill(t, g, "", overload.Normal)
	ann, full := fill(t, g, "ann", overload.Critical)
	assert.Len(t, ann, 10)
	assert.Equal(t, overload.ClassFull, full.Reason)

	g = guardOf(t, overload.Config{Most: 200})
	fill(t, g, "", overload.Sheddable)
	ann, full = fill(t, g, "ann", overload.Critical)
	assert.Len(t, ann, 13, "two of 16ths of 100")
	assert.Equal(t, overload.ShareUsed, full.Reason)
}

func TestLeaveAndDropCountOnce(t *testing.T) {
	l := limiterOf(t, weir.Config{})
	g, err := overload.New(l, overload.Config{Most: 4})
	require.NoError(t, err)
	places, _ := fill(t, g, "ann", overload.Critical)
	other, err := g.Enter(ctx, "bob", overload.Critical)
	require.NoError(t, err)
	for _, p := range places {
		p.Leave()
		p.Leave()
		p.Drop()
	}
	assert.Equal(t, 1, g.Stats().InFlight)
	assert.EqualValues(t, 1, l.Stats().Held)
	require.NoError(t, l.Close())
	before := g.Stats()
	other.Drop()
	other.Leave()
	assert.Zero(t, g.Stats().InFlight, "work that ends after Close has ended")
	assert.Zero(t, l.Stats().Held)
	before.InFlight = 0
	assert.Equal(t, before, g.Stats())
}

func TestAtAFullTableACallerIsAdmittedByItsClassAlone(t *testing.T) {
	l := limiterOf(t, weir.Config{MaxBuckets: 1})
	g, err := overload.New(l, overload.Config{Most: 10, Parts: [3]float64{1, 1, 1}})
	require.NoError(t, err)
	_, err = g.Enter(ctx, "ann", overload.Normal)
	require.NoError(t, err)
	bob, full := fill(t, g, "bob", overload.Normal)
	assert.Len(t, bob, 9, "bob has no place in the table")
	assert.Equal(t, overload.ClassFull, full.Reason)
	assert.EqualValues(t, 9, g.Stats().Unshared)
	for _, p := range bob[:5] {
		p.Leave()
	}
	_, full = fill(t, g, "ann", overload.Normal)
	assert.Equal(t, overload.ShareUsed, full.Reason, "ann has")
}

func TestGuardsOfALimiterCountCallersApart(t *testing.T) {
	l := limiterOf(t, weir.Config{})
	held, err := weir.Hold(ctx, l.InFlight(),
		&weir.Request{Key: "ann", Limit: 1, Duration: time.Millisecond})
	require.NoError(t, err)
	defer func() { _ = held.Release(ctx) }()
	for range 2 {
		g, err := overload.New(l, overload.Config{Most: 2, Parts: [3]float64{1, 1, 1}})
		require.NoError(t, err)
		places, full := fill(t, g, "ann", overload.Normal)
		assert.Len(t, places, 1)
		assert.Equal(t, 1, full.InFlight)
	}
}

// serve has requests of a service that takes so long come at a rate, each way until a time is over.
func serve(
	t *testing.T, g *overload.Guard, sleep func(time.Duration), rate int, takes, lasts time.Duration,
) {
	var inFlight []*overload.Place
	var until []time.Duration
	each := time.Second / time.Duration(rate)
	for now := time.Duration(0); now < lasts; now += each {
		for len(until) > 0 && until[0] <= now {
			inFlight[0].Leave()
			inFlight, until = inFlight[1:], until[1:]
		}
		if p, err := g.Enter(ctx, "", overload.Normal); err == nil {
			inFlight, until = append(inFlight, p), append(until, now+takes)
		} else {
			require.ErrorAs(t, err, new(*overload.FullError))
		}
		sleep(each)
	}
	for _, p := range inFlight {
		p.Drop()
	}
}

func TestTheLimitIsExactOnAnyClock(t *testing.T) {
	run := func(l *weir.Limiter, cfg overload.Config, sleep func(time.Duration)) (all []overload.Stats) {
		g, err := overload.New(l, cfg)
		require.NoError(t, err)
		for _, takes := range []time.Duration{20, 500, 20} {
			serve(t, g, sleep, 1000, takes*time.Millisecond, 10*time.Second)
			all = append(all, g.Stats())
		}
		return all
	}
	clock := weirtest.NewClock(time.Unix(1e9, 0))
	want := run(limiterOf(t, weir.Config{Now: clock.Now}), overload.Config{}, clock.Advance)
	own := weirtest.NewClock(time.Unix(2e9, 0))
	assert.Equal(t, want, run(limiterOf(t, weir.Config{}), overload.Config{Now: own.Now}, own.Advance))
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.Config{})
		require.NoError(t, err)
		assert.Equal(t, want, run(l, overload.Config{}, time.Sleep))
		require.NoError(t, l.Close())
	})
	assert.Equal(t, "room", want[0].State)
	assert.Equal(t, 20*time.Millisecond, want[0].Latency.Round(time.Microsecond))
	assert.Equal(t, 40*time.Millisecond, want[0].Goal.Round(time.Microsecond))
	assert.InDelta(t, 1000, want[0].Throughput, 10)
	assert.Greater(t, want[1].Limit, 500, "fewer in flight did not make the requests quicker")
	assert.InDelta(t, .75, want[1].Goal.Seconds(), .1, "1.5 times 500 ms, less with time")
}

func TestARequestThatIsDroppedIsNotMeasured(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1e9, 0))
	g := guardOf(t, overload.Config{Now: clock.Now})
	stream, err := g.Enter(ctx, "", overload.Normal)
	require.NoError(t, err)
	serve(t, g, clock.Advance, 100, 20*time.Millisecond, 10*time.Second)
	before := g.Stats()
	stream.Drop()
	serve(t, g, clock.Advance, 100, 20*time.Millisecond, 10*time.Second)
	assert.Equal(t, before.Latency, g.Stats().Latency)
}

// fullFromTheStart has as many requests in flight as the guard admits, and returns what it knows
// after 2,000. Request n ends so long after the one before it.
func fullFromTheStart(t *testing.T, each func(n, inFlight int) time.Duration) overload.Stats {
	clock := weirtest.NewClock(time.Unix(1e9, 0))
	g := guardOf(t, overload.Config{Now: clock.Now})
	var inFlight []*overload.Place
	for n := range 2000 {
		more, _ := fill(t, g, "", overload.Critical)
		inFlight = append(inFlight, more...)
		clock.Advance(each(n, len(inFlight)))
		inFlight[0].Leave()
		inFlight = inFlight[1:]
	}
	return g.Stats()
}

// A server takes 10 ms a request, so that some 25 take the goal. A part of .9 leaves three places,
// which is too few for those that arrive together.
func TestPlacesAreKeptAsFarAsRequestsAreRefused(t *testing.T) {
	const takes = 10 * time.Millisecond
	clock := weirtest.NewClock(time.Unix(1e9, 0))
	g := guardOf(t, overload.Config{Now: clock.Now, Goal: 250 * time.Millisecond})
	most := func(c overload.Class) int {
		l, err := g.Look("", c)
		require.NoError(t, err)
		return l.Most
	}
	calm := func() {
		serve(t, g, clock.Advance, 50, takes, 20*time.Second)
		assert.Equal(t, most(overload.Critical)*9/10, most(overload.Normal), "nobody is refused")
	}
	calm()
	var inFlight []*overload.Place
	for range 2000 {
		more, _ := fill(t, g, "", overload.Normal) // of which the last is refused
		inFlight = append(inFlight, more...)
		clock.Advance(takes)
		inFlight[0].Leave()
		inFlight = inFlight[1:]
	}
	assert.InDelta(t, 25, most(overload.Normal), 5)
	assert.Equal(t, most(overload.Critical)-8, most(overload.Normal))
	for _, p := range inFlight {
		p.Drop()
	}
	calm()
}

// A service that is full from its start seems to be as slow in calm. If the guard believed that,
// one that gets slower the more it does at a time would stay slow.
func TestCalmIsLearntAgainIfTheServiceIsFullFromItsStart(t *testing.T) {
	const mean = 2500 * time.Microsecond
	s := fullFromTheStart(t, func(_, inFlight int) time.Duration {
		return mean + mean*time.Duration(inFlight)/20
	})
	assert.Less(t, s.Goal, 40*time.Millisecond)
	assert.Greater(t, s.Throughput, 250.)

	// With a few in flight, 80 workers that get slower serve less.
	s = fullFromTheStart(t, func(n, inFlight int) time.Duration {
		takes := 100 * time.Millisecond
		if n > 200 {
			takes = 300 * time.Millisecond
		}
		return takes / time.Duration(min(inFlight, 80))
	})
	assert.Greater(t, s.Throughput, 240.)
	assert.Greater(t, s.Limit, 70)
}

// A server takes 2 ms a request, and then 20 ms, of 300 a second. Its clients leave after a second,
// and it serves those who left, too. Nobody is served in time before the limit falls, so that all
// that is known is that they left. If that said nothing, the limit would stay.
func TestTheLimitFallsThoughAllClientsLeave(t *testing.T) {
	const rate = 300
	type request struct {
		*overload.Place
		at time.Time
	}
	served := func(leaves time.Duration, end func(*overload.Place)) (good int) {
		clock := weirtest.NewClock(time.Unix(1e9, 0))
		g := guardOf(t, overload.Config{Now: clock.Now, Goal: leaves / 2})
		var queue []request
		gone, free := 0, clock.Now()
		for n := range 60 * rate {
			clock.Advance(time.Second / rate)
			now := clock.Now()
			takes := 2 * time.Millisecond
			if n > 10*rate {
				takes = 20 * time.Millisecond
			}
			for ; gone < len(queue) && now.Sub(queue[gone].at) >= leaves; gone++ {
				end(queue[gone].Place)
			}
			for len(queue) > 0 && now.Sub(free) >= takes {
				free = free.Add(takes)
				if gone == 0 {
					queue[0].Leave()
					if n > 30*rate {
						good++
					}
				}
				queue, gone = queue[1:], max(0, gone-1)
			}
			p, err := g.Enter(ctx, "", overload.Normal)
			if err == nil {
				if len(queue) == 0 {
					free = now
				}
				queue = append(queue, request{p, now})
			}
		}
		return good
	}
	const possible = 30 * 50
	for _, leaves := range []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, time.Second} {
		assert.Greater(t, served(leaves, (*overload.Place).Abandon), possible*3/4, leaves)
		assert.Less(t, served(leaves, (*overload.Place).Drop), possible/4, "the negative control: %v", leaves)
	}
}

func TestAbandonMeasuresWhatTookLongerThanTheGoal(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1e9, 0))
	g := guardOf(t, overload.Config{Now: clock.Now})
	for _, row := range []struct {
		took time.Duration
		want bool
	}{{time.Millisecond, false}, {39 * time.Millisecond, false}, {time.Second, true}} {
		serve(t, g, clock.Advance, 100, 20*time.Millisecond, 10*time.Second)
		before := g.Stats().Latency
		for range 40 {
			p, err := g.Enter(ctx, "ann", overload.Normal)
			require.NoError(t, err)
			clock.Advance(row.took)
			p.Abandon()
			p.Abandon()
			p.Leave()
		}
		assert.Equal(t, row.want, g.Stats().Latency > before+time.Millisecond, row)
		assert.Zero(t, g.Stats().InFlight)
	}
}

func TestAClockThatStandsStillOrGoesBackDoesNoHarm(t *testing.T) {
	now := time.Unix(1e9, 0)
	g := guardOf(t, overload.Config{Now: func() time.Time { return now }})
	for n := range 10_000 {
		p, err := g.Enter(ctx, "ann", overload.Normal)
		require.NoError(t, err)
		if n%100 == 0 {
			now = now.Add(time.Duration(n%700-300) * time.Millisecond)
		}
		p.Leave()
	}
	s := g.Stats()
	assert.True(t, s.Limit >= 2 && s.Limit <= 1<<20, "%+v", s)
	assert.False(t, math.IsNaN(s.Throughput))
	assert.GreaterOrEqual(t, s.Latency, time.Duration(0))
}

func TestRetryAfterGrowsWithRefusals(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1e9, 0))
	longest := func(rate int) (longest time.Duration) {
		g := guardOf(t, overload.Config{Now: clock.Now, Most: 10})
		serve(t, g, clock.Advance, rate, 100*time.Millisecond, 3*time.Second)
		fill(t, g, "", overload.Normal)
		for range 1000 {
			_, err := g.Enter(ctx, "", overload.Normal)
			var full *overload.FullError
			require.ErrorAs(t, err, &full)
			require.GreaterOrEqual(t, full.RetryAfter, time.Second)
			longest = max(longest, full.RetryAfter)
		}
		return longest
	}
	assert.Equal(t, time.Second, longest(50))
	assert.InDelta(t, 16, longest(180).Seconds(), 3)
	assert.InDelta(t, 29, longest(1800).Seconds(), 2)
}

// counts is the model of a Guard whose limit stands still.
type counts struct {
	all     int
	callers map[string]int
	refused map[overload.Class]map[overload.Reason]uint64
}

func (m *counts) enter(most [3]int, caller string, c overload.Class) bool {
	part := most[c+1]
	if m.all >= part {
		m.refused[c][overload.ClassFull]++
		return false
	}
	if free := part - m.all; caller != "" && m.all >= most[2]/2 {
		if c == overload.Critical {
			free = max(free, most[2]/2)
		}
		if m.callers[caller] >= max(1, (free+3)/4) {
			m.refused[c][overload.ShareUsed]++
			return false
		}
	}
	m.all++
	m.callers[caller]++
	return true
}

func TestCountsEqualTheirModel(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		clock := weirtest.NewClock(time.Unix(1e9, 0)) // stands still, and so does the limit
		g := guardOf(t, overload.Config{Most: 40, Now: clock.Now})
		m := counts{callers: map[string]int{}, refused: g.Stats().Refused}
		type held struct {
			*overload.Place
			caller string
		}
		var places []held
		for range 5000 {
			if len(places) > 0 && random.IntN(5) < 2 {
				i := random.IntN(len(places))
				p := places[i]
				if p.Leave(); random.IntN(2) == 0 {
					p.Drop()
				}
				places = append(places[:i], places[i+1:]...)
				m.all--
				m.callers[p.caller]--
				continue
			}
			caller := []string{"", "ann", "ann", "ann", "bob", "eve"}[random.IntN(6)]
			c := overload.Class(random.IntN(3) - 1)
			p, err := g.Enter(ctx, caller, c)
			require.Equal(t, m.enter([3]int{28, 36, 40}, caller, c), err == nil, "%s %s: %v", caller, c, err)
			if err == nil {
				places = append(places, held{p, caller})
			}
		}
		require.Equal(t, m.all, g.Stats().InFlight)
		require.Equal(t, m.refused, g.Stats().Refused)
	}
}

// entering is Enter, as the test of concurrency needs it.
type entering func(caller string) (leave func(), ok bool)

// overLimit has 1,000 goroutines enter and leave, and returns how far over the limit they came, and
// how many calls there were.
func overLimit(limit int64, enter entering) (over, admitted, refused int64) {
	var inFlight, most, yes, no atomic.Int64
	var group errgroup.Group
	for n := range 1000 {
		group.Go(func() error {
			for range 50 {
				leave, ok := enter(strconv.Itoa(n % 50))
				if !ok {
					no.Add(1)
					continue
				}
				now := inFlight.Add(1)
				for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
				}
				yes.Add(1)
				runtime.Gosched()
				inFlight.Add(-1)
				leave()
			}
			return nil
		})
	}
	_ = group.Wait()
	return most.Load() - limit, yes.Load(), no.Load()
}

func TestNeverMoreThanTheLimitInFlight(t *testing.T) {
	l := limiterOf(t, weir.Config{})
	g, err := overload.New(l, overload.Config{Most: 20})
	require.NoError(t, err)
	over, admitted, refused := overLimit(20, func(caller string) (func(), bool) {
		p, err := g.Enter(ctx, caller, overload.Critical)
		if err != nil {
			assert.ErrorAs(t, err, new(*overload.FullError))
			return nil, false
		}
		return func() { p.Leave(); p.Leave() }, true
	})
	assert.LessOrEqual(t, over, int64(0))
	assert.Positive(t, admitted)
	s := g.Stats()
	assert.Zero(t, s.InFlight)
	assert.Zero(t, l.Stats().Held)
	of := s.Refused[overload.Critical]
	assert.EqualValues(t, refused, of[overload.ClassFull]+of[overload.ShareUsed])
}

// TestNeverMoreThanTheLimitControl has a guard that looks before it counts.
func TestNeverMoreThanTheLimitControl(t *testing.T) {
	var inFlight atomic.Int64
	over, _, _ := overLimit(20, func(string) (func(), bool) {
		if inFlight.Load() >= 20 {
			return nil, false
		}
		runtime.Gosched() // another one looks here
		inFlight.Add(1)
		return func() { inFlight.Add(-1) }, true
	})
	assert.Positive(t, over)
}

func TestEnterAllocatesNothing(t *testing.T) {
	g := guardOf(t, overload.Config{})
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		p, err := g.Enter(ctx, "ann", overload.Normal)
		if err != nil {
			panic(err)
		}
		defer p.Leave()
	}), "as Hold: Enter is inlined, and the Place does not escape")
}

// BenchmarkEnter measures Enter and Leave beside Hold and Release: at most 4 times as long.
func BenchmarkEnter(b *testing.B) {
	l := limiterOf(b, weir.Config{})
	g, err := overload.New(l, overload.Config{})
	require.NoError(b, err)
	b.Run("hold", func(b *testing.B) {
		s := l.InFlight()
		b.ReportAllocs()
		for b.Loop() {
			held, err := weir.Hold(ctx, s, &weir.Request{Key: "ann", Limit: 10, Duration: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			_ = held.Release(ctx)
		}
	})
	b.Run("enter", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p, err := g.Enter(ctx, "ann", overload.Normal)
			if err != nil {
				b.Fatal(err)
			}
			p.Leave()
		}
	})
	b.Run("enter, refused", func(b *testing.B) {
		full := guardOf(b, overload.Config{Most: 1})
		_, err := full.Enter(ctx, "", overload.Normal)
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := full.Enter(ctx, "ann", overload.Normal); !errors.As(err, new(*overload.FullError)) {
				b.Fatal(err)
			}
		}
	})
}
