package replay

import (
	"math"

	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
)

// part decides on the requests of some callers. Callers share no counters, so each part has its own
// deciders and its own goroutine; if a decider shares counters between callers there is one part.
type part struct {
	spool    *spool
	callers  int
	deciders []decider
	from     []int // decider i has the rows from[i] up to from[i+1]
	rows     []row
	denied   []bool // denials of the current requests: by request, then by row
	timeline *Timeline
	bin      int      // of timeline, that of the last request
	binEnd   int64    // in nanoseconds since the Unix epoch
	owners   []uint32 // the callers of descriptions, or nil
	// the numbers by which suggestions are made, by code; nil if those are callers
	metered  []uint32
	apart    Apart       // all requests
	compared *Comparison // nil unless two limits are compared
	routes   []uint64    // requests by route; nil without Config.Routes
	meters   []meter
	peaks    [][]Peak // indexed by meter, then by caller

	// The listed callers, which are the only ones to decide on unless shared is set; nil until
	// details.
	watches map[uint32][]*watch
	shared  bool
}

// row counts the denials of one row of the report.
type row struct {
	denied  uint64
	apart   Apart
	met     int               // callers with at least one denial
	callers []callerDenials   // indexed by caller
	routes  map[uint32]uint64 // denials by route; nil without Config.Routes
}

// callerDenials counts one caller's denials.
type callerDenials struct {
	denied uint64
	first  int64 // when the first was, in nanoseconds since the Unix epoch
}

// prepare creates the deciders, and a timeline from first to last. name returns the name of a
// caller of this part.
func (p *part) prepare(specs []spec, name func(caller uint32) string, first, last int64) error {
	p.from = []int{0}
	for _, s := range specs {
		d, err := s.open(name, p.callers)
		if err != nil {
			return err
		}
		p.deciders = append(p.deciders, d)
		p.from = append(p.from, p.from[len(p.from)-1]+s.rows)
	}
	rows := p.from[len(specs)]
	p.rows, p.denied = make([]row, rows), make([]bool, batchSize*rows)
	for i := range p.rows {
		if p.routes != nil {
			p.rows[i].routes = make(map[uint32]uint64)
		}
	}
	p.timeline = newTimeline(first, last, 1+rows, maxBins, widths[0])
	p.binEnd = p.timeline.end(0)
	return nil
}

func (p *part) close() {
	for _, d := range p.deciders {
		d.close()
	}
}

// openMetered opens a stream for the suggestions.
func (p *part) openMetered() *stream { return p.spool.open(p.metered) }

// batchSize is how many requests are decided on at a time. One decider after the other decides on
// the whole batch, so the processor waits for the state of many callers at once.
const batchSize = 512

// decide has every decider decide on every request.
func (p *part) decide(progress func(n int)) error {
	in := p.spool.open(p.owners)
	batch := make([]hit, 0, batchSize)
	for {
		batch = batch[:0]
		for len(batch) < cap(batch) {
			h, ok := in.next()
			if !ok {
				break
			}
			if p.watches == nil || p.shared || p.watches[h.caller] != nil {
				batch = append(batch, h)
			}
		}
		if len(batch) == 0 {
			return nil
		}
		if err := p.ask(batch); err != nil {
			return err
		}
		progress(len(batch))
	}
}

// ask has every decider decide on a batch of requests and counts the denials.
func (p *part) ask(batch []hit) error {
	rows := len(p.rows)
	clear(p.denied[:len(batch)*rows])
	for i, d := range p.deciders {
		from, to := p.from[i], p.from[i+1]
		for k, h := range batch {
			if err := d.decide(h, p.denied[k*rows+from:k*rows+to]); err != nil {
				return err
			}
		}
	}
	for k, h := range batch {
		p.count(h, p.denied[k*rows:(k+1)*rows])
	}
	for _, m := range p.meters {
		for _, h := range batch {
			if p.metered != nil {
				h.caller = p.metered[h.code]
			}
			m.see(h)
		}
	}
	return nil
}

// count adds the deciders' decisions on one request.
func (p *part) count(h hit, denied []bool) {
	for h.ns >= p.binEnd {
		p.bin++
		p.binEnd = p.timeline.end(p.bin)
	}
	p.timeline.Rows[0][p.bin]++
	p.apart.count(h.marks)
	if p.routes != nil {
		p.routes[h.route]++
	}
	for _, w := range p.watches[h.caller] {
		w.see(h, denied[w.row])
	}
	if p.compared != nil {
		p.compared.count(denied[0], denied[p.from[1]], h.caller, h.route)
	}
	for i, denied := range denied {
		if denied {
			p.timeline.Rows[1+i][p.bin]++
			p.rows[i].deny(h)
		}
	}
}

// openMeters sets the meters of a part, for each strategy and each duration in order, and the
// peaks, which they fill. The peaks for buckets are computed by a rollingMeter first, as the start
// of the search.
func (p *part) openMeters(s *Suggest, callers int) {
	p.peaks = make([][]Peak, len(s.Strategies)*len(s.Durations))
	for i := range p.peaks {
		strategy, d := s.row(i)
		peaks := make([]Peak, callers)
		p.peaks[i] = peaks
		if strategy == rule.Fixed || strategy == rule.Sliding {
			p.meters = append(p.meters, &stateMeter{newStateDecider(decideFuncs[strategy],
				windowParams(math.MaxInt64, int64(d)), callers), peaks})
			continue
		}
		m := &rollingMeter{length: int64(d), counts: make([]Peak, callers), peaks: peaks,
			late: p.openMetered()}
		m.next, m.more = m.late.next()
		p.meters = append(p.meters, m)
	}
}

func (r *row) deny(h hit) {
	for int(h.caller) >= len(r.callers) {
		r.callers = append(r.callers, callerDenials{})
	}
	c := &r.callers[h.caller]
	if c.denied == 0 {
		c.first = h.ns
		r.met++
	}
	c.denied++
	r.denied++
	if r.routes != nil {
		r.routes[h.route]++
	}
	r.apart.count(h.marks)
}
