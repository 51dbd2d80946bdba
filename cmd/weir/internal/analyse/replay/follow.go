package replay

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
)

// Moved counts the requests that a Follower decides on at the time of a line before, not at theirs.
type Moved struct {
	Late   uint64        `json:"late"`  // older than an earlier line
	LateBy time.Duration `json:"-"`     // by so much at most
	Ahead  uint64        `json:"ahead"` // over an hour in the future
}

// Follower decides on the lines of a log while it is written, by the Rules or the
// RuleSets of its Config, in the order of the lines. A request whose time is before that of an
// earlier line, or over an hour in the future, is Moved, and times in whole seconds are not spread
// over them. It is not safe for concurrent use.
type Follower struct {
	*run  // of one part, whose timeline is one bin
	now   func() time.Time
	clock stamp // when the lines are added
	moved Moved
	added time.Time // when the last lines were
	late  lately
	scan  *scanner
	block block       // the last lines
	text  description // of the request that is decided on; without RuleSets it is not used
}

// NewFollower returns a Follower of cfg.Files[0], which decides on the lines that it is given.
func NewFollower(cfg Config) (*Follower, error) {
	cfg.parts = 1
	f := &Follower{run: newRun(cfg), now: time.Now, scan: newScanner(&cfg)}
	f.scan.statuses = true
	p := f.parts[0]
	name := func(uint32) string { return string(f.text) }
	if err := p.prepare(f.specs, name, 0, 0); err != nil {
		f.Close()
		return nil, err
	}
	p.binEnd = math.MaxInt64
	return f, nil
}

// Close releases what NewFollower acquired.
func (f *Follower) Close() { f.close() }

// File returns the name of the file that is followed.
func (f *Follower) File() string { return f.result.Files[0] }

// Requests returns the number of requests so far.
func (f *Follower) Requests() uint64 { return f.result.Requests }

// future is how far a time may be ahead of the clock here.
const future = 2 * stamp(time.Hour)

// Nothing returns the error of a replay if there are lines, and none of them is a request to decide
// on.
func (f *Follower) Nothing() error {
	switch s := f.result; {
	case s.Lines == 0 || s.Requests > 0:
		return nil
	case s.Unreadable.Count == s.Lines:
		return noLog(f.File(), s.Lines, &s.Unreadable)
	}
	return f.nothing()
}

// Add decides on whole lines, which follow the earlier ones.
func (f *Follower) Add(lines []byte) error {
	b := &f.block
	f.added = f.now()
	f.clock = stamp(2 * f.added.UnixNano())
	b.data = lines
	f.scan.scan(b)
	if fields := accesslog.Fields(lines); fields != nil {
		b.fields = bytes.Clone(fields)
	}
	b.number++ // of later ones, fewer requests are inspected
	f.result.Unreadable.merge(&b.bad, f.cfg.Files[0], f.lines)
	f.lines += b.lines
	f.result.count(&b.content)
	f.inspected.merge(&b.inspected)
	for _, r := range b.records {
		if err := f.decide(r); err != nil {
			return err
		}
	}
	return nil
}

func (f *Follower) decide(r record) error {
	at := r.at
	switch {
	case at < f.last:
		f.moved.Late++
		f.moved.LateBy = max(f.moved.LateBy, time.Duration(f.last.nanoseconds()-at.nanoseconds()))
		at = f.last
	case at > f.clock+future:
		f.moved.Ahead++
		at = f.last
		if at == math.MinInt64 { // it is the first
			at = f.clock
		}
	}
	f.first, f.last = min(f.first, at), at
	caller := f.block.arena[r.from:r.to]
	if f.cfg.RuleSets != nil {
		f.text = description(caller)
		rest := f.text
		caller = []byte(rest.text())
	}
	number := f.callers.number(caller)
	f.callers.requests[number]++
	p := f.parts[0]
	one := hit{caller: number, code: number, ns: at.nanoseconds(), marks: r.marks}
	if err := p.ask([]hit{one}); err != nil {
		return err
	}
	denied := p.denied[:len(p.rows)]
	if f.cfg.RuleSets != nil {
		denied = denied[:1] // the whole set
	}
	f.late.add(at.nanoseconds(), number, slices.Contains(denied, true), r.marks)
	return nil
}

// Result returns what was found so far, in a timeline of one bin.
func (f *Follower) Result() *Result {
	r, moved := f.report(), f.moved
	r.Moved = &moved
	r.Minute = f.minute()
	f.unread = f.result.Unreadable // it is of one file
	f.doubt(r)
	r.Timeline = &Timeline{r.First, cmp.Or(r.Last.Sub(r.First), 1), r.Timeline.Rows}
	return r
}

// minute returns the last minute.
func (f *Follower) minute() *Minute {
	to := time.Unix(0, f.last.nanoseconds()).Add(f.now().Sub(f.added)).UTC().Truncate(time.Second)
	m := &Minute{To: to, Busiest: []Recent{}}
	for number, sum := range f.late.until(to.Unix()) {
		m.Requests, m.Denied, m.Failed = m.Requests+sum.Requests, m.Denied+sum.Denied, m.Failed+sum.Failed
		m.Callers++
		sum.Name = UTF8(f.callers.names[number])
		m.Busiest = append(m.Busiest, sum)
	}
	slices.SortFunc(m.Busiest, func(a, b Recent) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(b.Denied, a.Denied),
			cmp.Compare(a.Name, b.Name))
	})
	m.Busiest = m.Busiest[:min(len(m.Busiest), f.cfg.Top)]
	return m
}
