package fallback

import (
	"context"
	"slices"

	"github.com/weirgo/weir"
)

// join reports whether the calls of primary of ops may be one.
func join(ops []*weir.Op) bool {
	verbs := weir.VerbsOf(weir.OpTake, weir.OpPeek, weir.OpReturn, weir.OpCharge)
	return !slices.ContainsFunc(ops, func(op *weir.Op) bool { return !verbs.Has(op.Verb) })
}

// together does ops of Fallbacks on primaries of one Store, with one Timeout. Each is decided as by
// itself, but the calls of the primaries are one.
func together(ctx context.Context, f *Fallback, ops []*weir.Op) {
	var all, called []*part
	defer func() {
		for _, p := range all {
			p.v.end()
		}
	}()
	for _, op := range ops {
		v := f.of(op).begin(ctx, op)
		if v == nil {
			continue
		}
		p := &part{v: v, end: errUndecided}
		all = append(all, p)
		if v.f.server.permits(v.judge, v.r.Key) {
			called = append(called, p)
		}
	}
	if len(called) > 0 {
		f.server.Call(ctx, called, func(ctx context.Context) { doTogether(ctx, called) })
	}
	for _, p := range all {
		res, err := p.outcome()
		p.v.task.finish(ctx, res, err)
	}
}

// doTogether has the primaries of all parts do the ops of the visits, in one call. One that is to
// catch up step by step does so afterwards.
func doTogether(ctx context.Context, all []*part) {
	defer func() {
		for _, p := range all {
			if p.res == nil {
				p.v.failed()
			}
		}
	}()
	var ops []*weir.Op
	for _, p := range all {
		p.op = p.v.ask()
		if !p.v.catchesUp(p.op) {
			ops = append(ops, p.op)
		}
	}
	if len(ops) > 0 {
		ops[0].Counter.Do(ctx, ops)
	}
	for _, p := range all {
		if p.v.catchesUp(p.op) {
			p.res, p.err = p.v.byStep(ctx, p.op)
		} else {
			p.res, p.err = p.v.answer(ctx, p.op)
		}
	}
}
