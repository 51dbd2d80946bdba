package verbtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/weirtest"
)

// ReserveDuration and ReserveLimit are those of all requests.
const (
	ReserveDuration = time.Second
	ReserveLimit    = 10
)

// Reserver is a strategy to check.
type Reserver struct {
	// Make returns a strategy that has counted nothing, on a clock.
	Make func(now func() time.Time) weir.Strategy

	// Span is the most that is admitted in any span of one ReserveDuration, commits apart.
	Span uint64

	// Spaced declares that a request is admitted only when nothing is left of those before.
	Spaced bool
}

// history is a strategy at work on one key.
type history struct {
	*rand.Rand
	strategy weir.Strategy
	clock    *weirtest.Clock
	made     []*reservation
}

// reservation is an admitted reservation and its state.
type reservation struct {
	*weir.Reservation
	at               time.Time
	epoch            int // in which it was admitted
	estimate, actual uint64
	done             bool
}

func (s *Reserver) begin(seed uint64) *history {
	clock := weirtest.NewClock(begin)
	return &history{Rand: rand.New(rand.NewPCG(seed, 0)), clock: clock, strategy: s.Make(clock.Now)}
}

func request(cost uint64) *weir.Request {
	return &weir.Request{Key: "a", Limit: ReserveLimit, Duration: ReserveDuration, Cost: cost,
		Meta: "m"}
}

// reserve makes a reservation.
func (h *history) reserve() (*reservation, error) {
	cost := h.Uint64N(ReserveLimit + 2)
	r := request(cost)
	v, err := limits.Reserve(context.Background(), weir.Ask{Strategy: h.strategy, Request: *r})
	if err != nil {
		return nil, err
	}
	*r = weir.Request{} // it is the caller's again
	cost = max(1, cost)
	made := &reservation{Reservation: v, at: h.clock.Now(), estimate: cost, actual: cost}
	if v.Allowed() {
		h.made = append(h.made, made)
	}
	return made, nil
}

// settle settles one of the last reservations, or one that is done, which is to do nothing.
func (h *history) settle() (v *reservation, first bool, err error) {
	v = h.made[len(h.made)-1-h.IntN(min(len(h.made), 4))]
	actual := v.estimate
	switch h.IntN(4) {
	case 0:
		actual = h.Uint64N(v.estimate)
	case 1:
		actual += 1 + h.Uint64N(4)
	case 2:
		actual = 0
	}
	ctx := context.Background()
	if h.IntN(3) == 0 {
		over, cancel := context.WithCancel(ctx)
		cancel()
		ctx = over // a client that has hung up
	}
	if actual == 0 && h.IntN(2) == 0 {
		err = v.Cancel(ctx)
	} else {
		err = v.Commit(ctx, actual)
	}
	first = !v.done
	if first {
		v.done, v.actual = true, actual
	}
	return v, first, err
}

// Check compares a strategy with a model in which the clock stands still within an epoch, and
// passes all periods between two of them. It returns how they differ.
func (s *Reserver) Check(seed uint64, steps int) error {
	h := s.begin(seed)
	epoch, count := 0, uint64(0)
	for range steps {
		var did string
		switch n := h.IntN(20); {
		case n == 0:
			h.clock.Advance(5 * ReserveDuration)
			epoch, count, did = epoch+1, 0, "next epoch"
		case n < 11 || len(h.made) == 0:
			v, err := h.reserve()
			if err != nil {
				return err
			}
			v.epoch, did = epoch, fmt.Sprintf("reserve %d", v.estimate)
			want := v.estimate <= ReserveLimit && count <= ReserveLimit-v.estimate &&
				(!s.Spaced || count == 0)
			if v.Allowed() != want {
				return fmt.Errorf("%s with %d counted: %+v", did, count, v.Result)
			}
			if want {
				count += v.estimate
			}
		default:
			v, first, err := h.settle()
			if err != nil {
				return err
			}
			did = fmt.Sprintf("settle %+v, first %v", v, first)
			switch {
			case first && v.actual > v.estimate:
				count += v.actual - v.estimate
			case first && v.epoch == epoch:
				count -= v.estimate - v.actual
			}
		}
		if got, err := h.counted(); err != nil {
			return err
		} else if got != count {
			return fmt.Errorf("%s: %d counted, want %d", did, got, count)
		}
	}
	return nil
}

// counted returns the count of the strategy.
func (h *history) counted() (uint64, error) {
	res, err := ops.Peek(context.Background(), h.strategy, request(1))
	if err != nil {
		return 0, err
	}
	return res.TotalRequests - uint64(res.State), nil
}

// CheckSpans has the clock move at random, over the ends of periods. It returns an error if in a
// span of one ReserveDuration more is used than the limit allows and commits exceeded their
// estimates by.
func (s *Reserver) CheckSpans(seed uint64, steps int) error {
	h := s.begin(seed)
	for range steps {
		h.clock.Advance(time.Duration(h.Int64N(int64(ReserveDuration)/4) * int64(h.IntN(3))))
		if h.IntN(2) == 0 || len(h.made) == 0 {
			if _, err := h.reserve(); err != nil {
				return err
			}
		} else if _, _, err := h.settle(); err != nil {
			return err
		}
	}
	for i, first := range h.made {
		used, exceeded := uint64(0), uint64(0)
		for _, v := range h.made[:i] {
			exceeded += v.actual - min(v.actual, v.estimate)
		}
		end := slices.IndexFunc(h.made[i:], func(v *reservation) bool {
			return !v.at.Before(first.at.Add(ReserveDuration))
		})
		if end < 0 {
			end = len(h.made) - i
		}
		for _, v := range h.made[i : i+end] {
			used += v.actual
			exceeded += v.actual - min(v.actual, v.estimate)
		}
		if used > s.Span+exceeded {
			return fmt.Errorf("%d used from %v on, at most %d, and %d by commits", used, first.at, s.Span,
				exceeded)
		}
	}
	return nil
}
