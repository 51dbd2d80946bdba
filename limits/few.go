package limits

import (
	"cmp"
	"context"
	"sync"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/turns"
)

// few are the ops of a decision on at most four Limits that one [weir.OpTakeAll] can decide on.
// [All] and [Decide] try that first.
type few struct {
	ops  [fewLimits]weir.Op
	list [fewLimits]*weir.Op
	most [fewLimits]uint64 // that each count is held against
	n    int
}

const fewLimits = 4

var fews = sync.Pool{New: func() any {
	f := new(few)
	for i := range f.ops {
		op := &f.ops[i]
		op.Verb, f.list[i] = weir.OpTakeAll, op
	}
	return f
}}

// put keeps f for another decision, and nothing of this one.
func (f *few) put() {
	for i := range f.n {
		f.ops[i].Counter, f.ops[i].Key = nil, ""
	}
	f.n = 0
	fews.Put(f)
}

// follows reports whether a Limit of a can be decided on by an OpTakeAll, after one of the others.
func follows(first, a *weir.About) bool {
	return a.Bound && a.Verbs.Has(weir.OpTakeAll) && !a.Waits && a.Store != nil &&
		a.Store == first.Store
}

// add adds a hit of cost by c, for an Outcome that is full or not.
func (f *few) add(c weir.Counter, a *weir.About, key string, cost uint64, full bool) {
	op := &f.ops[f.n]
	op.Counter, op.Key, op.Cost, op.Full = c, key, cost, full
	f.most[f.n] = cmp.Or(a.Burst, a.Numbers.Limit)
	f.n++
}

// take decides on all ops, and reports false where another call is to do so. After a denial the
// counts are without the cost.
func (f *few) take(ctx context.Context) bool {
	if f.n == 0 || turns.IsDue(ctx) {
		return false
	}
	f.ops[0].Counter.Do(ctx, f.list[:f.n])
	if f.ops[0].Err != nil {
		f.ops[0].Err = nil
		return false
	}
	denied := false
	for i := range f.n {
		denied = denied || !f.ops[i].Result.Allowed()
	}
	for i := 0; denied && i < f.n; i++ {
		if op := &f.ops[i]; op.Result.Allowed() {
			op.Result.TotalRequests -= max(1, op.Cost)
		}
	}
	return true
}

// binding returns the place of the op that binds.
func (f *few) binding() (by int) {
	for i := 1; i < f.n; i++ {
		if outweighs(&f.ops[i].Result, &f.ops[by].Result, f.most[i], f.most[by]) {
			by = i
		}
	}
	return by
}
