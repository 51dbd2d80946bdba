package limits

import (
	"cmp"
	"context"
)

// verdict follows from decisions.
type verdict struct {
	tolerate func(error) bool // see Take
	denied   bool
	err      error // the first that is not tolerated
	failed   error // the first
}

// goesOn adds the decision of m, and reports whether the others are to decide.
func (v *verdict) goesOn(ctx context.Context, m *Attempt) bool {
	if m.Op.Err != nil && v.err == nil && (v.tolerate == nil || !v.tolerate(m.Op.Err)) {
		v.err = m.Op.Err
	}
	v.failed = cmp.Or(v.failed, m.Op.Err)
	if v.failed != nil && v.err == nil && ctx.Err() != nil {
		v.err = v.failed
	}
	v.denied = v.denied || m.Denies() && !m.Advisory
	return !v.denied && v.err == nil
}
