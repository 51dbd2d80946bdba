package replay

// part is the decisions on some of the callers. Callers share no counter, so that each part has judges and a goroutine
// of its own; if a judge shares counters there is one part.
type part struct {
	spool     *spool
	callers   int
	judges    []judge
	from      []int // the rows of judge i are from[i] to from[i+1]
	rows      []row
	denied    []bool // by row, of the request that is decided on
	timeline  *growing
	described *described // nil: what is numbered are callers
	meters    []meter
	peaks     [][]uint64 // by meter, then by caller
}

// row counts the denials of one row of the report.
type row struct {
	denied  uint64
	met     int          // callers with a denial
	callers []encounters // by caller
}

// encounters are a caller's denials.
type encounters struct {
	denied uint64
	first  int64 // the instant of the first, in nanoseconds
}

// prepare makes the judges. name returns the name of a caller of this part.
func (p *part) prepare(specs []spec, name func(caller uint32) string) error {
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
	p.rows, p.denied = make([]row, rows), make([]bool, rows)
	p.timeline = newGrowing(1 + rows)
	return nil
}

func (p *part) close() {
	for _, j := range p.judges {
		j.close()
	}
	_ = p.spool.remove() // the run is over, or has failed already
}

// measure works out the callers' peaks.
func (p *part) measure(s *Suggest) error {
	for _, m := range p.meters {
		p.peaks = append(p.peaks, m.peaks())
	}
	p.meters = nil
	return searchPeaks(s, p.spool, p.peaks)
}

// progressEvery is the number of requests between two calls of Progress.
const progressEvery = 1 << 14

// decide asks every judge about every request.
func (p *part) decide(progress func(n int)) error {
	in, err := p.spool.open()
	if err != nil {
		return err
	}
	next := in.next
	if p.described != nil {
		next = (&tied{next: next, ranks: p.described.ranks}).hand
	}
	for n := 1; ; n++ {
		ns, code, ok, err := next()
		if err != nil || !ok {
			return err
		}
		if err := p.one(question{caller: code >> 1, ns: ns, counted: code&1 == 0}); err != nil {
			return err
		}
		if n%progressEvery == 0 {
			progress(progressEvery)
		}
	}
}

func (p *part) one(q question) error {
	bin := p.timeline.bin(q.ns)
	p.timeline.rows[0][bin]++
	clear(p.denied)
	for i, j := range p.judges {
		if err := j.decide(q, p.denied[p.from[i]:p.from[i+1]]); err != nil {
			return err
		}
	}
	if p.described != nil {
		q.caller = p.described.owners[q.caller]
	}
	for i, denied := range p.denied {
		if denied {
			p.timeline.rows[1+i][bin]++
			p.rows[i].deny(q)
		}
	}
	for _, m := range p.meters {
		if err := m.see(q); err != nil {
			return err
		}
	}
	return nil
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
}
