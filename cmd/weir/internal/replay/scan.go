package replay

import (
	"bytes"
	"fmt"
	"hash/maphash"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
)

// block is a piece of a file, and what its lines say.
type block struct {
	buf    []byte // blockSize
	data   []byte // whole lines
	source *source
	last   bool          // of its source
	err    error         // of reading
	parsed chan struct{} // receives when the rest is set

	records  []record
	arena    []byte // the keys of records: entries are in the parser's memory
	lines    uint64
	filtered uint64
	unkeyed  uint64
	coarse   bool // some of the records are
	bad      Unreadable
}

// record is a request that is to be decided on.
type record struct {
	at        stamp
	hash      uint64 // of the key
	from, to  uint32 // the key in the block's arena
	uncounted bool   // its status does not count
}

// stamp is a time that can be compared: twice the nanoseconds since the Unix epoch, and one more if the log has more than
// whole seconds. So the requests of a second that only have the second come before the others.
type stamp int64

func stampOf(e *accesslog.Entry) stamp {
	if e.Coarse {
		return stamp(e.Start * 2)
	}
	return stamp(e.Start*2 + 1)
}

func (s stamp) nanoseconds() int64 { return int64(s >> 1) }

// scanner makes records of lines. Each goroutine has its own.
type scanner struct {
	parser *accesslog.Parser
	filter *Filter
	keys   interface {
		append(dst []byte, e *accesslog.Entry) []byte
	}
	entry accesslog.Entry
	seed  maphash.Seed
}

func newScanner(cfg *Config, seed maphash.Seed) *scanner {
	s := &scanner{parser: accesslog.NewParser(cfg.Format), filter: &cfg.Filter, seed: seed}
	if cfg.RuleSet != nil {
		s.keys = newDescriber(cfg)
	} else {
		s.keys = newKeyer(cfg.By, cfg.IPv6Bits)
	}
	return s
}

// scan fills in what the lines of b say.
func (s *scanner) scan(b *block) {
	b.records, b.arena, b.bad.Examples = b.records[:0], b.arena[:0], nil
	b.lines, b.filtered, b.unkeyed, b.bad.Count, b.coarse = 0, 0, 0, 0, false
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
	if err != nil {
		b.bad.add(b.lines, line, err)
		return
	}
	if !s.filter.matches(e) {
		b.filtered++
		return
	}
	from := len(b.arena)
	b.arena = s.keys.append(b.arena, e)
	key := b.arena[from:]
	if len(key) == 0 {
		b.unkeyed++
		return
	}
	b.coarse = b.coarse || e.Coarse
	b.records = append(b.records, record{at: stampOf(e), hash: maphash.Bytes(s.seed, key),
		from: uint32(from), to: uint32(len(b.arena)), uncounted: !s.filter.counts(e)})
}

// Unreadable are the lines that are not of an access log.
type Unreadable struct {
	Count    uint64
	Examples []Example // the first few
}

// Example is a line that could not be read.
type Example struct {
	File   string
	Line   uint64 // from 1
	Reason string
	Text   string // its beginning; any bytes
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
	text := string(line[:min(len(line), maxExcerpt)])
	u.Examples = append(u.Examples, Example{Line: number, Reason: reason.Error(), Text: text})
}

// merge adds what was found in the lines of a file that come after the first `before`.
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

// why returns the first example of a file as the end of a sentence.
func (u *Unreadable) why(file string) string {
	for _, e := range u.Examples {
		if e.File == file {
			return fmt.Sprintf("; line %d: %s: %q", e.Line, e.Reason, e.Text)
		}
	}
	return ""
}
