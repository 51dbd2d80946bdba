package verbtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/weirtest"
)

// Decide is limits.Decide, or one that is to be rejected.
type Decide func(ctx context.Context, asks ...weir.Ask) (weir.Outcome, error)

// Stores returns the strategies of a store on a clock. Their names are those of the model.
type Stores func(now func() time.Time) []weir.Strategy

// Tiers returns the strategy "tiers" of a limiter or of a store.
func Tiers[T weir.Strategy](s interface {
	Tiers(tiers ...weir.Tier) T
}) weir.Strategy {
	return s.Tiers(tiers...)
}

// Decisions makes steps random decisions, of one to five asks each, no two of them on one count,
// and returns the first difference from the model. remote says that the strategies run before all
// are known to admit, so that a request that is denied may begin a period.
func Decisions(source Stores, decide Decide, remote bool, seed uint64, steps int) error {
	random, clock := rand.New(rand.NewPCG(seed, 0)), weirtest.NewClock(begin)
	strategies, m := source(clock.Now), &model{map[caller]counted{}, remote}
	for step := range steps {
		var asks []weir.Ask
		for i := range min(random.IntN(5)+1, len(strategies)) {
			asks = append(asks, weir.Ask{Strategy: strategies[(step+i)%len(strategies)],
				Request: weir.Request{
					Key: strconv.Itoa(random.IntN(3)), Limit: random.Uint64N(9), Cost: random.Uint64N(4),
					Duration: time.Duration(random.IntN(2)*2+1) * time.Second,
				}})
		}
		allowed, each, totals := m.decide(clock.Now().UnixNano(), asks)
		out, err := decide(context.Background(), asks...)
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		if out.Allowed() != allowed {
			return fmt.Errorf("step %d: %+v of %+v: want %v, %v, %v", step, out, asks, allowed, each, totals)
		}
		for i, a := range asks {
			want, name := totals[i], ops.Name(a.Strategy)
			if allowed {
				want += max(1, int64(a.Request.Cost))
			}
			if n, err := onRecord(a); err != nil || name != "tiers" && int64(n) != want {
				return fmt.Errorf("step %d: ask %d, %s of %+v: %d are counted, want %d, %w", step, i, name,
					a.Request, n, want, err)
			}
		}
		if err := checkBinding(out, asks); err != nil {
			return fmt.Errorf("step %d: %+v: %w", step, out, err)
		}
		clock.Advance(time.Duration(int64(random.IntN(3))*random.Int64N(700)) * time.Millisecond)
		if random.IntN(20) == 0 {
			clock.Advance(time.Duration(random.Int64N(hour)))
		}
	}
	return nil
}

// onRecord returns how much is counted on a.
func onRecord(a weir.Ask) (n uint64, err error) {
	a.Request.Cost = 1
	res, err := ops.Peek(context.Background(), a.Strategy, &a.Request)
	if err != nil {
		return 0, err
	}
	return res.TotalRequests - uint64(res.State), nil
}

// checkBinding returns how out is of another of asks than the one that binds. Time stands still
// since the decision.
func checkBinding(out weir.Outcome, asks []weir.Ask) error {
	if !out.Allowed() {
		for i, a := range asks {
			res, err := ops.Peek(context.Background(), a.Strategy, &a.Request)
			switch {
			case err != nil:
				return err
			case !res.Allowed() && !out.ExpiresAt.IsZero() &&
				(res.ExpiresAt.IsZero() || res.ExpiresAt.After(out.ExpiresAt)):
				return fmt.Errorf("ask %d is denied for longer", i)
			}
		}
		return nil
	}
	for i, a := range asks {
		n, err := onRecord(a)
		switch {
		case err != nil:
			return err
		case ops.Name(a.Strategy) != "tiers" && a.Request.Limit-n < out.Left:
			return fmt.Errorf("ask %d has less left", i)
		}
	}
	return nil
}

// Concurrently has 64 callers decide on overlapping asks while time stands still, and returns what
// is wrong: a count that exceeds its limit at some instant, or that is not what was admitted once
// all is over.
func Concurrently(source Stores, decide Decide, each int) error {
	strategies := source(weirtest.NewClock(begin).Now)
	var admitted [10]atomic.Uint64 // by key: 8 users of 2 organisations
	ask := func(key int, cost uint64) weir.Ask {
		limit := uint64(40)
		if key >= 8 {
			limit = 120
		}
		return weir.Ask{Strategy: strategies[key%len(strategies)], Request: weir.Request{
			Key: "key " + strconv.Itoa(key), Limit: limit, Cost: cost, Duration: time.Hour}}
	}
	ctx, done := context.WithCancelCause(context.Background())
	var callers, observer sync.WaitGroup
	for n := range 64 {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 0))
			for range each {
				user, cost := random.IntN(8), 1+random.Uint64N(3)
				asks := []weir.Ask{ask(user, cost), ask(8+user%2, cost)}
				d, err := decide(context.Background(), asks...)
				switch {
				case err != nil:
					done(err)
				case d.Allowed():
					admitted[user].Add(cost)
					admitted[8+user%2].Add(cost)
				}
			}
		})
	}
	on := func(key int) uint64 {
		n, err := onRecord(ask(key, 1))
		if err != nil {
			done(err)
		}
		return n
	}
	observer.Go(func() {
		for key := 0; ctx.Err() == nil; key = (key + 1) % len(admitted) {
			if n, limit := on(key), ask(key, 1).Request.Limit; n > limit {
				done(fmt.Errorf("%d of %d are counted on key %d", n, limit, key))
			}
		}
	})
	callers.Wait()
	done(nil)
	observer.Wait()
	for key := range admitted {
		if n, sum := on(key), admitted[key].Load(); n != sum {
			done(nil)
			return fmt.Errorf("%d are counted on key %d, and %d were admitted", n, key, sum)
		}
	}
	if err := context.Cause(ctx); err != context.Canceled {
		return err
	}
	return nil
}

// DecideForgetfully is a Decide that gives nothing back: it is to be rejected.
func DecideForgetfully(ctx context.Context, asks ...weir.Ask) (weir.Outcome, error) {
	return inOrder(ctx, asks, func(a weir.Ask) (*weir.Result, error) {
		return a.Strategy.Run(ctx, &a.Request)
	})
}

// DecideHastily is a Decide that charges what all asks would admit, in a step of its own: it is to
// be rejected.
func DecideHastily(ctx context.Context, asks ...weir.Ask) (weir.Outcome, error) {
	d, err := inOrder(ctx, asks, func(a weir.Ask) (*weir.Result, error) {
		return ops.Peek(ctx, a.Strategy, &a.Request)
	})
	for _, a := range asks {
		if err == nil && d.Allowed() {
			err = ops.Charge(ctx, a.Strategy, &a.Request)
		}
	}
	return d, err
}

func inOrder(
	ctx context.Context, asks []weir.Ask, run func(weir.Ask) (*weir.Result, error),
) (out weir.Outcome, err error) {
	for _, a := range asks {
		res, err := run(a)
		if err != nil {
			return out, err
		}
		out.Result = *res
		if !res.Allowed() {
			break
		}
	}
	return out, nil
}
