package ops

import (
	"context"

	"github.com/weirgo/weir"
)

// Wrapper is a [weir.Counter] around another one, for fakes. Make one with [Through].
type Wrapper struct {
	Is weir.About // a test may change it before the Wrapper is used

	of weir.Counter
	do func(ctx context.Context, op *weir.Op, next func())
}

// Around returns a Counter of another package around s, which can do what s can.
func Around(s weir.Strategy) weir.Counter {
	return Without(s)
}

// Without returns s, which cannot do verbs.
func Without(s weir.Strategy, verbs ...weir.Verb) *Wrapper {
	w := Through(s, func(_ context.Context, _ *weir.Op, next func()) { next() })
	w.Is.Verbs &^= weir.VerbsOf(verbs...)
	return w
}

// Through returns a Wrapper of s: do does each op that it can do, or calls next, which is what s
// does.
func Through(s weir.Strategy, do func(ctx context.Context, op *weir.Op, next func())) *Wrapper {
	w := &Wrapper{of: weir.CounterOf(s), do: do}
	w.Is = *w.of.About().By(w)
	return w
}

// Afar returns s as in another process, of which nobody knows when a place is released: places are
// renewed.
func Afar(s weir.Strategy) *Wrapper {
	type away struct{ weir.Receipt }
	w := Through(s, func(_ context.Context, op *weir.Op, next func()) {
		place, ok := op.Receipt.Of.(away)
		if ok {
			op.Receipt = place.Receipt
		}
		next()
		if ok || op.Verb == weir.OpHold && op.Err == nil && op.Result.Allowed() {
			op.Receipt = weir.Receipt{Of: away{op.Receipt}}
		}
	})
	w.Is.Limiter = nil
	return w
}

// About implements [weir.Counter].
func (w *Wrapper) About() *weir.About { return &w.Is }

// Run implements [weir.Strategy].
func (w *Wrapper) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, w, r)
}

// Do implements [weir.Counter].
func (w *Wrapper) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		if !w.Is.Verbs.Has(op.Verb) {
			op.Err = op.Unsupported(&w.Is)
			continue
		}
		counter := op.Counter
		op.Counter = w.of
		w.do(ctx, op, func() { w.of.Do(ctx, []*weir.Op{op}) })
		op.Counter = counter
	}
}
