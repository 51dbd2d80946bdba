package accesslog

import (
	"bytes"
	"time"

	"github.com/weirgo/weir/internal/core/arith"
)

// value is a scalar of a line.
type value struct {
	text   []byte // the contents of a string, or the digits of a number
	str    bool   // it is a string
	ported bool   // it is an address, and its last group is a port
	rank   int    // 0 if the value is missing
}

// object parses a JSON line. It first tries the map that parsed the previous line, then the others.
func (p *Parser) object(line []byte, e *Entry) error {
	if p.maps == nil {
		p.maps = presetTrees
	}
	for i := -1; i < len(p.maps); i++ {
		at := i
		if i < 0 {
			at = p.last
		}
		err := p.walk(p.maps[at], line)
		if err == nil {
			err = p.entry(&p.maps[at].schema, e)
		}
		if err == nil {
			p.last = at
		}
		if err != ErrNoAccess {
			return err
		}
	}
	return ErrNoAccess
}

// walk reads the values of a JSON line.
func (p *Parser) walk(t *tree, line []byte) error {
	p.values = [kinds]value{}
	p.folds = t.folds
	return p.json.whole(line, func() error { return p.below(&t.root) })
}

// below parses the object that belongs to n.
func (p *Parser) below(n *node) error {
	w := &p.json
	return w.object(func(key []byte) error {
		for _, k := range n.kids {
			if string(key) != k.name {
				continue
			}
			switch c := w.peek(); {
			case c == '{' && len(k.kids) > 0:
				return p.below(k)
			case !k.leaf || c == '{':
				return w.skip(0)
			}
			return p.scalar(k)
		}
		if c := w.peek(); p.folds && (c == '"' || c == '[') && maybeForwarded(key) {
			return p.foldable(key, c)
		}
		return w.skip(0)
	})
}

// foldable parses the value of a key that is in no map, and may be a name of a forwarded address.
func (p *Parser) foldable(key []byte, first byte) error {
	text := p.json.text
	if first == '[' {
		text = p.json.list
	}
	value, err := text()
	if err == nil {
		p.fold(key, value)
	}
	return err
}

// fold stores a forwarded address under a name in any spelling, behind those of the map. Other
// fields than X-Forwarded-For must have an address.
func (p *Parser) fold(key, text []byte) {
	rank, known := p.ranks[string(key)]
	if !known {
		rank = forwardedRank(string(key))
		if len(p.ranks) >= maxRanks || p.ranks == nil {
			p.ranks = make(map[string]int)
		}
		p.ranks[string(key)] = rank
	}
	if rank > 0 {
		p.setForwarded(value{text: text, str: true, rank: foldedRank + rank})
	}
}

// foldedRank is above that of a path in a map.
const foldedRank = 1000

// maxRanks bounds the keys whose ranks are known.
const maxRanks = 1024

// setForwarded is set of a field that only by its name is a forwarded address.
func (p *Parser) setForwarded(v value) {
	was := p.values[kindForwarded].rank
	if v.rank%foldedRank > 1 {
		if _, ok := ParseAddress(v.text); !ok {
			return
		}
	}
	if was == 0 || v.rank < was {
		p.set(kindForwarded, v)
	}
}

// scalar parses the value of a leaf. A value of lower rank that was already parsed is kept.
func (p *Parser) scalar(k *node) error {
	w := &p.json
	v := value{rank: k.rank, ported: k.ported}
	var err error
	switch w.peek() {
	case '"':
		v.str = true
		v.text, err = w.text()
	case '[':
		v.str = true
		v.text, err = w.list()
	case 't', 'f', 'n':
		return w.skip(0)
	default:
		v.text, err = w.number()
	}
	if err != nil {
		return err
	}
	p.set(k.kind, v)
	return nil
}

// set stores a value unless it is missing or another path of the kind comes first.
func (p *Parser) set(kind int, v value) {
	was := &p.values[kind]
	if len(v.text) > 0 && string(v.text) != "-" && (was.rank == 0 || v.rank <= was.rank) {
		*was = v
	}
}

// times sets the times of e. It returns false if one of them is invalid.
func (p *Parser) times(f *schema, e *Entry) bool {
	if p.values[kindStart].rank > 0 {
		return p.arrived(f, e)
	}
	return p.ended(f, e)
}

// ended sets the times of e of a line with the time of the end, or of the arrival if it has no
// duration.
func (p *Parser) ended(f *schema, e *Entry) (ok bool) {
	v := &p.values
	e.Logged, e.Coarse, ok = p.clock.instant(v[kindTime])
	if !ok {
		return false
	}
	e.Coarse = e.Coarse && (v[kindTime].str || !f.exact)
	e.Took, ok = span(v[kindDuration], int64(f.unit))
	e.AtEnd = e.Took != NoDuration
	e.Start = e.Logged - max(e.Took, 0)
	if !ok || e.Start < minInstant {
		return false
	}
	if e.Coarse {
		_, rest := arith.FloorDiv(e.Start, int64(time.Second))
		e.Start -= rest
	}
	return true
}

// arrived sets the times of e of a line with the time of the arrival. A duration that is invalid is
// none. Without one it is from the arrival to the end, if the line has that.
func (p *Parser) arrived(f *schema, e *Entry) (ok bool) {
	v := &p.values
	e.Logged, e.Coarse, ok = p.clock.instant(v[kindStart])
	e.Start, e.Took = e.Logged, NoDuration
	if took, ok := span(v[kindDuration], int64(f.unit)); ok && took >= 0 {
		e.Took = took
	} else if end, _, ok := p.clock.instant(v[kindTime]); ok && end >= e.Start &&
		end-e.Start <= maxDuration {
		e.Took = end - e.Start
	}
	return ok
}

// entry fills e from the values.
func (p *Parser) entry(f *schema, e *Entry) error {
	v := &p.values
	v[kindForwarded].text = forwardedList(v[kindForwarded].text)
	if f.standIn && v[kindIP].rank == 0 && v[kindForwarded].rank < foldedRank {
		v[kindIP], v[kindForwarded] = v[kindForwarded], value{}
	}
	for kind, needed := range f.needs {
		if needed && v[kind].rank == 0 {
			return ErrNoAccess
		}
	}
	if date := v[kindDate].text; len(date) > 0 && v[kindDate].rank == v[kindTime].rank {
		p.joined = append(append(append(p.joined[:0], date...), ' '), v[kindTime].text...)
		v[kindTime].text = p.joined
	}
	*e = Entry{User: v[kindUser].text, Method: v[kindMethod].text,
		Status: statusOf(v[kindStatus].text), forwarded: v[kindForwarded].text,
		referer: v[kindReferer].text, agent: v[kindAgent].text}
	if !p.times(f, e) {
		return ErrTime
	}
	e.Path, e.Query = cutQuery(v[kindPath].text)
	if v[kindRequest].rank > 0 && v[kindPath].rank == 0 {
		e.Method, e.Path, e.Query = requestLine(v[kindRequest].text)
	}
	if query := v[kindQuery].text; len(query) > 0 {
		e.Query = query
	}
	ip, ported := v[kindIP].text, v[kindIP].ported
	if ported {
		ip = cutPort(ip)
	}
	if (f.text || ported) && v[kindIP].rank > 0 && !p.address.isAddress(ip) {
		return ErrCaller
	}
	if err := setClient(ip, p.format.Lists, e); err != nil {
		return err
	}
	if bytes.IndexByte(e.IP, ' ') >= 0 || len(e.IP) == 0 && len(ip) > 0 {
		return ErrField
	}
	return nil
}
