package fallback_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/near"
)

// BenchmarkRun measures the cost that a Fallback adds to a decision, on 10,000 keys. "nothing" is
// the in-memory primary alone; "prompt" is one that is called without a goroutine. For comparison,
// a round trip to a Redis on the same machine takes some 20 µs.
func BenchmarkRun(b *testing.B) {
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = "caller " + strconv.Itoa(i)
	}
	denied := denying{}
	for _, row := range []struct {
		name    string
		primary weir.Strategy
		cfg     fallback.Config
		by      weir.Source
		limit   uint64
	}{
		{"nothing", local(b), fallback.Config{}, weir.Nowhere, 1 << 40},
		{"healthy", local(b), fallback.Config{}, weir.FromPrimary, 1 << 40},
		{"prompt", prompt{local(b)}, fallback.Config{}, weir.FromPrimary, 1 << 40},
		{"healthy/share", local(b), fallback.Config{Instances: 3}, weir.FromPrimary, 1 << 40},
		{"healthy/cold", bare{local(b)}, fallback.Config{OnFail: fallback.FailOpen}, weir.FromPrimary,
			1 << 40},
		{"open", failing{}, fallback.Config{MinCalls: 1, Stall: -1, ProbeInterval: time.Hour},
			weir.FromLocal, 1 << 40},
		{"lease", near.NewLeases(local(b), near.LeaseConfig{Block: 1000}), fallback.Config{},
			weir.FromLease, 1 << 40},
		{"denied", near.NewDenials(denied, near.DenialsConfig{Size: 1 << 16}), fallback.Config{},
			weir.FromDenials, 1},
	} {
		b.Run(row.name, func(b *testing.B) {
			f := newFallback(b, row.primary, local(b), row.cfg)
			r := weir.Request{Limit: row.limit, Duration: time.Hour}
			ran := func() weir.Source {
				if row.by == weir.Nowhere {
					_, err := row.primary.Run(context.Background(), &r)
					require.NoError(b, err)
					return weir.Nowhere
				}
				_, by, err := runSource(context.Background(), f, &r)
				require.NoError(b, err)
				return by
			}
			for _, k := range keys {
				r.Key = k
				ran()
			}
			var wrong, i int
			b.ReportAllocs()
			for b.Loop() {
				r.Key = keys[i%len(keys)]
				if ran() != row.by {
					wrong++
				}
				i++
			}
			require.LessOrEqual(b, wrong, i/10+1, "decided by another than %v", row.by)
		})
	}
}

// prompt is a primary whose calls need no goroutine.
type prompt struct{ weir.Strategy }

var aboutPrompt = &weir.About{Verbs: weir.VerbsOf(weir.OpTake), Prompt: true}

func (p prompt) About() *weir.About { return aboutPrompt }

func (p prompt) Do(ctx context.Context, ops []*weir.Op) { doRun(ctx, p, ops) }

// doRun does ops by the Run of a Counter that can do nothing else.
func doRun(ctx context.Context, c weir.Counter, ops []*weir.Op) {
	for _, op := range ops {
		if op.Verb != weir.OpTake || op.Keep || op.Backlog != nil {
			op.Err = op.Unsupported(c.About())
			continue
		}
		res, err := c.Run(ctx, &op.Request)
		op.Err = err
		if err == nil {
			op.Result = *res
		}
	}
}

// denying denies every request without other work.
type denying struct{}

func (denying) Run(_ context.Context, r *weir.Request) (*weir.Result, error) {
	return &weir.Result{TotalRequests: r.Limit, ExpiresAt: time.Now().Add(time.Hour)}, nil
}

// failing fails every request without other work.
type failing struct{}

func (failing) Run(context.Context, *weir.Request) (*weir.Result, error) { return nil, errDown }
