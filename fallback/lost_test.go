package fallback_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// lostAnswers is what a history ends with: the terms of the bound that New states.
type lostAnswers struct {
	counted, used uint64
	lost          uint64 // the cost of the calls whose answers were lost
	givenBack     uint64 // of debts that such calls took along, less the debts since
}

// lostHistory has three instances admit, locally and by primary, lose answers and give back what
// they admitted locally, at random.
func lostHistory(t *testing.T, seed uint64, to front) (out lostAnswers) {
	rng := rand.New(rand.NewPCG(seed, 4))
	// the breaker stays closed
	f := newFleet(t, 3, fixedWindow, fallback.Config{MinCalls: 1 << 30}, to)
	r := weir.Request{Key: "a", Limit: 1 << 40, Duration: 24 * time.Hour}
	// that primary has not confirmed; of them, by a call whose answer was lost
	var debts, brought [3]uint64
	var period weir.Result
	take := func(i int) {
		r.Cost = 1 + rng.Uint64N(9)
		res, by := ask(t, f.instances[i], r)
		out.used += r.Cost
		if by == weir.FromLocal {
			debts[i] += r.Cost
			period = res
			return
		}
		// All debts are confirmed now. If fewer are left than were brought, primary is ahead.
		brought[i], debts[i] = brought[i]-min(brought[i], debts[i]), 0
	}
	for range 40 {
		i := rng.IntN(3)
		switch f.server.fails(nil); rng.IntN(5) {
		case 0:
			take(i)
		case 1:
			f.server.losesAnswers()
			brought[i] = max(brought[i], debts[i])
			take(i)
			out.lost += r.Cost
		case 2, 3:
			f.server.fails(errDown)
			take(i)
		case 4:
			if r.Cost = rng.Uint64N(debts[i] + 1); r.Cost > 0 {
				require.NoError(t, ops.Refund(t.Context(), f.instances[i], &r, &period))
				debts[i], out.used = debts[i]-r.Cost, out.used-r.Cost
			}
		}
	}
	f.server.fails(nil)
	r.Cost = r.Limit + 1 // charges the debts, and admits nothing
	for i, instance := range f.instances {
		require.Equal(t, weir.FromPrimary, source(t, instance, r))
		out.givenBack += brought[i] - min(brought[i], debts[i])
	}
	r.Cost = 0
	out.counted = total(t, f.server, r)
	return out
}

// forgetfulOfTotals returns a primary that charges what is sent again as if it had not seen it.
func forgetfulOfTotals(s *server) weir.Strategy {
	var calls atomic.Uint64
	return newAround(s, func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
		b := op.Backlog
		if b != nil {
			own := *b
			own.Source = fmt.Sprint(b.Source, " ", calls.Add(1))
			op.Backlog = &own
		}
		next(ctx, op)
		op.Backlog = b
	})
}

// Primary counts what is used, the cost of the calls whose answers were lost, and what was given
// back of the debts that they took along, until later debts make up for it. The last is more than
// nothing in some histories. One that forgets the totals it has seen counts more.
func TestWhatLostCallsBroughtIsBounded(t *testing.T) {
	for name, row := range map[string]struct {
		to    front
		holds bool
	}{
		"totals are remembered":         {whole, true},
		"control: totals are forgotten": {forgetfulOfTotals, false},
	} {
		t.Run(name, func(t *testing.T) {
			over, given := 0, 0
			for seed := range uint64(slow.N(50, 500, 5000)) {
				h := lostHistory(t, seed, row.to)
				require.GreaterOrEqual(t, h.counted, h.used, "seed %d", seed)
				if bound := h.used + h.lost + h.givenBack; row.holds {
					require.Equal(t, bound, h.counted, "seed %d: every lost call was carried out", seed)
				} else if h.counted > bound {
					over++
				}
				if h.givenBack > 0 {
					given++
				}
			}
			t.Logf("%d over the bound, %d with something given back", over, given)
			assert.Positive(t, given)
			assert.Equal(t, row.holds, over == 0)
		})
	}
}
