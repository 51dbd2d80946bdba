package redislimit

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
)

// byDuration is the period of most strategies: r.Duration in ms.
type byDuration struct{}

func (byDuration) period(r *weir.Request) (string, error) {
	return strconv.FormatInt(r.Duration.Milliseconds(), 10), nil
}

func (byDuration) life(*weir.Request) time.Duration { return 0 }

// admitted names an admission by its ExpiresAt, as a return without a Receipt does.
func (byDuration) admitted(d decision, _ instant) instant { return d.at }

func (byDuration) returned(_ *weir.Request, where instant, _ int64) (op any, at instant) {
	return "refund", where
}

// params are r's numbers, of which at most limit are admitted.
func params(r *weir.Request, limit uint64) algorithm.Params {
	return algorithm.Params{Scale: r.Duration.Milliseconds(), Limit: clamp(limit), Cost: cost(r)}
}

// fits reports whether r's cost is at most limit, both as they are: clamped they may be equal.
func fits(r *weir.Request, limit uint64) bool { return max(1, r.Cost) <= limit }

type fixed struct{ byDuration }

func (fixed) ask(args []any, r *weir.Request, n int64) ([]any, bool, error) {
	return append(args, r.Duration.Milliseconds(), clamp(r.Limit), n), fits(r, r.Limit), nil
}

func (fixed) answer(r *weir.Request, v numbers) (decision, error) {
	count, window := v[1], v[2]
	end, ok := startOf(window+1, r.Duration.Milliseconds())
	if count < 0 || !ok {
		return decision{}, strange(v)
	}
	return decision{allowed: v[0] == 1, total: count, limit: clamp(r.Limit), at: end}, nil
}

type sliding struct{ fixed }

// answer decides again on the counts that the script found: the count and the instants take
// products of 128 bits. It decides in the window that begins at 0, where no instant overflows.
func (sliding) answer(r *weir.Request, v numbers) (decision, error) {
	current, previous, now, d := v[1], v[2], v[3], r.Duration.Milliseconds()
	p := params(r, r.Limit)
	allowed := v[0] == 1
	if allowed {
		current -= p.Cost
	}
	if current < 0 || previous < 0 {
		return decision{}, strange(v)
	}
	_, into := arith.FloorDiv(now, d)
	var window algorithm.SlidingWindow
	verdict, _ := window.Decide(algorithm.State{N: current, Still1: previous}, p, into*msec)
	if verdict.Allowed != allowed {
		return decision{}, strange(v)
	}
	return decision{allowed: allowed, total: min(maxCount, verdict.Total), limit: p.Limit,
		at: ofMillis(now - into + verdict.At/msec)}, nil
}

// anchored is a period that starts with the first hit.
type anchored struct{ byDuration }

func (anchored) ask(args []any, r *weir.Request, n int64) ([]any, bool, error) {
	d := ofDuration(r.Duration)
	return append(args, d.s, d.ns, clamp(r.Limit), n), fits(r, r.Limit), nil
}

func (anchored) answer(r *weir.Request, v numbers) (decision, error) {
	at := instant{v[2], v[3]}
	if v[1] < 0 || !at.valid() {
		return decision{}, strange(v)
	}
	return decision{allowed: v[0] == 1, total: v[1], limit: clamp(r.Limit), at: at}, nil
}

func (anchored) life(r *weir.Request) time.Duration { return r.Duration }

// strange is the error for numbers that a script does not return.
func strange(v numbers) error { return fmt.Errorf("%w: %d", ErrReply, v) }
