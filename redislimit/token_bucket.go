package redislimit

import (
	"cmp"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
)

type token struct {
	byDuration
	burst uint64
}

// period is the same for every Duration of a limit with a name: the bucket has its spacing beside
// it, and goes on at another one.
func (t token) period(r *weir.Request) (string, error) {
	period, err := t.byDuration.period(r)
	if err == nil && r.Lasting {
		period = "any"
	}
	return period, err
}

// prepare returns the bucket of r, and the numbers of r in it. It reports false if that takes too
// long to fill.
func (t token) prepare(r *weir.Request) (b algorithm.TokenBucket, p algorithm.Params, ok bool) {
	b.Burst = clamp(t.burst)
	p, ok = b.Prepare(params(r, r.Limit))
	return b, p, ok
}

func (t token) ask(args []any, r *weir.Request, n int64) ([]any, bool, error) {
	_, p, ok := t.prepare(r)
	if !ok {
		return nil, false, fmt.Errorf("redislimit: %d tokens, one in %v: %w", p.Limit,
			time.Duration(p.Each), weir.ErrLimit)
	}
	c, f := ofDuration(grow(n, p.Each)), ofDuration(grow(p.Limit, p.Each))
	each := ofDuration(time.Duration(p.Each))
	return append(args, c.s, c.ns, f.s, f.ns, fmt.Sprint(each.s, " ", each.ns)),
		r.Limit > 0 && fits(r, cmp.Or(t.burst, r.Limit)), nil
}

// returned takes the tokens that were given back from the end of the time that the others take to
// flow in.
func (t token) returned(r *weir.Request, where instant, before int64) (op any, at instant) {
	_, p, _ := t.prepare(r)
	return "refund", where.plus(-grow(before, p.Each))
}

func (t token) life(r *weir.Request) time.Duration {
	_, p, _ := t.prepare(r)
	return grow(p.Limit, p.Each)
}

// grow is the time in which n tokens grow back, or the longest there is.
func grow(n, each int64) time.Duration { return time.Duration(arith.Mul(uint64(n), each)) }

// answer decides again on the bucket that the script found, with its clock at 0.
func (t token) answer(r *weir.Request, v numbers) (decision, error) {
	tat, now := instant{v[1], v[2]}, instant{v[3], v[4]}
	if !tat.valid() || !now.valid() {
		return decision{}, strange(v)
	}
	if r.Limit == 0 {
		return decision{}, nil // no token is ever missing
	}
	bucket, p, _ := t.prepare(r)
	allowed, found := v[0] == 1, tat.minus(now)
	if allowed {
		found = arith.Sub(found, int64(grow(p.Cost, p.Each)))
	}
	verdict, _ := bucket.Decide(algorithm.State{Still1: found}, p, 0)
	if found < 0 || verdict.Allowed != allowed {
		return decision{}, strange(v)
	}
	res := decision{allowed: allowed, total: verdict.Total, limit: p.Limit, at: tat}
	if !allowed {
		res.at = now.plus(time.Duration(max(0, verdict.At)))
	}
	return res, nil
}
