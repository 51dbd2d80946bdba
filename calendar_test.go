package weir

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/calendar"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/windows"
)

func zone(t testing.TB, name string) *time.Location {
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

// calendarAt returns a limiter whose clock shows *now.
func calendarAt(t testing.TB, now *time.Time) *Limiter {
	return MustNew(t, Config{Now: func() time.Time { return *now }, Timeout: time.Nanosecond})
}

func TestCalendarCountsByTheMonth(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	now := time.Date(2026, 10, 1, 0, 0, 0, 0, berlin)
	s := calendarAt(t, &now).Calendar(Month, berlin)
	r := &Request{Key: "alice", Limit: 3}
	november := time.Date(2026, 11, 1, 0, 0, 0, 0, berlin)
	for n := range uint64(3) {
		res := MustRun(t, s, r)
		assert.Equal(t, Allow, res.State)
		assert.Equal(t, n+1, res.TotalRequests)
		assert.True(t, november.Equal(res.ExpiresAt), "%v", res.ExpiresAt)
		now = now.Add(10 * 24 * time.Hour)
	}
	now = november.Add(-1)
	res := MustRun(t, s, r)
	assert.Equal(t, Deny, res.State)
	assert.True(t, november.Equal(res.ExpiresAt))
	now = november
	res, err := s.Run(context.Background(), &Request{Key: "alice", Limit: 3, Duration: time.Nanosecond})
	require.NoError(t, err, "the Duration is ignored")
	assert.EqualValues(t, 1, res.TotalRequests)
	assert.True(t, november.AddDate(0, 1, 0).Equal(res.ExpiresAt))
}

func TestCalendarOnDaysOnWhichClocksAreSet(t *testing.T) {
	for _, c := range []struct {
		zone, day string
		hours     float64
	}{
		{"Europe/Berlin", "2026-03-29", 23}, {"Europe/Berlin", "2026-10-25", 25},
		{"Europe/Berlin", "2026-10-26", 24},
		{"Australia/Lord_Howe", "2026-10-04", 23.5}, {"Asia/Kathmandu", "2026-10-04", 24},
	} {
		t.Run(c.zone+" "+c.day, func(t *testing.T) {
			z := zone(t, c.zone)
			now, err := time.ParseInLocation(time.DateOnly, c.day, z)
			require.NoError(t, err)
			s := calendarAt(t, &now).Calendar(Day, z)
			start := now
			res := MustRun(t, s, &Request{Key: "k", Limit: 1})
			require.True(t, res.Allowed())
			assert.Equal(t, c.hours, res.ExpiresAt.Sub(start).Hours())
			for now = now.Add(time.Minute); now.Before(res.ExpiresAt); now = now.Add(time.Minute) {
				again := MustRun(t, s, &Request{Key: "k", Limit: 1})
				require.False(t, again.Allowed(), "%v", now)
			}
			again := MustRun(t, s, &Request{Key: "k", Limit: 1})
			require.True(t, again.Allowed())
		})
	}
}

// Two calendars count together if they have one name, and else apart; neither counts with a fixed
// window, nor is it reset with one.
func TestCalendarsCountApart(t *testing.T) {
	now := time.Date(2026, 10, 17, 12, 0, 0, 0, time.UTC)
	l := calendarAt(t, &now)
	r := &Request{Key: "k", Limit: 9, Duration: 24 * time.Hour}
	count := func(s Strategy) uint64 {
		return MustRun(t, s, r).TotalRequests
	}
	assert.EqualValues(t, 1, count(l.Calendar(Day, time.UTC)))
	assert.EqualValues(t, 2, count(l.Calendar(Day, nil)))
	assert.EqualValues(t, 1, count(l.FixedWindow()))
	assert.EqualValues(t, 1, count(l.Calendar(Month, time.UTC)))
	assert.EqualValues(t, 1, count(l.Calendar(Month.From(2), time.UTC)))
	assert.EqualValues(t, 2, count(l.Calendar(Month.From(2).From(1), time.UTC)),
		"the first is the usual day")
	assert.EqualValues(t, 1, count(l.Calendar(Day, zone(t, "Europe/Berlin"))))
	assert.EqualValues(t, 2, count(l.Calendar(Day, zone(t, "Europe/Berlin"))))
	assert.EqualValues(t, 1, count(l.Calendar(Day, time.FixedZone("Z", 60))))
	assert.EqualValues(t, 1, count(l.Calendar(Day, time.FixedZone("Z", 120))))
	assert.EqualValues(t, 1, count(l.Calendar(Day.At(6*time.Hour), time.UTC)))
	assert.EqualValues(t, 1, count(l.Calendar(Month.From(2).At(6*time.Hour), time.UTC)))
	assert.EqualValues(t, 2, count(l.Calendar(Month.At(6*time.Hour).From(2), time.UTC)))

	names := map[string]uint64{}
	for b := range l.Buckets() {
		names[b.Calendar] = b.Count
	}
	assert.Equal(t, map[string]uint64{
		"": 1, "day@UTC": 2, "month@UTC": 2, "month:2@UTC": 1, "day@Europe/Berlin": 2,
		"day@Z+60": 1, "day@Z+120": 1, "day:6h@UTC": 1, "month:2:6h@UTC": 2,
	}, names)
	reset, err := ops.ResetPrefix(context.Background(), l.FixedWindow(), "", nil)
	require.NoError(t, err)
	assert.Equal(t, 1, reset)
	reset, err = ops.ResetPrefix(context.Background(), l.Calendar(Day, nil), "", nil)
	require.NoError(t, err)
	assert.Equal(t, 1, reset)
	assert.EqualValues(t, 1, count(l.Calendar(Day, nil)))
	assert.EqualValues(t, 3, count(l.Calendar(Day, zone(t, "Europe/Berlin"))))

	_, err = l.CheckRate("k", maxScale+1, 9)
	assert.ErrorIs(t, err, ErrScale, "the scale that stands for a calendar is none of CheckRate's")
	_, err = l.Inspect("k", maxScale+1)
	assert.ErrorIs(t, err, ErrScale)
}

func TestCalendarIsSweptWhenItsWindowHasEnded(t *testing.T) {
	now := time.Date(2028, 2, 1, 0, 0, 0, 0, time.UTC)
	l := calendarAt(t, &now)
	MustRun(t, l.Calendar(Month, nil), &Request{Key: "k", Limit: 9})
	now = time.Date(2028, 2, 29, 23, 59, 59, 0, time.UTC)
	assert.Zero(t, l.Sweep())
	now = now.Add(time.Second + time.Nanosecond)
	assert.Equal(t, 1, l.Sweep())
}

func TestCalendarSurvivesARestart(t *testing.T) {
	now := time.Date(2026, 10, 17, 12, 0, 0, 0, time.UTC)
	first, second := calendarAt(t, &now), calendarAt(t, &now)
	calendars := func(l *Limiter) []Strategy {
		return []Strategy{
			l.Calendar(Month.From(17), zone(t, "America/New_York")), l.Calendar(Year, nil),
			l.Calendar(Day.At(6*time.Hour), zone(t, "Europe/Berlin")),
			l.Calendar(Hour, time.FixedZone("own", 1234)), l.FixedWindow(),
		}
	}
	run := func(l *Limiter, i int) uint64 {
		return MustRun(t, calendars(l)[i], &Request{Key: "k", Limit: 99, Duration: time.Hour, Cost: uint64(i + 1)}).TotalRequests
	}
	var saved bytes.Buffer
	for i := range calendars(first) {
		run(first, i)
	}
	require.NoError(t, first.Save(&saved))
	second.Calendar(Day, nil) // has the place in second that the first calendar has in first
	for range 2 {
		require.NoError(t, second.Load(bytes.NewReader(saved.Bytes())))
	}
	for i := range calendars(second) {
		assert.EqualValues(t, 2*(i+1), run(second, i))
	}
	now = now.AddDate(1, 0, 0)
	third := calendarAt(t, &now)
	require.NoError(t, third.Load(bytes.NewReader(saved.Bytes())), "an old snapshot")
	assert.EqualValues(t, 1, run(third, 0))
}

const calendarLimit = 700

// admittedInHours has 8 callers run s for 2 keys while the clock passes through 6 hours of a night,
// and returns how much it admitted in each, by its end, and the ends of those that passed whole.
func admittedInHours(
	t *testing.T, of func(*Calendar) func(*Request) (*Result, error),
) (admitted map[int64]int, whole []int64) {
	const callers, each, hours = 8, 2000, 6
	var clock atomic.Int64
	start := time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC) // Berlin sets its clocks in it
	l := MustNew(t, Config{Now: func() time.Time { return start.Add(time.Duration(clock.Load())) }})
	run := of(l.Calendar(Hour, zone(t, "Europe/Berlin")))
	var mu sync.Mutex
	admitted = map[int64]int{}
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(c)))
			for range each {
				clock.Add(int64(hours * time.Hour / (callers * each)))
				res, err := run(&Request{Key: fmt.Sprint("k", rnd.IntN(2)), Limit: calendarLimit})
				if assert.NoError(t, err) && res.Allowed() {
					mu.Lock()
					admitted[res.ExpiresAt.Unix()]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for hour := range int64(hours) {
		whole = append(whole, start.Unix()+3600*(hour+1))
	}
	return admitted, whole
}

// In each window exactly the limit is admitted to concurrent callers, while the clock passes from
// window to window.
func TestCalendarIsExactForConcurrentCallers(t *testing.T) {
	admitted, whole := admittedInHours(t, func(c *Calendar) func(*Request) (*Result, error) {
		return func(r *Request) (*Result, error) { return c.Run(context.Background(), r) }
	})
	for _, end := range whole {
		assert.Equal(t, 2*calendarLimit, admitted[end], "%v", time.Unix(end, 0))
		delete(admitted, end)
	}
	for end, n := range admitted { // the one that begins at the end
		assert.LessOrEqual(t, n, 2*calendarLimit, "%v", time.Unix(end, 0))
	}
}

func TestCalendarIsExactControlIsRejected(t *testing.T) {
	admitted, whole := admittedInHours(t, func(c *Calendar) func(*Request) (*Result, error) {
		return func(r *Request) (*Result, error) { // looks first, and counts then
			res, err := ops.Peek(context.Background(), c, r)
			if runtime.Gosched(); err == nil && res.Allowed() {
				err = ops.Charge(context.Background(), c, r)
			}
			return res, err
		}
	})
	exact := true
	for _, end := range whole {
		exact = exact && admitted[end] == 2*calendarLimit
	}
	assert.False(t, exact)
}

func TestCalendarChecksItsArguments(t *testing.T) {
	l, err := New(Config{})
	require.NoError(t, err)
	for _, u := range []CalendarUnit{
		0, 6, -1, Day.From(1), Week.From(8), Month.From(32), Month.From(-1), Year.From(230),
	} {
		assert.Error(t, u.Check(), "%d", u)
		assert.Panics(t, func() { l.Calendar(u, nil) })
	}
	for _, u := range []CalendarUnit{Hour, Day, Week.From(7), Month.From(31), Year.From(229),
		Month.From(0)} {
		assert.NoError(t, u.Check(), "%d", u)
	}
	s := l.Calendar(Month.From(17), nil)
	assert.Equal(t, "month:17", Month.From(17).String())
	assert.Equal(t, "calendar", ops.Name(s))
	assert.Equal(t, 31*24*time.Hour, s.About().Window)
	for _, key := range []string{"", strings.Repeat("k", maxID+1)} {
		_, err := s.Run(context.Background(), &Request{Key: key, Limit: 1})
		assert.ErrorIs(t, err, ErrID)
		_, err = s.Inspect(key)
		assert.ErrorIs(t, err, ErrID)
	}
	require.NoError(t, l.Close())
	_, err = s.Run(context.Background(), &Request{Key: "k", Limit: 1})
	assert.ErrorIs(t, err, ErrClosed)
	_, err = s.Inspect("k")
	assert.ErrorIs(t, err, ErrClosed)
}

// Also of an ID that the decision without a lock does not take, and after a denial.
func TestCalendarIsInspectedGivenBackAndReserved(t *testing.T) {
	now := time.Date(2026, 10, 25, 12, 0, 0, 0, zone(t, "Europe/Berlin"))
	start, end := now.Add(-13*time.Hour), now.Add(12*time.Hour)
	s := calendarAt(t, &now).Calendar(Day, now.Location())
	for _, key := range []string{"k", strings.Repeat("long", 100)} {
		b, err := s.Inspect(key)
		require.NoError(t, err)
		empty := Bucket{
			ID: key, Scale: 25 * time.Hour, Calendar: "day@Europe/Berlin", Number: end.Unix(), Ends: end,
		}
		assert.Equal(t, empty, b)

		r := &Request{Key: key, Limit: 10, Cost: 4}
		first := MustRun(t, s, r)
		_, giveBack, err := ops.Admit(context.Background(), s, r)
		require.NoError(t, err)
		denied := MustPeek(t, s, r)
		assert.Equal(t, Result{TotalRequests: 8, ExpiresAt: end}, *denied)
		MustRun(t, s, r)
		b, err = s.Inspect(key)
		require.NoError(t, err)
		assert.EqualValues(t, 8, b.Count)
		assert.EqualValues(t, 1, b.Denied)
		assert.WithinDuration(t, now, b.Created, time.Microsecond)
		assert.True(t, b.Ends.Add(-b.Scale).Equal(start))

		require.NoError(t, ops.Refund(context.Background(), s, r, first))
		require.NoError(t, giveBack(context.Background(), 3))
		b, err = s.Inspect(key)
		require.NoError(t, err)
		assert.EqualValues(t, 1, b.Count)

		require.NoError(t, ops.Charge(context.Background(), s, r))
		require.NoError(t, ops.Seed(context.Background(), s, r, &Result{TotalRequests: 7, ExpiresAt: end}))
		b, err = s.Inspect(key)
		require.NoError(t, err)
		assert.EqualValues(t, 7, b.Count)

		require.NoError(t, ops.Reset(context.Background(), s, r))
		b, err = s.Inspect(key)
		require.NoError(t, err)
		assert.Equal(t, empty, b)
	}
	last := MustRun(t, s, &Request{Key: "k", Limit: 10})
	now = end
	require.NoError(t, ops.Refund(context.Background(), s, &Request{Key: "k", Limit: 10}, last),
		"it has ended")
	b, err := s.Inspect("k")
	require.NoError(t, err)
	assert.Zero(t, b.Count)
	assert.Equal(t, 24*time.Hour, b.Scale)
}

// A zone may get other rules while the process runs: the window that has begun keeps its end.
func TestCalendarTakesTheNewRulesOfAZone(t *testing.T) {
	of := func(zone *time.Location) *calendar.Calendar {
		c, err := calendar.New(calendar.Day, zone)
		require.NoError(t, err)
		return &c
	}
	now := time.Date(2026, 10, 17, 12, 0, 0, 0, time.UTC)
	l := calendarAt(t, &now)
	ws, err := l.windows.Named(windows.SeriesName{Calendar: "day@Here"}, of(time.UTC))
	require.NoError(t, err)
	at := func() time.Time { return ws.Window(now.UnixNano()).Expires.UTC() }
	before := at()
	again, err := l.windows.Named(windows.SeriesName{Calendar: "day@Here"}, of(time.FixedZone("", 3600)))
	require.NoError(t, err)
	assert.Same(t, ws, again)
	assert.Equal(t, before, at())
	now = before
	assert.Equal(t, before.Add(23*time.Hour), at())

	s := l.onSlots(fixedKind)
	err = s.update("k", ws.Scale(), true, noInstant, func(v visit) slots.Content {
		v.N = 7
		return v.Content
	})
	require.NoError(t, err)
	var saved bytes.Buffer
	require.NoError(t, l.Save(&saved))
	other := calendarAt(t, &now)
	require.ErrorIs(t, other.Load(bytes.NewReader(saved.Bytes())), ErrSnapshot,
		"the zone is not known")
	ws, err = other.windows.Named(windows.SeriesName{Calendar: "day@Here"}, of(time.FixedZone("", 7200)))
	require.NoError(t, err)
	require.NoError(t, other.Load(bytes.NewReader(saved.Bytes())))
	now = now.Add(22 * time.Hour)
	s = other.onSlots(fixedKind)
	_ = s.update("k", ws.Scale(), false, noInstant, func(v visit) slots.Content {
		assert.EqualValues(t, 7, v.N, "it counts in the window that holds the end of the one before")
		return v.Content
	})
}

// The Duration of a limit by a Calendar is that of its windows, whatever NewLimit is given.
func TestALimitOfACalendarLastsAsLongAsItsWindows(t *testing.T) {
	m, err := NewLimit(MustNew(t, Config{}).Calendar(Day, nil), 3, time.Hour)
	require.NoError(t, err)
	n, d := m.Numbers()
	assert.EqualValues(t, 3, n)
	assert.Equal(t, 24*time.Hour, d)
}
