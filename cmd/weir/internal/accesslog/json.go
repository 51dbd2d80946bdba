package accesslog

import (
	"bytes"
	"slices"
	"strings"
	"time"
)

// The parts of a request that a JSON line can have.
const (
	slotTime = iota
	slotDuration
	slotIP
	slotUser
	slotMethod
	slotPath
	slotStatus
	slotRequest
	slots
)

// tree is a Map in the form that the walker needs: the keys of an object and, below them, the keys
// of nested objects.
type tree struct {
	root  node
	unit  time.Duration
	exact bool
	needs [slots]bool // the slots that a request must have
}

type node struct {
	name string
	kids []*node
	leaf bool
	slot int
	rank int // among the paths of slot, from 1; the lowest rank wins
}

func newTree(m Map) *tree {
	t := &tree{unit: m.DurationUnit, exact: m.exact}
	if t.unit == 0 {
		t.unit = time.Second
	}
	t.needs[slotTime], t.needs[slotIP] = true, len(m.IP) > 0
	for slot, paths := range [slots][]string{slotTime: m.Time, slotDuration: m.Duration, slotIP: m.IP,
		slotUser:   m.User,
		slotMethod: m.Method, slotPath: m.Path, slotStatus: m.Status, slotRequest: m.Request} {
		for i, path := range paths {
			n := &t.root
			for name := range strings.SplitSeq(path, ".") {
				n = n.kid(name)
			}
			n.leaf, n.slot, n.rank = true, slot, i+1
		}
	}
	return t
}

// kid returns the child of n with that name, and adds it if it does not exist.
func (n *node) kid(name string) *node {
	if i := slices.IndexFunc(n.kids, func(k *node) bool { return k.name == name }); i >= 0 {
		return n.kids[i]
	}
	n.kids = append(n.kids, &node{name: name})
	return n.kids[len(n.kids)-1]
}

// value is a scalar of a line.
type value struct {
	text []byte // the contents of a string, or the digits of a number
	str  bool   // it is a string
	rank int    // 0 if the value is missing
}

// object parses a JSON line. It first tries the map that parsed the previous line, then the others.
func (p *Parser) object(line []byte, e *Entry) error {
	if p.maps == nil {
		p.maps = presetTrees
	}
	err := p.objectBy(p.maps[p.last], line, e)
	if err != ErrNoAccess || len(p.maps) == 1 {
		return err
	}
	for i, t := range p.maps {
		if i == p.last {
			continue
		}
		if other := p.objectBy(t, line, e); other != ErrNoAccess {
			if other == nil {
				p.last = i
			}
			return other
		}
	}
	return err
}

func (p *Parser) objectBy(t *tree, line []byte, e *Entry) error {
	p.values = [slots]value{}
	p.json.reset(line)
	if err := p.fields(&t.root); err != nil {
		return err
	}
	if err := p.json.end(); err != nil {
		return err
	}
	for slot, needed := range t.needs {
		if needed && p.values[slot].rank == 0 {
			return ErrNoAccess
		}
	}
	return p.entry(t, e)
}

// fields parses the object that belongs to n.
func (p *Parser) fields(n *node) error {
	w := &p.json
	return w.object(func(key []byte) error {
		for _, k := range n.kids {
			if string(key) != k.name {
				continue
			}
			switch c := w.peek(); {
			case c == '{' && len(k.kids) > 0:
				return p.fields(k)
			case !k.leaf || c == '{' || c == '[':
				return w.skip(0)
			}
			return p.scalar(k)
		}
		return w.skip(0)
	})
}

// scalar parses the value of a leaf. A value of lower rank that was already parsed is kept.
func (p *Parser) scalar(k *node) error {
	w, was := &p.json, &p.values[k.slot]
	v := value{rank: k.rank}
	var err error
	switch w.peek() {
	case '"':
		v.str = true
		err = w.text(&v.text)
	case 't', 'f', 'n':
		return w.skip(0)
	default:
		v.text, err = w.number()
	}
	if err != nil {
		return err
	}
	if len(v.text) > 0 && string(v.text) != "-" && (was.rank == 0 || v.rank <= was.rank) {
		*was = v
	}
	return nil
}

// entry fills e from the values.
func (p *Parser) entry(t *tree, e *Entry) error {
	v := &p.values
	end, coarse, ok := p.instant(v[slotTime])
	if !ok {
		return ErrTime
	}
	coarse = coarse && (v[slotTime].str || !t.exact)
	took, ok := span(v[slotDuration], int64(t.unit))
	if !ok {
		return ErrTime
	}
	start := end - took
	if start < minInstant {
		return ErrTime
	}
	if coarse {
		_, rest := floorMod(start, int64(time.Second))
		start -= rest
	}
	ip := withoutPort(v[slotIP].text)
	if bytes.IndexByte(ip, ' ') >= 0 {
		return ErrField
	}
	*e = Entry{Start: start, Coarse: coarse, IP: ip, User: v[slotUser].text, Method: v[slotMethod].text,
		Status: statusOf(v[slotStatus].text)}
	if e.Path, e.Query = cutQuery(v[slotPath].text); v[slotRequest].rank > 0 && v[slotPath].rank == 0 {
		e.Method, e.Path, e.Query = requestLine(v[slotRequest].text)
	}
	return nil
}

// withoutPort removes the port from addresses such as 1.2.3.4:56 and [::1]:56, and the brackets.
func withoutPort(addr []byte) []byte {
	if len(addr) > 0 && addr[0] == '[' {
		if i := bytes.IndexByte(addr, ']'); i > 0 {
			return addr[1:i]
		}
		return addr
	}
	if i := bytes.IndexByte(addr, ':'); i >= 0 && bytes.IndexByte(addr[i+1:], ':') < 0 {
		return addr[:i]
	}
	return addr
}
