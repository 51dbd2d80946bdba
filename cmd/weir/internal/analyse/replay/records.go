package replay

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/httplimit"
)

// content is what was read from the lines of a block.
type content struct {
	records      []record
	arena        []byte // the keys of records, copied since the parser reuses an entry's memory
	first, final stamp  // the least and the greatest of records
	uncounted    uint64 // number of records whose status does not count
	lines        uint64
	directives   uint64 // lines of a W3C log that are no requests
	filtered     uint64
	unkeyed      uint64
	untimed      uint64 // without a duration, where that is needed
	upgraded     uint64 // to another protocol, where that matters
	inspected    inspection
	coarse       bool // some of the records have whole seconds
	bad          Unreadable
}

// record is a request to decide on.
type record struct {
	at       stamp
	from, to uint32 // the caller's key in the block's arena
	marks    marks
	route    string // empty if nothing is counted by route
	took     int64  // in nanoseconds, if stays are needed
}

// stamp is a time that can be compared: twice the nanoseconds since the Unix epoch, plus one if the
// log gives more than whole seconds. So requests with whole seconds come first in their second.
type stamp int64

func stampOf(ns int64, coarse bool) stamp {
	if coarse {
		return stamp(ns * 2)
	}
	return stamp(ns*2 + 1)
}

func (s stamp) nanoseconds() int64 { return int64(s >> 1) }

// scanner parses lines into records. Each goroutine has its own.
type scanner struct {
	parser *accesslog.Parser
	filter *Filter
	keys   interface {
		append(dst []byte, e *accesslog.Entry) []byte
	}
	caller *keyer
	routes *routeNamer // nil if nothing is counted by route
	stays  bool        // records are of requests in flight
	entry  accesslog.Entry

	statuses bool // records have statusMarks
}

func newScanner(cfg *Config) *scanner {
	format := cfg.Format
	format.NoTarget = !cfg.namesRoutes() && !cfg.describes() && cfg.Filter.Routes == nil &&
		cfg.By != ByPath && cfg.By != ByIPPath
	s := &scanner{parser: accesslog.NewParser(format), filter: &cfg.Filter, caller: newKeyer(cfg),
		stays: cfg.Overload != nil, statuses: cfg.Overload != nil}
	s.keys = s.caller
	if cfg.namesRoutes() {
		s.routes = &routeNamer{known: make(map[string]string)}
	}
	if cfg.describes() {
		s.keys = &describer{keys: s.caller, cfg: cfg, ip: httplimit.ClientIP(cfg.Trust),
			header: make(http.Header)}
	}
	return s
}

// scan fills in the content of b.
func (s *scanner) scan(b *block) {
	b.content = content{records: b.records[:0], arena: b.arena[:0], first: math.MaxInt64,
		final: math.MinInt64}
	s.parser.Begin(b.fields)
	for line := range bytes.Lines(b.data) {
		b.lines++
		s.line(b, bytes.TrimSuffix(line, []byte{'\n'}))
	}
}

var errTooLong = fmt.Errorf("the line is over %d KiB", maxLine>>10)

func (s *scanner) line(b *block, line []byte) {
	e, err := &s.entry, errTooLong
	if len(line) <= maxLine {
		err = s.parser.Parse(line, e)
	}
	switch {
	case err == accesslog.ErrDirective:
		b.directives++
		return
	case err != nil:
		b.bad.add(b.lines, line, err)
		return
	case !s.filter.matches(e):
		b.filtered++
		return
	}
	from := len(b.arena)
	b.arena = s.keys.append(b.arena, e)
	if len(b.arena) == from {
		b.unkeyed++
		return
	}
	if s.caller.byAddress() && b.inspected.n < b.inspects() {
		b.inspected.inspect(s.caller, s.parser, e)
	}
	at, m := e.Start, marks(0)
	if s.stays {
		switch {
		case e.Took == accesslog.NoDuration:
			b.untimed++
			return
		case e.Status == http.StatusSwitchingProtocols:
			b.upgraded++
			return
		case e.Coarse:
			at = e.Logged
			if e.AtEnd {
				m |= ended
			}
		}
	}
	if s.statuses {
		m |= statusMarks(e.Status)
	}
	if c := s.filter.CountIf; c != nil && !c.Match(e.Status) {
		m |= uncounted
		b.uncounted++
	}
	if e.Status == http.StatusTooManyRequests {
		m |= answered
	}
	route := ""
	if s.routes != nil {
		route = s.routes.name(e)
	}
	when := stampOf(at, e.Coarse)
	b.records = append(b.records, record{when, uint32(from), uint32(len(b.arena)), m, route, e.Took})
	b.first, b.final = min(b.first, when), max(b.final, when)
	b.coarse = b.coarse || e.Coarse
}

// ports counts the requests that were forwarded for an address with a port.
type ports struct {
	n     uint64
	port  string // of all of them, unless mixed is set
	mixed bool
}

func (p *ports) add(n uint64, port string) {
	if port == "" {
		return
	}
	p.mixed = p.mixed || p.n > 0 && port != p.port
	p.n, p.port = p.n+n, port
}

func (p *ports) merge(o *ports) {
	p.add(o.n, o.port)
	p.mixed = p.mixed || o.mixed
}

// Unreadable describes the lines that could not be read.
type Unreadable struct {
	Count    uint64    `json:"count"`
	Reasons  []Reason  `json:"reasons,omitempty"` // in the order of their first lines
	Examples []Example `json:"examples"`          // the first few, and the first of each reason
}

// Reason counts the lines that could not be read for one reason.
type Reason struct {
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// Example is a line that could not be read.
type Example struct {
	File   string `json:"file"`
	Line   uint64 `json:"line"` // counted from 1
	Reason string `json:"reason"`
	Text   string `json:"text"` // the beginning of the line
}

const (
	maxExamples = 5 // unless there are more reasons
	maxExcerpt  = 160
)

func (u *Unreadable) add(number uint64, line []byte, reason error) {
	e := Example{Line: number, Reason: reason.Error()}
	if isNew := u.count(e.Reason, 1); !isNew && len(u.Examples) >= maxExamples {
		return
	}
	line = bytes.TrimRight(line, "\r\n")
	e.Text = UTF8(string(line[:min(len(line), maxExcerpt)]))
	u.show(e)
}

// count adds n lines for a reason, and reports whether they are the first ones.
func (u *Unreadable) count(reason string, n uint64) (isNew bool) {
	u.Count += n
	for i := range u.Reasons {
		if u.Reasons[i].Reason == reason {
			u.Reasons[i].Count += n
			return false
		}
	}
	u.Reasons = append(u.Reasons, Reason{reason, n})
	return true
}

// show adds an example. If there are too many, it removes the last that is not the first of its
// reason.
func (u *Unreadable) show(e Example) {
	u.Examples = append(u.Examples, e)
	for i := len(u.Examples) - 1; i > 0 && len(u.Examples) > maxExamples; i-- {
		if u.first(u.Examples[i].Reason) < i {
			u.Examples = slices.Delete(u.Examples, i, i+1)
		}
	}
}

// first returns the index of the first example of a reason, which has one.
func (u *Unreadable) first(reason string) int {
	return slices.IndexFunc(u.Examples, func(e Example) bool { return e.Reason == reason })
}

// merge adds the unreadable lines of a block. before is the number of lines of the file that
// precede the block.
func (u *Unreadable) merge(o *Unreadable, file string, before uint64) {
	for _, r := range o.Reasons {
		u.count(r.Reason, r.Count)
	}
	for _, e := range o.Examples {
		e.File = file
		e.Line += before
		u.show(e)
	}
}

// blank returns the number of empty lines, which are no requests.
func (u *Unreadable) blank() uint64 {
	for _, r := range u.Reasons {
		if r.Reason == accesslog.ErrEmpty.Error() {
			return r.Count
		}
	}
	return 0
}

// kinds returns how many lines have each reason, and which is the first of them.
func (u *Unreadable) kinds() string {
	var all []string
	for _, r := range u.Reasons {
		if r.Reason == accesslog.ErrEmpty.Error() {
			continue
		}
		e := u.Examples[u.first(r.Reason)]
		all = append(all, fmt.Sprintf("%d such as %s:%d (%s)", r.Count, e.File, e.Line, r.Reason))
	}
	return strings.Join(all, ", ")
}
