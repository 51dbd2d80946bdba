package replay

// part decides on the requests of some callers. Callers share no counters, so each part has its own
// judges and its own goroutine; if a judge shares counters between callers there is one part.
type part struct {
	spool     *spool
	callers   int
	judges    []judge
	from      []int // judge i has the rows from[i] up to from[i+1]
	rows      []row
	denied    []bool // denials of the current requests: by request, then by row
	timeline  *Timeline
	bin       int        // of timeline, that of the last request
	binEnd    int64      // in nanoseconds since the Unix epoch
	described *described // nil if the numbers are those of callers
	owners    []uint32   // the callers of descriptions, or nil
	// the numbers by which suggestions are made, by code; nil if those are callers
	metered  []uint32
	apart    Apart       // all requests
	compared *Comparison // nil unless two limits are compared
	meters   []meter
	peaks    [][]Peak // indexed by meter, then by caller
}

// row counts the denials of one row of the report.
type row struct {
	denied  uint64
	apart   Apart
	met     int          // callers with at least one denial
	callers []encounters // indexed by caller
}

// encounters counts one caller's denials.
type encounters struct {
	denied uint64
	first  int64 // when the first was, in nanoseconds since the Unix epoch
}

// prepare creates the judges, and a timeline from first to last. name returns the name of a caller
// of this part.
func (p *part) prepare(specs []spec, name func(caller uint32) string, first, last int64) error {
	p.from = []int{0}
	for _, s := range specs {
		j, err := s.open(name, p.callers)
		if err != nil {
			return err
		}
		p.judges = append(p.judges, j)
		p.from = append(p.from, p.from[len(p.from)-1]+s.rows)
	}
	rows := p.from[len(specs)]
	p.rows = make([]row, rows)
	p.timeline = newTimeline(first, last, 1+rows, maxBins, widths[0])
	p.binEnd = p.timeline.end(0)
	return nil
}

func (p *part) close() {
	for _, j := range p.judges {
		j.close()
	}
}

// openMetered opens a stream for the suggestions.
func (p *part) openMetered() *stream { return p.spool.open(p.metered) }

// batchSize is how many requests are decided on at a time. One judge after the other decides on the
// whole batch, so the processor waits for the state of many callers at once.
const batchSize = 512

// decide has every judge decide on every request.
func (p *part) decide(progress func(n int)) error {
	in := p.spool.open(p.owners)
	p.denied = make([]bool, batchSize*len(p.rows))
	batch := make([]question, 0, batchSize)
	for {
		batch = batch[:0]
		for len(batch) < cap(batch) {
			q, ok := in.next()
			if !ok {
				break
			}
			batch = append(batch, q)
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

// ask has every judge decide on a batch of requests and counts the denials.
func (p *part) ask(batch []question) error {
	clear(p.denied)
	rows := len(p.rows)
	for i, j := range p.judges {
		from, to := p.from[i], p.from[i+1]
		for k, q := range batch {
			if err := j.decide(q, p.denied[k*rows+from:k*rows+to]); err != nil {
				return err
			}
		}
	}
	for k, q := range batch {
		p.count(q, p.denied[k*rows:(k+1)*rows])
	}
	for _, m := range p.meters {
		for _, q := range batch {
			if p.metered != nil {
				q.caller = p.metered[q.code]
			}
			m.see(q)
		}
	}
	return nil
}

// count adds the judges' decisions on one request.
func (p *part) count(q question, denied []bool) {
	for q.ns >= p.binEnd {
		p.bin++
		p.binEnd = p.timeline.end(p.bin)
	}
	p.timeline.Rows[0][p.bin]++
	p.apart.count(q.marks)
	if p.compared != nil {
		p.compared.count(denied[0], denied[p.from[1]], q.caller, p.described.places[q.code])
	}
	for i, denied := range denied {
		if denied {
			p.timeline.Rows[1+i][p.bin]++
			p.rows[i].deny(q)
		}
	}
}

func (r *row) deny(q question) {
	for int(q.caller) >= len(r.callers) {
		r.callers = append(r.callers, encounters{})
	}
	c := &r.callers[q.caller]
	if c.denied == 0 {
		c.first = q.ns
		r.met++
	}
	c.denied++
	r.denied++
	r.apart.count(q.marks)
}

// Apart counts requests that a limit is perhaps not for.
type Apart struct {
	Crawled  uint64 `json:"crawled"`      // requests by known crawlers
	Answered uint64 `json:"answered_429"` // requests that the server answered with 429
}

func (a *Apart) count(m marks) {
	if m&(crawled|answered) != 0 {
		a.Crawled += uint64(m & crawled / crawled)
		a.Answered += uint64(m & answered / answered)
	}
}

func (a *Apart) add(o Apart) { a.Crawled, a.Answered = a.Crawled+o.Crawled, a.Answered+o.Answered }
