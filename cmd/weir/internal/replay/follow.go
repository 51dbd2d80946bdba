package replay

import (
	"bytes"
	"cmp"
	"math"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/internal/core/algorithm"
)

// Follower decides on the lines of a log while it is written, by the Rules of its Config, in the
// order of the lines. A request whose time is before that of an earlier line, or over an hour in
// the future, counts as if it had come with the line before, and times in whole seconds are not
// spread over them. It is not safe for concurrent use.
type Follower struct {
	run
	now      func() time.Time
	clock    stamp  // when the lines are added
	read     uint64 // how many were added
	scan     *scanner
	deciders []decider
	rows     []row
	block    block // the last lines
	sum      Result
}

// NewFollower returns a Follower of cfg.Files[0], which decides on the lines that it is given.
func NewFollower(cfg Config) (*Follower, error) {
	f := &Follower{now: time.Now, run: run{cfg: cfg, callers: newCallers(), parts: make([]*part, 1),
		first: math.MaxInt64, last: math.MinInt64},
		scan: newScanner(&cfg), rows: make([]row, len(cfg.Rules)),
		sum: Result{Config: cfg, Empty: []string{}, Doubts: []string{},
			Unreadable: Unreadable{Examples: []Example{}}}}
	f.run.result = &f.sum
	for _, r := range cfg.Rules {
		d, err := limitSpec(r, cfg.MaxBuckets, 1).open(nil, 0)
		if err != nil {
			f.Close()
			return nil, err
		}
		f.deciders = append(f.deciders, d)
	}
	return f, nil
}

// Close releases what NewFollower acquired.
func (f *Follower) Close() {
	for _, d := range f.deciders {
		d.close()
	}
}

// Requests returns the number of requests so far.
func (f *Follower) Requests() uint64 { return f.sum.Requests }

// future is how far a time may be ahead of the clock here.
const future = 2 * stamp(time.Hour)

// Unread returns the error of a replay if there are lines, and none could be read.
func (f *Follower) Unread() error {
	if s := &f.sum; s.Lines > 0 && s.Unreadable.Count == s.Lines {
		return noLog(f.cfg.Files[0], s.Lines, &s.Unreadable)
	}
	return nil
}

// Add decides on whole lines, which follow the earlier ones.
func (f *Follower) Add(lines []byte) error {
	b, s := &f.block, &f.sum
	f.clock = stamp(2 * f.now().UnixNano())
	b.data = lines
	f.scan.scan(b)
	if fields := accesslog.Fields(lines); fields != nil {
		b.fields = bytes.Clone(fields)
	}
	s.Unreadable.merge(&b.bad, f.cfg.Files[0], f.read)
	f.read += b.lines
	s.Lines += b.lines - b.directives
	s.Filtered, s.Unkeyed = s.Filtered+b.filtered, s.Unkeyed+b.unkeyed
	s.Uncounted, s.Coarse = s.Uncounted+b.uncounted, s.Coarse || b.coarse
	s.Requests += uint64(len(b.records))
	for _, r := range b.records {
		if err := f.decide(r); err != nil {
			return err
		}
	}
	return nil
}

func (f *Follower) decide(r record) error {
	at := max(r.at, f.last)
	if r.at > f.clock+future {
		if at = f.last; at == math.MinInt64 { // it is the first
			at = f.clock
		}
	}
	f.first, f.last = min(f.first, at), at
	number := f.callers.number(f.block.arena[r.from:r.to])
	f.callers.requests[number]++
	f.sum.Apart.count(r.marks)
	h := hit{caller: number, code: number, ns: at.nanoseconds(), marks: r.marks,
		counted: r.marks&uncounted == 0}
	for i, d := range f.deciders {
		if of, ok := d.(*stateDecider); ok && int(number) == len(of.state) { // a new caller
			of.state = append(of.state, algorithm.None)
		}
		var denied [1]bool
		if err := d.decide(h, denied[:]); err != nil {
			return err
		}
		if denied[0] {
			f.rows[i].deny(h)
		}
	}
	return nil
}

// Result returns what was found so far. It has no timeline.
func (f *Follower) Result() *Result {
	r := f.sum
	r.Callers = len(f.callers.names)
	if r.Requests > 0 {
		r.First, r.Last = f.instant(f.first.nanoseconds()), f.instant(f.last.nanoseconds())
	}
	r.Timeline = &Timeline{Start: r.First, Width: cmp.Or(r.Last.Sub(r.First), 1),
		Rows: make([][]uint64, 1+len(f.rows))}
	for i := range r.Timeline.Rows {
		r.Timeline.Rows[i] = make([]uint64, 1)
	}
	for i, limit := range f.cfg.Rules {
		row := &f.rows[i]
		r.Rules = append(r.Rules, RuleResult{Rule: limit, Matched: r.Requests, Denied: row.denied,
			Met: row.met, Apart: row.apart, Worst: f.worst([]Caller{}, row.callers, 0)})
	}
	return &r
}
