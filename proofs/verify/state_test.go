package verify

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// Every strategy matches its model request by request, with sweeps in between.
func TestStrategiesEqualTheirModels(t *testing.T) {
	checks(t, slow.N(25, 300, 100_000))
	for _, s := range subjects() {
		t.Run(s.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				now := rapid.SampledFrom(starts).Draw(t, "start")
				clock := func() time.Time { return at(now) }
				l, err := weir.New(weir.Config{Now: clock, Timeout: 1, SweepEvery: still})
				require.NoError(t, err)
				defer l.Close()
				strategy := s.make(l, clock)
				models := map[string]model{}
				scale := rapid.SampledFrom([]int64{1, 7, 10}).Draw(t, "scale")
				limit := rapid.Int64Range(1, 5).Draw(t, "limit")
				for range rapid.IntRange(1, 40).Draw(t, "asks") {
					now += rapid.Int64Range(0, 6).Draw(t, "pause")
					if rapid.Bool().Draw(t, "sweep") {
						l.Sweep()
					}
					a := ask{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id"), scale, limit,
						rapid.Int64Range(1, 6).Draw(t, "cost")}
					if models[a.id] == nil {
						models[a.id] = s.model
					}
					peeked, err := ops.Peek(context.Background(), strategy, a.request())
					require.NoError(t, err)
					if got := answerOf(peeked); !answered(models[a.id], now, a, got) {
						t.Fatalf("at %d Peek(%+v) = %+v, which %+v does not say", now, a, got, models[a.id])
					}
					res, err := strategy.Run(context.Background(), a.request())
					require.NoError(t, err)
					next, ok := gives(models[a.id], now, a, answerOf(res))
					if !ok {
						t.Fatalf("at %d Run(%+v) = %+v, which %+v does not say", now, a, answerOf(res), models[a.id])
					}
					models[a.id] = next
				}
			})
		})
	}
}

func answered(m model, now int64, a ask, got answer) bool {
	_, ok := gives(m, now, a, got)
	return ok
}
