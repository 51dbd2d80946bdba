package redislimit

import (
	"context"
	"slices"
	"strconv"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/arith"
)

// admissionValues is how many numbers admission.lua adds to those of the strategy: that of the last
// reset.
const admissionValues = 1

// admission is what is known of an admitted request, for its Return.
type admission struct {
	strategy *Strategy
	request  weir.Request
	hit, end instant // of the request, and ExpiresAt
	slice    instant // of Tiers: when the slice begins
	reset    string  // the number of the last reset of the key before it
}

// Admit is Run, and returns what gives cost back to this admission: of Tiers to its slice, of a
// List to its hit. It gives back no more than was taken, and nothing after a Reset, unless that was
// a DEL, by hand or by an earlier release. In a log or a list it costs as much as a Refund.
//
// Beside the key it reads one more, which exists only after a Reset.
func (s *Strategy) Admit(ctx context.Context, r *weir.Request) (*weir.Result, weir.Return, error) {
	key, args, possible, err := s.prepare(opRun, r, cost(r))
	if err != nil {
		return nil, nil, err
	}
	a := &admission{strategy: s, request: *r}
	if !possible {
		res, err := s.Run(ctx, r)
		return res, arith.Parts(0, a.giveBack), err
	}
	now, script := s.store.read(), s.script.load().admitting
	v, err := s.store.eval(ctx, script, key, at(args, now), resetKey)
	if err != nil {
		return nil, nil, err
	}
	res, d, err := s.result(r, v, possible, now)
	if err != nil {
		return nil, nil, err
	}
	a.hit, a.end, a.slice = s.script.clock(v), d.at, d.slice
	a.reset = strconv.FormatInt(v[script.values-1], 10)
	var taken uint64
	if d.allowed {
		taken = uint64(cost(r))
	}
	return res, arith.Parts(taken, a.giveBack), nil
}

// giveBack gives n back, after as much before.
func (a *admission) giveBack(ctx context.Context, n, before uint64) error {
	s := a.strategy
	op, where := s.protocol.returned(a, int64(before))
	key, args, _, err := s.prepare(op, &a.request, int64(n))
	if err != nil {
		return err
	}
	return s.takeBack(ctx, key, append(args, where.s, where.ns, 0, 0, a.reset), s.store.read())
}

// takeBack runs a refund or a return, whose arguments end with the number of the last reset.
func (s *Strategy) takeBack(ctx context.Context, key string, args []any, now reading) error {
	_, err := s.store.eval(ctx, s.script.load().takingBack, key, at(args, now), resetKey, backKey)
	return err
}

// returned names an admission by its ExpiresAt, as a refund does.
func (byDuration) returned(a *admission, _ int64) (op any, where instant) { return "refund", a.end }

// returned takes the tokens that were given back from the end of what the others take to flow in.
func (t token) returned(a *admission, before int64) (op any, where instant) {
	_, p, _ := t.prepare(&a.request)
	return "refund", a.end.plus(-grow(before, p.Each))
}

func (listed) returned(a *admission, _ int64) (op any, where instant) { return "return", a.hit }

func (several) returned(a *admission, _ int64) (op any, where instant) { return "return", a.slice }

// What follows the key of a count in the keys beside it.
const (
	resetKey   = ":reset"   // the number of the last reset; see reset.lua
	backKey    = ":back"    // when something was last taken back; see take_back.lua
	chargedKey = ":charged" // the totals of backlogs; see reconcile.lua
)

// on sets the keys of a command: key, and those beside it.
func on(args []any, key string, suffixes ...string) []any {
	args[2], args[3] = 1+len(suffixes), key
	for i, suffix := range suffixes {
		args = slices.Insert(args, head+i, any(key+suffix))
	}
	return args
}
