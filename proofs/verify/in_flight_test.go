package verify

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// peekThenHold is a control: it decides by Peek, and counts then.
type peekThenHold struct {
	flightsOf
	*meeting
}

func (f peekThenHold) take(r *weir.Request, lease bool) (*weir.Result, func() error, error) {
	res, err := ops.Peek(context.Background(), f.InFlight, r)
	if err != nil || !res.Allowed() {
		return res, nil, err
	}
	f.wait(r.Key)
	unbounded := *r
	unbounded.Limit = 1 << 30
	_, giveBack, err := f.flightsOf.take(&unbounded, lease)
	return res, giveBack, err
}

// flightOp takes a cost, or gives it back.
type flightOp struct {
	id   string
	cost int64
	back bool
}

const flightLimit = 4

// flightModel is the cost in flight of one key, on a clock that stands still.
var flightModel = porcupine.Model{
	Partition: byID(func(input any) string { return input.(flightOp).id }),
	Init:      func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		used, in := state.(int64), input.(flightOp)
		if in.back {
			return true, used - in.cost
		}
		res, next := output.(*weir.Result), used+in.cost
		if next > flightLimit {
			return !res.Allowed() && int64(res.TotalRequests) == used, used
		}
		return res.Allowed() && int64(res.TotalRequests) == next, next
	},
}

// recordFlights has concurrent callers take and give back, while a sweeper removes whatever it may.
func recordFlights(
	t *testing.T, of func(*weir.InFlight) flights, seed uint64,
) (history []porcupine.Operation) {
	cfg := weir.Config{Now: func() time.Time { return at(1000) }, Timeout: 1}
	if seed%2 == 0 {
		cfg.MaxBuckets = 2
	}
	l, err := weir.New(cfg)
	require.NoError(t, err)
	defer l.Close()
	f := of(l.InFlight())
	var mu sync.Mutex
	var callers, sweeper sync.WaitGroup
	var stop atomic.Bool
	sweeper.Go(func() {
		for !stop.Load() {
			l.Sweep()
			yield()
		}
	})
	base := time.Now()
	for client := range clients {
		rnd := rand.New(rand.NewPCG(seed, uint64(client)+1))
		callers.Go(func() {
			type taken struct {
				op   flightOp
				back func() error
			}
			var mine []porcupine.Operation
			var open []taken
			record := func(op flightOp, do func() (any, error)) bool {
				call := int64(time.Since(base))
				out, err := do()
				back := int64(time.Since(base))
				if errors.Is(err, weir.ErrFull) && cfg.MaxBuckets > 0 {
					return false // it counts nothing
				}
				assert.NoError(t, err)
				mine = append(mine, porcupine.Operation{
					ClientId: client, Input: op, Call: call, Output: out, Return: back,
				})
				return err == nil
			}
			for range each {
				if n := len(open); n > 0 && rnd.IntN(5) < 2 {
					i := rnd.IntN(n)
					op := open[i].op
					op.back = true
					record(op, func() (any, error) { return nil, open[i].back() })
					open = append(open[:i], open[i+1:]...)
					continue
				}
				op := flightOp{id: historyIDs[rnd.IntN(3)], cost: 1 + rnd.Int64N(8)/6}
				r := &weir.Request{Key: op.id, Limit: flightLimit, Duration: time.Second, Cost: uint64(op.cost)}
				lease, admitted := rnd.IntN(4) == 0, false
				var back func() error
				ok := record(op, func() (any, error) {
					res, giveBack, err := f.take(r, lease)
					back, admitted = giveBack, err == nil && res.Allowed()
					return res, err
				})
				if ok && admitted {
					open = append(open, taken{op, back})
				}
			}
			mu.Lock()
			history = append(history, mine...)
			mu.Unlock()
		})
	}
	callers.Wait()
	stop.Store(true)
	sweeper.Wait()
	return history
}

// illegalFlights records n histories, and returns how many are equivalent to no sequential one.
func illegalFlights(t *testing.T, of func(*weir.InFlight) flights, n int) (illegal int) {
	for seed := range uint64(n) {
		switch porcupine.CheckOperationsTimeout(flightModel, recordFlights(t, of, seed), 2*time.Minute) {
		case porcupine.Illegal:
			illegal++
		case porcupine.Unknown:
			t.Error("unknown")
		case porcupine.Ok:
		}
	}
	return illegal
}

// Places that are held, and leases beside them, are taken and given back at one instant each.
func TestWorkInFlightIsLinearizable(t *testing.T) {
	plain := func(s *weir.InFlight) flights { return flightsOf{s} }
	assert.Zero(t, illegalFlights(t, plain, slow.N(40, 1500, 10_000)))
	n := slow.N(10, 100, 200)
	broken := func(s *weir.InFlight) flights { return peekThenHold{flightsOf{s}, new(meeting)} }
	assert.GreaterOrEqual(t, illegalFlights(t, broken, n), n*9/10)
}
