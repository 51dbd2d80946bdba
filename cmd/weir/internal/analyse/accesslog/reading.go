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

// reading is what a line says, before it is an Entry, and what is known from the lines before it.
type reading struct {
	values  [kinds]value
	json    walker
	clock   clock
	address cachedAddress
	ranks   map[string]int // of forwardedRank, by the keys that were seen
	joined  []byte         // a date and a time
	folds   bool           // of the tree that the line is read by
	lists   bool           // see Format.Lists
}

// walk reads the values of a JSON line.
func (r *reading) walk(t *tree, line []byte) error {
	r.values = [kinds]value{}
	r.folds = t.folds
	return r.json.whole(line, func() error { return r.below(&t.root) })
}

// below parses the object that belongs to n.
func (r *reading) below(n *node) error {
	w := &r.json
	return w.object(func(key []byte) error {
		for _, k := range n.kids {
			if string(key) != k.name {
				continue
			}
			switch c := w.peek(); {
			case c == '{' && len(k.kids) > 0:
				return r.below(k)
			case !k.leaf || c == '{':
				return w.skip(0)
			}
			return r.scalar(k)
		}
		if c := w.peek(); r.folds && (c == '"' || c == '[') && maybeForwarded(key) {
			return r.foldable(key, c)
		}
		return w.skip(0)
	})
}

// foldable parses the value of a key that is in no map, and may be a name of a forwarded address.
func (r *reading) foldable(key []byte, first byte) error {
	text := r.json.text
	if first == '[' {
		text = r.json.list
	}
	value, err := text()
	if err == nil {
		r.fold(key, value)
	}
	return err
}

// fold stores a forwarded address under a name in any spelling, behind those of the map. Other
// fields than X-Forwarded-For must have an address.
func (r *reading) fold(key, text []byte) {
	rank, known := r.ranks[string(key)]
	if !known {
		rank = forwardedRank(string(key))
		if len(r.ranks) >= maxRanks || r.ranks == nil {
			r.ranks = make(map[string]int)
		}
		r.ranks[string(key)] = rank
	}
	if rank > 0 {
		r.setForwarded(value{text: text, str: true, rank: foldedRank + rank})
	}
}

// foldedRank is above that of a path in a map.
const foldedRank = 1000

// maxRanks bounds the keys whose ranks are known.
const maxRanks = 1024

// setForwarded is set of a field that only by its name is a forwarded address.
func (r *reading) setForwarded(v value) {
	was := r.values[kindForwarded].rank
	if v.rank%foldedRank > 1 {
		if _, ok := ParseAddress(v.text); !ok {
			return
		}
	}
	if was == 0 || v.rank < was {
		r.set(kindForwarded, v)
	}
}

// scalar parses the value of a leaf. A value of lower rank that was already parsed is kept.
func (r *reading) scalar(k *node) error {
	w := &r.json
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
	r.set(k.kind, v)
	return nil
}

// set stores a value unless it is missing or another path of the kind comes first.
func (r *reading) set(kind int, v value) {
	was := &r.values[kind]
	if len(v.text) > 0 && string(v.text) != "-" && (was.rank == 0 || v.rank <= was.rank) {
		*was = v
	}
}

// times sets the times of e. It returns false if one of them is invalid.
func (r *reading) times(f *schema, e *Entry) bool {
	if r.values[kindStart].rank > 0 {
		return r.arrived(f, e)
	}
	return r.ended(f, e)
}

// ended sets the times of e of a line with the time of the end, or of the arrival if it has no
// duration.
func (r *reading) ended(f *schema, e *Entry) (ok bool) {
	v := &r.values
	e.Logged, e.Coarse, ok = r.clock.instant(v[kindTime])
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
func (r *reading) arrived(f *schema, e *Entry) (ok bool) {
	v := &r.values
	e.Logged, e.Coarse, ok = r.clock.instant(v[kindStart])
	e.Start, e.Took = e.Logged, NoDuration
	if took, ok := span(v[kindDuration], int64(f.unit)); ok && took >= 0 {
		e.Took = took
	} else if end, _, ok := r.clock.instant(v[kindTime]); ok && end >= e.Start &&
		end-e.Start <= maxDuration {
		e.Took = end - e.Start
	}
	return ok
}

// entry fills e from the values.
func (r *reading) entry(f *schema, e *Entry) error {
	v := &r.values
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
		r.joined = append(append(append(r.joined[:0], date...), ' '), v[kindTime].text...)
		v[kindTime].text = r.joined
	}
	*e = Entry{User: v[kindUser].text, Method: v[kindMethod].text,
		Status: statusOf(v[kindStatus].text), forwarded: v[kindForwarded].text,
		referer: v[kindReferer].text, agent: v[kindAgent].text}
	if !r.times(f, e) {
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
	if (f.text || ported) && v[kindIP].rank > 0 && !r.address.isAddress(ip) {
		return ErrCaller
	}
	if err := setClient(ip, r.lists, e); err != nil {
		return err
	}
	if bytes.IndexByte(e.IP, ' ') >= 0 || len(e.IP) == 0 && len(ip) > 0 {
		return ErrField
	}
	return nil
}
