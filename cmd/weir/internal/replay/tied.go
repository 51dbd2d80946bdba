package replay

import (
	"cmp"
	"slices"
)

// next returns the next request, like stream.next.
type next func() (ns int64, code uint32, ok bool, err error)

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

// read appends requests to batch, like stream.read.
func (t *tied) read(batch []question) ([]question, error) {
	for len(batch) < cap(batch) {
		ns, code, ok, err := t.hand()
		if err != nil || !ok {
			return batch, err
		}
		batch = append(batch, questionOf(ns, code))
	}
	return batch, nil
}

func (t *tied) advance() (err error) {
	t.ahead.ns, t.ahead.code, t.ahead.ok, err = t.next()
	return err
}

// hand returns the next request.
func (t *tied) hand() (ns int64, code uint32, ok bool, err error) {
	if t.given == len(t.group) {
		if err := t.gather(); err != nil || len(t.group) == 0 {
			return 0, 0, false, err
		}
	}
	t.given++
	return t.at, t.group[t.given-1], true, nil
}

// gather reads the requests of the next instant.
func (t *tied) gather() error {
	if !t.begun {
		t.begun = true
		if err := t.advance(); err != nil {
			return err
		}
	}
	t.at, t.group, t.given = t.ahead.ns, t.group[:0], 0
	for t.ahead.ok && t.ahead.ns == t.at {
		t.group = append(t.group, t.ahead.code)
		if err := t.advance(); err != nil {
			return err
		}
	}
	slices.SortFunc(t.group, func(a, b uint32) int { return cmp.Compare(t.ranks[a>>1], t.ranks[b>>1]) })
	return nil
}
