package limits

import (
	"cmp"
	"context"
	"sync"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/turns"
)

// few are the ops of a decision on at most four Limits that one [weir.OpTakeAll] can decide on:
// what [All] and [Decide] try first.
type few struct {
	ops    [4]weir.Op
	list   [4]*weir.Op
	abouts [4]*weir.About
	n      int
}

var fews = sync.Pool{New: func() any {
	f := new(few)
	for i := range f.ops {
		f.list[i] = &f.ops[i]
	}
	return f
}}

// put keeps f for another decision, and nothing of this one.
func (f *few) put() {
	for i := range f.n {
		op := &f.ops[i]
		op.Counter, op.Key, op.Full = nil, "", false
		f.abouts[i] = nil
	}
	f.n = 0
	fews.Put(f)
}

// add adds a hit of cost by c. It reports false where that may not be decided with the others, or
// is on one count with another.
func (f *few) add(c weir.Counter, a *weir.About, key string, cost uint64) bool {
	if f.n == len(f.ops) || !a.Bound || !a.Verbs.Has(weir.OpTakeAll) || a.Waits || a.Store == nil {
		return false
	}
	for i := range f.n {
		same := f.ops[i].Key == key && (f.abouts[i] == a || f.abouts[i].Counts == a.Counts)
		if same || f.abouts[i].Store != a.Store {
			return false
		}
	}
	op := &f.ops[f.n]
	op.Counter, op.Verb, op.Key, op.Cost = c, weir.OpTakeAll, key, cost
	f.abouts[f.n] = a
	f.n++
	return true
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
		if outweighs(&f.ops[i].Result, &f.ops[by].Result, f.most(i), f.most(by)) {
			by = i
		}
	}
	return by
}

// most returns what the count of an op is held against.
func (f *few) most(i int) uint64 {
	return cmp.Or(f.abouts[i].Burst, f.abouts[i].Numbers.Limit)
}
