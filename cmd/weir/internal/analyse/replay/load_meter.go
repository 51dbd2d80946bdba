package replay

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/weirgo/weir/overload"
)

// rateWindow is how long requests must be served at a rate that a service is taken to be capable
// of. In a second more can end, where they waited for one that is gone.
const rateWindow = 10 * time.Second

// loadMeter measures what is in flight, and drives a guard by the clock of the log.
type loadMeter struct {
	clock    logLimiter
	guard    *overload.Guard
	names    []string // of the callers
	callers  []callerMeter
	load     *Load
	inFlight uint64
	peakAt   int64
	at       int64   // of the clock
	heldNs   float64 // of the present bin: its nanoseconds in flight
	all      float64 // of the bins before
	bin      int
	goals    []time.Duration
	arrivals []uint64 // by how many were in flight before
	took     durations
	long     float64 // nanoseconds in flight of what takes over a minute

	rate       int64 // in nanoseconds: rateWindow, or the whole log if that is shorter
	rateFrom   int64
	served     uint64 // in the present one
	mostServed uint64
}

// callerMeter is what a loadMeter counts of a caller.
type callerMeter struct {
	requests  uint64
	time      int64
	now, most uint32
	GuardRefusals
}

// newLoadMeter returns a meter of requests that begin and end between two instants.
func newLoadMeter(
	cfg *Config, load *Load, names []string, first, last int64,
) (*loadMeter, error) {
	m := &loadMeter{load: load, names: names, callers: make([]callerMeter, len(names)), at: first,
		rate: min(int64(rateWindow), last-first+1), rateFrom: first}
	load.Curve = &Curve{Timeline: newTimeline(first, last, curveRows, maxBins, widths[0])}
	load.Curve.Peaks = make([]uint64, load.Curve.Bins())
	m.clock.ns.Store(first)
	if err := m.clock.open(cfg.MaxBuckets); err != nil {
		return nil, err
	}
	var err error
	m.guard, err = overload.New(m.clock.limiter, overload.Config{Goal: cfg.Overload.Goal,
		Now: m.clock.now})
	if err != nil {
		m.clock.close()
		return nil, err
	}
	load.Guard.Lowest = math.MaxUint64
	return m, nil
}

// advance has the clock be at an instant.
func (m *loadMeter) advance(to int64) {
	m.clock.ns.Store(to)
	curve := m.load.Curve
	for end := curve.end(m.bin); end <= to; end = curve.end(m.bin) {
		m.heldNs += float64(m.inFlight) * float64(end-m.at)
		m.at = end
		m.turn()
		m.bin++
		curve.Peaks[m.bin] = m.inFlight
	}
	m.heldNs += float64(m.inFlight) * float64(to-m.at)
	m.at = to
	for to-m.rateFrom >= m.rate {
		m.mostServed, m.served = max(m.mostServed, m.served), 0
		// of a gap all but the last are empty
		m.rateFrom += max(1, (to-m.rateFrom)/m.rate) * m.rate
	}
}

// turn ends a bin.
func (m *loadMeter) turn() {
	m.load.Curve.Rows[curveHeld][m.bin] += uint64(math.Round(m.heldNs / 1e3))
	m.all += m.heldNs
	m.heldNs = 0
	s := m.guard.Stats()
	m.load.Guard.Lowest = min(m.load.Guard.Lowest, uint64(s.Limit))
	if s.Goal > 0 {
		m.goals = append(m.goals, s.Goal)
	}
}

// enter counts a request that arrives, and returns its place, or nil if the guard refuses it.
func (m *loadMeter) enter(s *stay) (*overload.Place, error) {
	m.advance(s.start)
	for int(m.inFlight) >= len(m.arrivals) {
		m.arrivals = append(m.arrivals, 0)
	}
	m.arrivals[m.inFlight]++
	m.inFlight++
	curve := m.load.Curve
	curve.Rows[curveRequests][m.bin]++
	curve.Peaks[m.bin] = max(curve.Peaks[m.bin], m.inFlight)
	if m.inFlight > m.load.Peak {
		m.load.Peak, m.peakAt = m.inFlight, s.start
	}
	c := &m.callers[s.caller]
	c.requests++
	c.time += s.end - s.start
	c.now++
	c.most = max(c.most, c.now)
	m.took.add(s.end - s.start)
	if s.end-s.start > int64(time.Minute) {
		m.load.Long++
		m.long += float64(s.end - s.start)
	}
	place, err := m.guard.Enter(context.Background(), m.names[s.caller], overload.Normal)
	m.clock.decided()
	var full *overload.FullError
	if errors.As(err, &full) {
		curve.Rows[CurveRefused][m.bin]++
		if full.Reason == overload.ShareUsed {
			c.ShareUsed++
		} else {
			c.Full++
		}
		return nil, nil
	}
	return place, err
}

// leave counts a request that ends.
func (m *loadMeter) leave(s *stay, place *overload.Place) {
	m.advance(s.end)
	m.inFlight--
	if s.marks&unserved == 0 {
		m.served++
	}
	m.callers[s.caller].now--
	switch {
	case place == nil:
	case s.marks&left != 0:
		place.Drop()
	default:
		place.Leave()
	}
}

// finish sets the figures of the whole log.
func (m *loadMeter) finish(cfg *Config, first, last int64) {
	m.turn()
	l, stats := m.load, m.guard.Stats()
	l.Whole, l.Took = !m.took.parts, m.took.took()
	l.LongShare = m.long / max(1, m.all)
	l.Average = m.all / float64(max(1, last-first))
	l.Throughput = float64(max(m.mostServed, m.served)) / (float64(m.rate) / 1e9)
	if len(m.goals) > 0 {
		slices.Sort(m.goals)
		// Of an open loop nothing gets quicker when less is admitted, so the goal rises while the service
		// is full, and for a minute after.
		l.Guard.Goal = Seconds(m.goals[len(m.goals)/4])
	}
	l.Guard.Last, l.Guard.State = uint64(stats.Limit), stats.State
	for i := range m.callers {
		c := &m.callers[i]
		l.Guard.Full += c.Full
		l.Guard.ShareUsed += c.ShareUsed
		if c.Refused() > 0 {
			l.Guard.Met++
		}
	}
	l.Busiest = m.top(cfg.Top, func(c *callerMeter) int64 { return c.time })
	l.Refused = m.top(cfg.Top, func(c *callerMeter) int64 { return int64(c.Refused()) })
}

// top returns the callers with the most of something, of so many with some.
func (m *loadMeter) top(n int, of func(*callerMeter) int64) []CallerLoad {
	order := func(a, b int) int {
		x, y := &m.callers[a], &m.callers[b]
		return cmp.Or(cmp.Compare(of(y), of(x)), cmp.Compare(y.requests, x.requests),
			cmp.Compare(m.names[a], m.names[b]))
	}
	var best []int
	for i := range m.callers {
		if of(&m.callers[i]) == 0 || len(best) == n && (n == 0 || order(i, best[n-1]) > 0) {
			continue
		}
		at := sort.Search(len(best), func(k int) bool { return order(i, best[k]) < 0 })
		best = slices.Insert(best, at, i)
		best = best[:min(len(best), n)]
	}
	all := []CallerLoad{}
	for _, i := range best {
		c := &m.callers[i]
		all = append(all, CallerLoad{Name: UTF8(m.names[i]), Requests: c.requests, Time: Seconds(c.time),
			Share: float64(c.time) / max(1, m.all), Most: uint64(c.most), GuardRefusals: c.GuardRefusals})
	}
	return all
}

// least returns the least number that at most a share of the requests met in flight.
func (m *loadMeter) least(share float64) uint64 {
	may := uint64(share*float64(m.took.n) + 1e-9)
	over := uint64(0)
	for n := len(m.arrivals); n > 0; n-- {
		over += m.arrivals[n-1]
		if over > may {
			return uint64(n)
		}
	}
	return 1
}

// refuse counts what fixed numbers would have refused.
func refuse(s *spool, numbers []*Fixed) error {
	inFlight := make([]uint64, len(numbers))
	return eachStay(s, func(*stay) (admitted uint8, err error) {
		for i, f := range numbers {
			if inFlight[i] >= f.Most {
				f.Refused++
				continue
			}
			inFlight[i]++
			admitted |= 1 << i
		}
		return admitted, nil
	}, func(_ *stay, admitted uint8) {
		for i := range numbers {
			inFlight[i] -= uint64(admitted >> i & 1)
		}
	})
}

// measure sets the Load and the times of res, which has no rules.
func (r *run) measure(res *Result) error {
	log, names := stays(r.parts[0].spool, r.callers.names)
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for _, run := range log.runs {
		for _, e := range run {
			start := e.at.nanoseconds()
			first, last = min(first, start), max(last, start+tookOf(e.route))
			res.Apart.count(marksOf(e.code))
		}
	}
	m, err := newLoadMeter(&r.cfg, res.Load, names, first, last)
	if err != nil {
		return err
	}
	defer m.clock.close()
	entered := uint64(0)
	enter := func(s *stay) (*overload.Place, error) {
		entered++
		if r.cfg.Progress != nil && entered%batchSize == 0 {
			r.cfg.Progress(Progress{Bytes: r.bytes, Lines: res.Lines, Decided: entered,
				Requests: res.Requests})
		}
		return m.enter(s)
	}
	if err := eachStay(log, enter, m.leave); err != nil {
		return err
	}
	m.finish(&r.cfg, first, last)
	l := res.Load
	l.Least = &Fixed{Most: m.least(r.cfg.Overload.RefuseAtMost)}
	numbers := []*Fixed{l.Least}
	if goal := time.Duration(l.Guard.Goal); goal > 0 {
		l.Fits = &Fixed{Most: uint64(max(1, math.Ceil(l.Throughput*goal.Seconds())))}
		numbers = append(numbers, l.Fits)
	}
	l.PeakAt = r.instant(m.peakAt)
	res.Callers, res.Timeline = len(r.callers.names), l.Curve.Timeline
	res.First, res.Last = r.instant(first), r.instant(last)
	return refuse(log, numbers)
}
