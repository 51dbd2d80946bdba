package replay

import (
	"bytes"
	"fmt"
	"math"
	"net/http"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/crawler"
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
	inspected    uint64 // records of which hidden is known: to look at all would take a tenth longer
	hidden       uint64 // records whose client seems to be behind the peer
	coarse       bool   // some of the records have whole seconds
	bad          Unreadable
}

// record is a request to decide on.
type record struct {
	at       stamp
	from, to uint32 // the caller's key in the block's arena
	marks    marks
}

// stamp is a time that can be compared: twice the nanoseconds since the Unix epoch, plus one if the
// log gives more than whole seconds. So requests with whole seconds come first in their second.
type stamp int64

func (s stamp) nanoseconds() int64 { return int64(s >> 1) }

// maxInspected bounds the records of a block that are inspected.
const maxInspected = 64

// scanner parses lines into records. Each goroutine has its own.
type scanner struct {
	parser *accesslog.Parser
	filter *Filter
	keys   interface {
		append(dst []byte, e *accesslog.Entry) []byte
	}
	caller *keyer
	entry  accesslog.Entry

	looks    bool // for crawlers
	crawlers crawler.Memo
}

func newScanner(cfg *Config) *scanner {
	format := cfg.Format
	format.NoTarget = !cfg.describes() && cfg.Filter.Routes == nil &&
		cfg.By != ByPath && cfg.By != ByIPPath
	s := &scanner{parser: accesslog.NewParser(format), filter: &cfg.Filter, caller: newKeyer(cfg),
		looks: cfg.Crawlers}
	s.keys = s.caller
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
	for rest := b.data; len(rest) > 0; {
		line := rest
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			line, rest = rest[:end], rest[end+1:]
		} else {
			rest = nil
		}
		b.lines++
		s.line(b, line)
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
	if b.arena = s.keys.append(b.arena, e); len(b.arena) == from {
		b.unkeyed++
		return
	}
	if b.inspected < maxInspected {
		b.inspected++
		if s.caller.hidesClient(e) {
			b.hidden++
		}
	}
	at, m := stamp(e.Start*2), marks(0)
	if !e.Coarse {
		at++
	}
	if c := s.filter.CountIf; c != nil && !c.Match(e.Status) {
		m |= uncounted
		b.uncounted++
	}
	if e.Status == http.StatusTooManyRequests {
		m |= answered
	}
	if s.looks && e.Crawler(&s.crawlers) {
		m |= crawled
	}
	b.records = append(b.records, record{at, uint32(from), uint32(len(b.arena)), m})
	b.first, b.final = min(b.first, at), max(b.final, at)
	b.coarse = b.coarse || e.Coarse
}

// Unreadable describes the lines that could not be read.
type Unreadable struct {
	Count    uint64    `json:"count"`
	Examples []Example `json:"examples"` // the first few
}

// Example is a line that could not be read.
type Example struct {
	File   string `json:"file"`
	Line   uint64 `json:"line"` // counted from 1
	Reason string `json:"reason"`
	Text   string `json:"text"` // the beginning of the line
}

const (
	maxExamples = 5
	maxExcerpt  = 160
)

func (u *Unreadable) add(number uint64, line []byte, reason error) {
	u.Count++
	if len(u.Examples) == maxExamples {
		return
	}
	line = bytes.TrimRight(line, "\r\n")
	text := UTF8(string(line[:min(len(line), maxExcerpt)]))
	u.Examples = append(u.Examples, Example{Line: number, Reason: reason.Error(), Text: text})
}

// merge adds the unreadable lines of a block. before is the number of lines of the file that
// precede the block.
func (u *Unreadable) merge(o *Unreadable, file string, before uint64) {
	u.Count += o.Count
	for _, e := range o.Examples {
		if len(u.Examples) == maxExamples {
			return
		}
		e.File = file
		e.Line += before
		u.Examples = append(u.Examples, e)
	}
}

// why returns the first example of a file, as the end of a sentence.
func (u *Unreadable) why(file string) string {
	for _, e := range u.Examples {
		if e.File == file {
			return fmt.Sprintf("; line %d: %s: %q", e.Line, e.Reason, e.Text)
		}
	}
	return ""
}
