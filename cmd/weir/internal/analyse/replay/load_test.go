package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/overload"
)

// visit is a request of a generated log with durations.
type visit struct {
	start, took time.Duration // since day
	caller      int
	status      int
}

var day = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

func (v visit) name() string { return fmt.Sprintf("192.0.2.%d", v.caller) }

func (v visit) end() time.Duration { return v.start + v.took }

// busyService returns the requests of a service with a few workers, which is full for a part of the
// time.
func busyService(seed uint64, n int) []visit {
	const workers = 4
	rnd := rand.New(rand.NewPCG(seed, 3))
	free := make([]time.Duration, workers)
	at := time.Hour
	all := make([]visit, n)
	for i := range all {
		gap := 4 * time.Millisecond
		if i > n/3 && i < n/2 {
			gap /= 4 // twice what the workers can do
		}
		at += time.Duration(rnd.ExpFloat64() * float64(gap)).Truncate(time.Microsecond)
		w := slices.Index(free, slices.Min(free))
		free[w] = max(free[w], at) + time.Duration(rnd.ExpFloat64()*8e6)
		// tookBits holds these durations exactly
		took := max(64*time.Microsecond, (free[w] - at).Truncate(64*time.Microsecond))
		all[i] = visit{at, took, rnd.IntN(1 + rnd.IntN(12)), []int{200, 200, 200, 503, 499}[rnd.IntN(5)]}
	}
	return all
}

// fine has the end to the microsecond, as nginx in JSON.
func (v visit) fine() string {
	end := day.Add(v.end())
	return fmt.Sprintf(`{"msec":"%d.%06d","remote_addr":"192.0.2.%d","request_time":"%.6f","status":%d}`,
		end.Unix(), end.Nanosecond()/1e3, v.caller, v.took.Seconds(), v.status)
}

// wholeEnd has the end in whole seconds, and wholeStart the start.
func (v visit) wholeEnd() string {
	return fmt.Sprintf(`{"time_local":%q,"remote_addr":"192.0.2.%d","request_time":"%.6f","status":%d}`,
		day.Add(v.end()).Format("02/Jan/2006:15:04:05 -0700"), v.caller, v.took.Seconds(), v.status)
}

func (v visit) wholeStart() string {
	return fmt.Sprintf(`{"start_time":%q,"downstream_remote_address":"192.0.2.%d","duration":%.3f,"response_code":%d}`,
		day.Add(v.start).Format(time.RFC3339), v.caller, v.took.Seconds()*1e3, v.status)
}

func linesOf(visits []visit, line func(visit) string) string {
	var b strings.Builder
	for _, v := range visits {
		b.WriteString(line(v) + "\n")
	}
	return b.String()
}

func loadConfig(files ...string) Config {
	return Config{Files: files, By: ByIP, MaxBuckets: 1 << 20, Top: 5, Force: true,
		Overload: &Overload{RefuseAtMost: .01}}
}

func loadOf(t *testing.T, text string, change ...func(*Config)) *Result {
	t.Helper()
	cfg := loadConfig(writeText(t, "a.log", text))
	for _, f := range change {
		f(&cfg)
	}
	res, err := Run(cfg)
	require.NoError(t, err)
	assert.Equal(t, res.Lines, res.Requests+res.Filtered+res.Unkeyed+res.Unreadable.Count+
		res.Load.Untimed+res.Load.Upgraded)
	return res
}

// inOrder returns the ends and the starts of visits in order of time, ends first; a visit is given
// by its index.
func inOrder(visits []visit) (order []int, starts []bool) {
	type instant struct {
		at    time.Duration
		start bool
		visit int
	}
	var all []instant
	for i, v := range visits {
		all = append(all, instant{v.start, true, i}, instant{v.end(), false, i})
	}
	slices.SortFunc(all, func(a, b instant) int {
		last := map[bool]int{true: 1}
		x, y := visits[a.visit], visits[b.visit]
		if a.at == b.at && a.start == b.start && !a.start {
			return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.name(), y.name()))
		}
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(last[a.start], last[b.start]),
			cmp.Compare(x.name(), y.name()), cmp.Compare(x.took, y.took))
	})
	for _, a := range all {
		order, starts = append(order, a.visit), append(starts, a.start)
	}
	return order, starts
}

// TestLoadIsThatOfAModel compares all that a replay counts with a model that goes through the
// starts and the ends, one after the other, and a guard that it drives itself.
func TestLoadIsThatOfAModel(t *testing.T) {
	for seed := range uint64(slow.N(1, 4, 40)) {
		visits := busyService(seed, 4000)
		res := loadOf(t, linesOf(visits, visit.fine))
		l := res.Load

		var clock atomic.Int64
		now := func() time.Time { return time.Unix(0, clock.Load()) }
		clock.Store(day.Add(visits[0].start).UnixNano())
		limiter, err := weir.New(weir.Config{Now: now})
		require.NoError(t, err)
		defer limiter.Close()
		guard, err := overload.New(limiter, overload.Config{Now: now})
		require.NoError(t, err)
		inFlight, peak, refused, total := 0, 0, 0, time.Duration(0)
		callers := map[string]CallerLoad{}
		places := make([]*overload.Place, len(visits))
		most := map[string]int{}
		fixed := map[uint64][2]int{l.Fits.Most: {}, l.Least.Most: {}} // in flight, refused
		admitted := map[uint64]map[int]bool{l.Fits.Most: {}, l.Least.Most: {}}
		met := 0
		order, starts := inOrder(visits)
		for i, n := range order {
			v := visits[n]
			name := v.name()
			if !starts[i] {
				clock.Store(day.Add(v.end()).UnixNano())
				inFlight--
				most[name]--
				switch {
				case places[n] == nil:
				case v.status == 499:
					places[n].Drop()
				default:
					places[n].Leave()
				}
				for f, x := range fixed {
					if admitted[f][n] {
						fixed[f] = [2]int{x[0] - 1, x[1]}
					}
				}
				continue
			}
			clock.Store(day.Add(v.start).UnixNano())
			if inFlight >= int(l.Least.Most) {
				met++
			}
			inFlight++
			peak, total = max(peak, inFlight), total+v.took
			most[name]++
			c := callers[name]
			c.Name, c.Requests, c.Time = name, c.Requests+1, c.Time+Seconds(v.took)
			c.Most = max(c.Most, uint64(most[name]))
			places[n], err = guard.Enter(context.Background(), name, overload.Normal)
			var full *overload.FullError
			if errors.As(err, &full) {
				refused++
				if full.Reason == overload.ShareUsed {
					c.ShareUsed++
				} else {
					c.Full++
				}
			}
			callers[name] = c
			for f, x := range fixed {
				if x[0] < int(f) {
					admitted[f][n] = true
					fixed[f] = [2]int{x[0] + 1, x[1]}
				} else {
					fixed[f] = [2]int{x[0], x[1] + 1}
				}
			}
		}

		require.Positive(t, refused, "the guard has something to do")
		assert.EqualValues(t, peak, l.Peak)
		assert.EqualValues(t, refused, l.Guard.Refused())
		assert.EqualValues(t, guard.Stats().Limit, l.Guard.Last)
		assert.InEpsilon(t, total.Seconds()/res.Last.Sub(res.First).Seconds(), l.Average, 1e-3)
		assert.EqualValues(t, slices.Max(l.Curve.Peaks), peak)
		held := 0.0
		for i := range l.Curve.Bins() {
			held += l.Curve.Average(i) * l.Curve.Width.Seconds()
		}
		assert.InEpsilon(t, total.Seconds(), held, 1e-3)
		for f, x := range fixed {
			for _, one := range []*Fixed{l.Fits, l.Least} {
				if one.Most == f {
					assert.EqualValues(t, x[1], one.Refused, f)
				}
			}
		}
		assert.LessOrEqual(t, met, len(visits)/100, "meet the least number")
		require.Len(t, l.Busiest, 5)
		for _, c := range l.Busiest {
			want := callers[c.Name]
			assert.InDelta(t, float64(want.Time), float64(c.Time), float64(len(visits))*1e3)
			want.Time, want.Share = c.Time, c.Share
			assert.Equal(t, want, c)
		}
		for _, c := range l.Refused {
			assert.Equal(t, callers[c.Name].GuardRefusals, c.GuardRefusals)
		}

		shuffled := slices.Clone(visits)
		rand.New(rand.NewPCG(seed, 4)).Shuffle(len(shuffled), func(i, j int) {
			shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
		})
		for _, form := range []func(visit) string{visit.fine, visit.wholeEnd} {
			a, b := loadOf(t, linesOf(visits, form)), loadOf(t, linesOf(shuffled, form))
			assert.Equal(t, a.Load, b.Load, "the order of the lines does not matter")
			cut := loadOf(t, linesOf(shuffled, form), func(cfg *Config) { cfg.maxRun = 100 })
			assert.Equal(t, a.Load, cut.Load, "nor how the log is stored")
		}
	}
}

// TestWholeSecondsMakeNoPeaks: what was in flight of a log in whole seconds is as of one with parts
// of a second, whichever end of a request it has, and no request is in flight with all others of
// its second.
func TestWholeSecondsMakeNoPeaks(t *testing.T) {
	var even []visit // 200 a second of 10 ms each: two in flight
	for i := range 4000 {
		even = append(even, visit{time.Hour + time.Duration(i)*5*time.Millisecond, 10 * time.Millisecond, i % 7, 200})
	}
	for name, form := range map[string]func(visit) string{"end": visit.wholeEnd, "start": visit.wholeStart} {
		res := loadOf(t, linesOf(even, form))
		assert.True(t, res.Coarse)
		assert.InDelta(t, 2, res.Load.Average, .2, name)
		assert.LessOrEqual(t, res.Load.Peak, uint64(5), name)
		assert.Zero(t, res.Load.Guard.Refused(), name)
		for _, c := range res.Load.Busiest {
			assert.LessOrEqual(t, c.Most, uint64(2), "%s: %s", name, c.Name)
		}
	}

	visits := busyService(9, 30000)
	fine := loadOf(t, linesOf(visits, visit.fine))
	for name, form := range map[string]func(visit) string{"end": visit.wholeEnd, "start": visit.wholeStart} {
		whole := loadOf(t, linesOf(visits, form))
		assert.InEpsilon(t, fine.Load.Average, whole.Load.Average, .03, name)
		assert.InEpsilon(t, float64(fine.Load.Peak), float64(whole.Load.Peak), .1, name)
		for i, c := range whole.Load.Busiest {
			assert.Equal(t, fine.Load.Busiest[i].Name, c.Name)
		}
	}
}

// The negative control: where all requests of a whole second begin at once, there are peaks that
// never were.
func TestWholeSecondsControl(t *testing.T) {
	s := &spool{most: maxRun}
	for range 200 {
		s.add(stampOf(1e9, false), codeOf(1, 0), tookBits(10e6))
	}
	s.sort()
	now, most := 0, 0
	require.NoError(t, eachStay(s, func(*stay) (struct{}, error) {
		now++
		most = max(most, now)
		return struct{}{}, nil
	}, func(*stay, struct{}) { now-- }))
	assert.Equal(t, 200, most)
}

// TestSpreadIsEven: any run of the requests of a second, as those of one caller are, is spread over
// it, and the second is filled.
func TestSpreadIsEven(t *testing.T) {
	var second []event
	for i := range 240 {
		second = append(second, event{at: stampOf(5e9, true), code: codeOf(uint32(i/60), 0)})
	}
	out := &spool{most: maxRun}
	spreadOver(out, second)
	for caller := range uint32(4) {
		var tenths [10]int
		for _, e := range out.runs[0] {
			if e.code>>markBits == caller {
				tenths[(e.at.nanoseconds()-5e9)/1e8]++
			}
		}
		for _, n := range tenths {
			assert.InDelta(t, 6, n, 2)
		}
	}
}

// TestDurationsAreNeeded: lines without a duration are left out, as are upgraded connections, and a
// log of such lines is an error.
func TestDurationsAreNeeded(t *testing.T) {
	timed := linesOf(busyService(1, 50), visit.fine)
	const untimed = `192.0.2.1 - - [20/Nov/2026:01:00:00 +0000] "GET / HTTP/1.1" 200 12` + "\n"
	const upgraded = `{"msec":"1795000000.5","remote_addr":"192.0.2.1","request_time":"3600.5","status":101}` + "\n"
	res := loadOf(t, untimed+timed+upgraded+untimed)
	assert.EqualValues(t, []uint64{50, 2, 1}, []uint64{res.Requests, res.Load.Untimed, res.Load.Upgraded})
	assert.Equal(t, loadOf(t, timed).Load.Curve, res.Load.Curve)

	_, err := Run(loadConfig(writeText(t, "b.log", strings.Repeat(untimed, 3))))
	assert.ErrorContains(t, err, "none of the 3 requests has a duration: log $request_time (nginx) or %D (Apache)")
	assert.ErrorContains(t, err, "--map duration=KEY")
	assert.ErrorAs(t, err, new(*InputError))
}

// TestALoadWithoutTime: a single request, and requests that take no time at all, have figures.
func TestALoadWithoutTime(t *testing.T) {
	one := loadOf(t, visit{time.Hour, 0, 1, 200}.fine())
	assert.EqualValues(t, 1, one.Load.Peak)
	assert.EqualValues(t, 1, one.Load.Least.Most)
	assert.Nil(t, one.Load.Fits, "nothing was learnt")
	assert.True(t, one.Load.Whole)
	long := loadOf(t, visit{time.Hour, 90 * time.Second, 1, 200}.fine())
	assert.EqualValues(t, 1, long.Load.Long)
	assert.InDelta(t, 1, long.Load.LongShare, 1e-6)
	assert.InDelta(t, 1, long.Load.Average, 1e-6)
}

// TestAGoalIsTakenOver: the guard has the goal that is given.
func TestAGoalIsTakenOver(t *testing.T) {
	text := linesOf(busyService(2, 4000), visit.fine)
	strict := loadOf(t, text, func(cfg *Config) { cfg.Overload.Goal = 10 * time.Millisecond })
	lax := loadOf(t, text, func(cfg *Config) { cfg.Overload.Goal = 10 * time.Second })
	assert.Less(t, lax.Load.Guard.Refused(), strict.Load.Guard.Refused())
	assert.EqualValues(t, 10*time.Second, lax.Load.Guard.Goal)
	assert.Greater(t, lax.Load.Fits.Most, strict.Load.Fits.Most)
}

// TestTheStartIsRightInEachFormat: requests that are in flight together in one format are so in
// each other.
func TestTheStartIsRightInEachFormat(t *testing.T) {
	nginx, err := accesslog.ParseLayout(`$remote_addr $msec $request_time`)
	require.NoError(t, err)
	apache, err := accesslog.ParseLayout(`%h %{usec}t %D`)
	require.NoError(t, err)
	visits := busyService(3, 2000)
	want := loadOf(t, linesOf(visits, visit.fine))
	for name, of := range map[string]struct {
		accesslog.Format
		line func(visit) string
	}{
		"nginx": {nginx, func(v visit) string {
			return fmt.Sprintf("192.0.2.%d %.6f %.6f", v.caller, float64(day.Add(v.end()).UnixMicro())/1e6, v.took.Seconds())
		}},
		"Apache": {apache, func(v visit) string {
			return fmt.Sprintf("192.0.2.%d %d %d", v.caller, day.Add(v.start).UnixMicro(), v.took.Microseconds())
		}},
		"weir": {accesslog.Format{}, func(v visit) string {
			return fmt.Sprintf("time=%s msg=request client=192.0.2.%d ms=%.3f",
				day.Add(v.end()).Format(time.RFC3339Nano), v.caller, v.took.Seconds()*1e3)
		}},
		"Traefik": {accesslog.Format{}, func(v visit) string {
			return fmt.Sprintf(`{"StartUTC":%q,"ClientHost":"192.0.2.%d","Duration":%d}`,
				day.Add(v.start).Format(time.RFC3339Nano), v.caller, v.took)
		}},
	} {
		got := loadOf(t, linesOf(visits, of.line), func(cfg *Config) { cfg.Format = of.Format })
		assert.Equal(t, want.Load.Peak, got.Load.Peak, name)
		assert.Equal(t, want.Load.Curve.Peaks, got.Load.Curve.Peaks, name)
		assert.InEpsilon(t, want.Load.Average, got.Load.Average, 1e-6, name)
	}
}

// TestDurationsAreCountedToOnePercent compares quantiles with those of the sorted durations.
func TestDurationsAreCountedToOnePercent(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	var d durations
	var all []int64
	for range 5000 {
		ns := int64(rnd.ExpFloat64() * 50e6)
		all = append(all, ns)
		d.add(ns)
	}
	slices.Sort(all)
	took := d.took()
	for share, got := range map[int]Seconds{50: took.P50, 90: took.P90, 99: took.P99} {
		assert.InEpsilon(t, float64(all[len(all)*share/100-1]), float64(got), .01, share)
	}
	assert.EqualValues(t, all[len(all)-1], took.Max)
}
