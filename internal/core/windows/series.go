package windows

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/core/calendar"
	"github.com/weirgo/weir/internal/core/clock"
)

// Series is a set of counts that a limiter keeps apart from others: of the limits with one name or
// equal numbers, or of a calendar. Its number is in the keys of its buckets. Fixed windows, whose
// keys have a window number already, have it in place of the scale.
type Series struct {
	SeriesName
	clock    *clock.Clock
	Number   int64                              // from 1
	Calendar *atomic.Pointer[calendar.Calendar] // of the windows; nil: they are of a length
	Current  atomic.Pointer[Window]             // asked for last; at first one that holds no instant
}

// SeriesName identifies a series, also in a snapshot.
type SeriesName struct {
	Name     string // of a limit; empty: it has none
	Numbers  string // of a limit without a name; empty: a bare calendar
	Calendar string // of fixed windows; empty: none
	Length   int64  // ms; of fixed windows that are of no calendar, else 0
}

// MaxSeries bounds the series of a limiter, which are never removed.
const MaxSeries = 1 << 16

var errTooMany = fmt.Errorf("%d different limits and calendars are in use; "+
	"put what varies into the key", MaxSeries)

// registry holds the series. A known one is found without a lock.
type registry struct {
	clock     *clock.Clock
	calendars sync.Map                  // from names to *atomic.Pointer[calendar.Calendar]
	known     sync.Map                  // from SeriesName to *Series
	mu        sync.Mutex                // held by writers of all
	all       atomic.Pointer[[]*Series] // by number, nil first; a writer appends
}

// Of returns the series in whose windows a scale counts: nil up to bounds.MaxScale.
func (g *registry) Of(scaleMs int64) *Series { return g.Numbered(max(0, scaleMs-bounds.MaxScale)) }

// Numbered returns the series of a number: nil of 0.
func (g *registry) Numbered(number int64) *Series { return (*g.all.Load())[number] }

// Calendar returns what holds the rules of a calendar, for all its series: those of c or, if that
// is nil, those that are known, or else those of the zone that the name describes. It fails if
// there are none.
func (g *registry) Calendar(
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

// Named returns the series of a name, and makes it if there is none, with the rules that
// Calendar returns. It fails as Calendar does, and if there are too many.
func (g *registry) Named(name SeriesName, c *calendar.Calendar) (*Series, error) {
	var rules *atomic.Pointer[calendar.Calendar]
	if name.Calendar != "" {
		var err error
		if rules, err = g.Calendar(name.Calendar, c); err != nil {
			return nil, err
		}
	}
	if s, ok := g.known.Load(name); ok {
		return s.(*Series), nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s, ok := g.known.Load(name); ok {
		return s.(*Series), nil
	}
	all := *g.all.Load()
	if len(all) > MaxSeries {
		return nil, errTooMany
	}
	s := &Series{SeriesName: name, clock: g.clock, Number: int64(len(all)), Calendar: rules}
	s.Current.Store(&Window{Scale: s.Scale()})
	all = append(all, s) // readers of the old slice do not look beyond its end
	g.all.Store(&all)
	g.known.Store(name, s)
	return s, nil
}

// Scale stands for the windows of s in the key of a bucket.
func (s *Series) Scale() int64 { return bounds.MaxScale + s.Number }

// Window returns the window that holds now, and makes it Current.
func (s *Series) Window(now int64) *Window {
	w := s.At(now)
	if w.Expires.IsZero() {
		w.Expires = s.clock.Time(w.End)
		s.Current.Store(w)
	}
	return w
}

// At is Window, without its Expires if it is not the current one.
func (s *Series) At(now int64) *Window {
	if w := s.Current.Load(); w.Holds(now) {
		return w
	}
	if s.Calendar != nil {
		second, _ := arith.FloorDiv(now, int64(time.Second))
		start, end := s.Calendar.Load().Window(second)
		return newWindow(s.Scale(), 1000*end, OfMilli(1000*start), OfMilli(1000*end))
	}
	number, start, end := algorithm.Window(s.Length, now)
	return newWindow(s.Scale(), (number+1)*s.Length, start, end)
}

// OfMilli returns the instant of a Unix millisecond. It saturates.
func OfMilli(ms int64) int64 { return algorithm.WindowStart(ms, 1) }
