package replay

import (
	"cmp"
	"slices"
)

// next returns the next request, like stream.next.
type next func() (ns int64, code uint32, ok bool)

// tied returns the requests of next, those of one instant in the order of the ranks of their
// descriptions. Where callers share a counter the first one gets the last free unit, and the
// numbers of descriptions depend on the order of the lines.
type tied struct {
	next  next
	ranks []uint32
	group []uint32 // the codes of one instant
	given int      // codes of group that were returned
	at    int64    // the group's instant
	ahead struct { // the first request after the group
		ns   int64
		code uint32
		ok   bool
	}
	begun bool
}

func (t *tied) advance() { t.ahead.ns, t.ahead.code, t.ahead.ok = t.next() }

// hand returns the next request.
func (t *tied) hand() (ns int64, code uint32, ok bool) {
	if t.given == len(t.group) {
		if t.gather(); len(t.group) == 0 {
			return 0, 0, false
		}
	}
	t.given++
	return t.at, t.group[t.given-1], true
}

// gather reads the requests of the next instant.
func (t *tied) gather() {
	if !t.begun {
		t.begun = true
		t.advance()
	}
	t.at, t.group, t.given = t.ahead.ns, t.group[:0], 0
	for t.ahead.ok && t.ahead.ns == t.at {
		t.group = append(t.group, t.ahead.code)
		t.advance()
	}
	slices.SortFunc(t.group, func(a, b uint32) int { return cmp.Compare(t.ranks[a>>1], t.ranks[b>>1]) })
}
