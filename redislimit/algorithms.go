package redislimit

import (
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/arith"
)

const maxDuration = 365 * 24 * time.Hour

// FixedWindow counts in windows of r.Duration aligned to the Unix epoch. It admits at most twice
// the limit in any span of one Duration. The counterpart of weir's FixedWindow.
func (s *Store) FixedWindow() *Strategy {
	return &Strategy{store: s, kind: "fixed", script: fixedWindow, algorithm: fixed{}}
}

// SlidingWindow counts as FixedWindow does, and adds the window before, weighted by how much of it
// the last Duration still covers. The counterpart of weir's SlidingWindow.
func (s *Store) SlidingWindow() *Strategy {
	return &Strategy{store: s, kind: "sliding", script: slidingWindow, algorithm: sliding{}}
}

// Counter counts in a period of r.Duration that starts with the caller's first hit.
func (s *Store) Counter() *Strategy {
	return &Strategy{store: s, kind: "counter", script: counter, algorithm: anchored{}}
}

// byDuration is the period of most strategies: r.Duration in ms.
type byDuration struct{}

func (byDuration) period(r *weir.Request) (string, error) {
	if r.Duration < time.Millisecond || r.Duration > maxDuration || r.Duration%time.Millisecond != 0 {
		return "", fmt.Errorf("redislimit: duration %v: %w", r.Duration, weir.ErrScale)
	}
	return strconv.FormatInt(r.Duration.Milliseconds(), 10), nil
}

// fits reports whether r's cost is at most limit, both as they are: clamped they may be equal.
func fits(r *weir.Request, limit uint64) bool { return max(1, r.Cost) <= limit }

type fixed struct{ byDuration }

func (fixed) ask(args []any, r *weir.Request, n int64) ([]any, bool, error) {
	return append(args, r.Duration.Milliseconds(), clamp(r.Limit), n), fits(r, r.Limit), nil
}

func (fixed) answer(r *weir.Request, v numbers) (decision, error) {
	count, window, d := v[1], v[2], r.Duration.Milliseconds()
	end := (window + 1) * d
	if count < 0 || end/d != window+1 {
		return decision{}, strange(v)
	}
	return decision{allowed: v[0] == 1, total: count, limit: clamp(r.Limit), at: ofMillis(end)}, nil
}

type sliding struct{ byDuration }

func (sliding) ask(args []any, r *weir.Request, n int64) ([]any, bool, error) {
	return fixed{}.ask(args, r, n)
}

// answer works out the count and the instants from what the script found, as weir does: the
// products need 128 bits.
func (sliding) answer(r *weir.Request, v numbers) (decision, error) {
	current, previous, now, d := v[1], v[2], v[3], r.Duration.Milliseconds()
	if current < 0 || previous < 0 {
		return decision{}, strange(v)
	}
	_, into := arith.FloorDiv(now, d)
	end := now + d - into
	weight := mulDiv(previous, d-into, d, d-1)
	res := decision{allowed: v[0] == 1, total: min(maxCount, weight+current), limit: clamp(r.Limit),
		at: ofMillis(end + d)}
	if res.allowed || cost(r) > res.limit {
		return res, nil
	}
	room := res.limit - cost(r) - current
	switch {
	case weight <= room:
		return decision{}, strange(v) // there is room, and it was denied
	case room >= 0:
		// The previous window's weight must fall to room: denied, so previous > room.
		res.at = ofMillis(end - mulDiv(d, room, previous, 0))
	default:
		// Only as the previous window itself will the current one weigh little enough.
		res.at = ofMillis(end + d - mulDiv(d, room+current, current, 0))
	}
	return res, nil
}

// mulDiv returns (a*b+add)/c in 128 bits. b <= c, so that the quotient fits.
func mulDiv(a, b, c, add int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(add), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(c))
	return int64(q)
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

// strange is the error for numbers that a script does not return.
func strange(v numbers) error { return fmt.Errorf("%w: %d", ErrReply, v) }
