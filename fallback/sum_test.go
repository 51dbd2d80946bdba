package fallback_test

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/weirtest"
)

// vast counts up to the largest cost there is, for one caller and for ever. It is not
// called at the same time.
type vast struct {
	used uint64
	ends time.Time
}

func (s *vast) About() *weir.About {
	return &weir.About{Of: s, Verbs: weir.VerbsOf(weir.OpTake, weir.OpReturn)}
}

func (s *vast) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, s, r)
}

func (s *vast) Do(_ context.Context, ops []*weir.Op) {
	for _, op := range ops {
		cost := max(1, op.Cost)
		op.Err = nil
		switch {
		case op.Verb == weir.OpReturn:
			s.used -= min(s.used, op.Cost)
		case op.Verb != weir.OpTake:
			op.Err = op.Unsupported(s.About())
		case s.used > op.Limit || cost > op.Limit-s.used:
			op.Result = weir.Result{TotalRequests: s.used, ExpiresAt: s.ends}
		default:
			s.used += cost
			op.Result = weir.Result{State: weir.Allow, TotalRequests: s.used, ExpiresAt: s.ends}
		}
	}
}

// Costs whose sum is over 2^64 are not taken for a small one: what is under way and what local
// admits is never over the limit together, in the order in which the calls fail.
func TestSumsOfCostsDoNotWrap(t *testing.T) {
	for seed := range uint64(slow.N(200, 1000, 20_000)) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 64))
			ends := time.Now().Add(24 * time.Hour)
			a := newAtTheGate(t, &vast{ends: ends}, nil)
			var costs []uint64
			left := map[int]bool{}
			check := func() {
				together, admits := new(big.Int), false
				for i, res := range a.results {
					admitted := res != nil && res.Allowed()
					if admits = admits || admitted; left[i] || admitted {
						together.Add(together, new(big.Int).SetUint64(costs[i]))
					}
				}
				if admits { // calls alone may exceed the limit: primary admits no more than that of them
					assert.LessOrEqual(t, together.Cmp(new(big.Int).SetUint64(math.MaxUint64)), 0, "seed %d", seed)
				}
			}
			for range 2 + rng.IntN(6) {
				cost := []uint64{1, 1 << 63, math.MaxUint64, 1<<63 - 1, rng.Uint64() | 1}[rng.IntN(5)]
				left[len(costs)] = true
				costs = append(costs, cost)
				a.begin(t, weir.Request{Key: "a", Limit: math.MaxUint64, Duration: 24 * time.Hour, Cost: cost}, 1)
			}
			for _, i := range rng.Perm(len(costs)) {
				delete(left, i)
				a.end(errDown, i)
				check()
			}
		})
	}
}

// admitting admits everything.
type admitting struct{}

func (admitting) Run(_ context.Context, r *weir.Request) (*weir.Result, error) {
	return &weir.Result{State: weir.Allow, TotalRequests: r.Cost, ExpiresAt: time.Now().Add(r.Duration)}, nil
}

// What is dropped is counted up to the largest number.
func TestDroppedDoesNotWrap(t *testing.T) {
	f := newFallback(t, weirtest.FailAll(errDown), admitting{}, with(fallback.Config{MaxCallers: 1}))
	for n := range 1000 { // fills every page
		ask(t, f, weir.Request{Key: fmt.Sprint(n), Limit: math.MaxUint64, Duration: time.Hour, Cost: 1 << 63})
	}
	assert.EqualValues(t, uint64(math.MaxUint64), f.Stats().Dropped)
}
