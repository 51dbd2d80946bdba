package fallback

import (
	"context"

	"github.com/weirgo/weir"
)

// Store implements weir.Batcher.
func (f *Fallback) Store() any { return f }

// Batch implements weir.Batcher: the Source of a limit that was decided is that of RunSource.
func (f *Fallback) Batch(ctx context.Context, op weir.Op, limits []*weir.Limit) {
	for _, l := range limits {
		switch op {
		case weir.OpRun:
			res, by, err := f.RunSource(ctx, &l.Request)
			if l.Source, l.Err = by.String(), err; err == nil {
				l.Result = *res
			}
		case weir.OpPeek:
			res, err := f.Peek(ctx, &l.Request)
			if l.Err = err; err == nil {
				l.Result = *res
			}
		case weir.OpRefund:
			l.Err = f.Refund(ctx, &l.Request, &l.Result)
		case weir.OpCharge:
			l.Err = f.Charge(ctx, &l.Request)
		}
	}
}
