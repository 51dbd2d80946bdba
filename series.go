package weir

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/internal/algorithm"
	"github.com/weirgo/weir/internal/arith"
	"github.com/weirgo/weir/internal/calendar"
	"github.com/weirgo/weir/internal/clock"
)

// series is a set of counts that a Limiter keeps apart from those of its bare strategies: of the
// limits with one name or equal numbers, or of a Calendar. Its number is in the keys of its
// buckets. Fixed windows, whose keys have a window number already, have it in place of the scale.
type series struct {
	seriesName
	clock    *clock.Clock
	number   int64                              // from 1
	calendar *atomic.Pointer[calendar.Calendar] // of the windows; nil: they are of a length
	current  atomic.Pointer[window]             // the latest; at first one that holds no instant
}

// seriesName identifies a series, also in a snapshot.
type seriesName struct {
	name     string // of a Limit; empty: it has none
	numbers  string // of a Limit without a name; empty: a bare Calendar
	calendar string // of fixed windows; empty: none
	length   int64  // ms; of fixed windows that are of no calendar, else 0
}

// maxSeries bounds the series of a Limiter, which are never removed.
const maxSeries = 1 << 16

var errTooManySeries = fmt.Errorf("%w: %d different limits and calendars are in use; "+
	"put what varies into the key", ErrLimit, maxSeries)

// registry holds the series of a Limiter. A known one is found without a lock.
type registry struct {
	clock     *clock.Clock
	calendars sync.Map                  // from names to *atomic.Pointer[calendar.Calendar]
	known     sync.Map                  // from seriesName to *series
	mu        sync.Mutex                // held by writers of all
	all       atomic.Pointer[[]*series] // by number; a writer appends
}

// of returns the series in whose windows a scale over maxScale counts.
func (g *registry) of(scaleMs int64) *series { return g.numbered(scaleMs - maxScale) }

func (g *registry) numbered(number int64) *series { return (*g.all.Load())[number-1] }

// calendar returns what holds the rules of a calendar, for all its series: those of c or, if that
// is nil, those that are known, or else those of the zone that the name describes. It fails if
// there are none.
func (g *registry) calendar(
	name string, c *calendar.Calendar,
) (*atomic.Pointer[calendar.Calendar], error) {
	if at, ok := g.calendars.Load(name); ok {
		rules := at.(*atomic.Pointer[calendar.Calendar])
		if c != nil {
			rules.Store(c)
		}
		return rules, nil
	}
	if c == nil {
		parsed, err := calendar.Parse(name)
		if err != nil {
			return nil, err
		}
		c = &parsed
	}
	made := new(atomic.Pointer[calendar.Calendar])
	made.Store(c)
	at, _ := g.calendars.LoadOrStore(name, made)
	return at.(*atomic.Pointer[calendar.Calendar]), nil
}

// named returns the series of a name, and makes it if there is none, with the calendar that the
// method of that name returns. It fails as that does, and with ErrLimit for more than maxSeries.
func (g *registry) named(name seriesName, c *calendar.Calendar) (*series, error) {
	var rules *atomic.Pointer[calendar.Calendar]
	if name.calendar != "" {
		var err error
		if rules, err = g.calendar(name.calendar, c); err != nil {
			return nil, err
		}
	}
	if s, ok := g.known.Load(name); ok {
		return s.(*series), nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s, ok := g.known.Load(name); ok {
		return s.(*series), nil
	}
	all := *g.all.Load()
	if len(all) == maxSeries {
		return nil, errTooManySeries
	}
	s := &series{seriesName: name, clock: g.clock, number: int64(len(all)) + 1, calendar: rules}
	s.current.Store(&window{scale: s.scale()})
	all = append(all, s) // readers of the old slice do not look beyond its end
	g.all.Store(&all)
	g.known.Store(name, s)
	return s, nil
}

// scale stands for the windows of s in the key of a bucket.
func (s *series) scale() int64 { return maxScale + s.number }

// window returns the window that holds now.
func (s *series) window(now int64) *window {
	w := s.at(now)
	if w.expires.IsZero() {
		w.expires = s.clock.Time(w.end)
		s.current.Store(w)
	}
	return w
}

// at is window, without its expires if it is not the current one.
func (s *series) at(now int64) *window {
	if w := s.current.Load(); w.holds(now) {
		return w
	}
	if s.calendar != nil {
		second, _ := arith.FloorDiv(now, 1000*msec)
		start, end := s.calendar.Load().Window(second)
		return newWindow(s.scale(), 1000*end, ofMilli(1000*start), ofMilli(1000*end))
	}
	number, start, end := algorithm.Window(s.length, now)
	return newWindow(s.scale(), (number+1)*s.length, start, end)
}

// ofMilli returns the instant of a Unix millisecond. It saturates.
func ofMilli(ms int64) int64 { return algorithm.WindowStart(ms, 1) }
