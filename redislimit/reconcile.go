package redislimit

import (
	"context"
	"fmt"

	"github.com/weirgo/weir"
)

// maxSource is the longest Source of a weir.Backlog, in bytes.
const maxSource = 64

// Reconcile raises the count of r.Key to b.Counted, charges b's debt as far as it was not charged
// before, and decides on r, in one script. It can be repeated when its answer was lost: the debt is
// charged once, for as long as the server keeps its data. For that the server keeps, beside r.Key's
// count and for as long, the last Total of each Source.
func (s *Strategy) Reconcile(ctx context.Context, r *weir.Request, b *weir.Backlog) (*weir.Result, error) {
	if n := len(b.Source); n == 0 || n > maxSource || b.Total < b.Charged {
		return nil, fmt.Errorf("redislimit: backlog of source %q, from %d to %d: %w", b.Source, b.Charged, b.Total,
			weir.ErrLimit)
	}
	key, decision, possible, err := s.prepare(opRun, r, cost(r))
	if err != nil {
		return nil, err
	}
	op := opRun
	if !possible {
		op = opPeek
	}
	seed, err := s.seedArgs(r, b.Counted)
	if err != nil {
		return nil, err
	}
	_, charge, _, err := s.prepare("charge", r, 1)
	if err != nil {
		return nil, err
	}
	args := make([]any, head, head+16)
	args = append(args, key+":charged", op, s.store.grace, b.Source, clamp(b.Charged), clamp(b.Total),
		s.script.cost, s.script.width, len(seed))
	args = append(args, seed...)
	args = append(append(append(args, len(charge)-head-2), charge[head+2:]...), decision[head+2:]...)
	now := s.store.read()
	if now != nil {
		n := instantOf(*now)
		args[head+1] = fmt.Sprint(op, " ", n.s, " ", n.ns)
	}
	v, err := s.store.evalKeys(ctx, s.script.load().reconciling, twoKeys, key, args)
	if err != nil {
		return nil, err
	}
	res, _, err := s.result(r, v, possible, now)
	return res, err
}

// seedArgs returns the script's own arguments of a seed, none if there is nothing to seed.
func (s *Strategy) seedArgs(r *weir.Request, counted *weir.Result) ([]any, error) {
	if counted == nil || counted.TotalRequests == 0 || counted.ExpiresAt.IsZero() {
		return nil, nil
	}
	_, args, _, err := s.prepare("seed", r, clamp(counted.TotalRequests))
	if err != nil {
		return nil, err
	}
	end := instantOf(counted.ExpiresAt)
	return append(args[head+2:], end.s, end.ns), nil
}

// Warm prepares the server of r's key for decisions: it connects and loads the scripts, and counts
// nothing. Unlike decisions it is bounded by ctx and the client's own settings only, and not by
// Config.Timeout.
func (s *Strategy) Warm(ctx context.Context, r *weir.Request) error {
	key, args, _, err := s.prepare(opPeek, r, cost(r))
	if err != nil {
		return err
	}
	args[0], args[1], args[2], args[3] = eval, s.script.source, 1, key
	if _, err := s.store.send(ctx, at(args, s.store.read()), s.script.values); err != nil {
		return explain(ctx, err)
	}
	own := args[head+2:]
	admission := []any{eval, s.script.load().admitting.source, 2, key, resetKey(key)}
	admission = append(append(append(admission, args[head:head+2]...), own...), 0)
	if _, err := s.store.send(ctx, admission, s.script.values); err != nil {
		return explain(ctx, err)
	}
	none := []any{eval, s.script.load().reconciling.source, 2, key, key + ":charged"}
	none = append(append(append(append(none, args[head:head+2]...), "warm", 0, 0, s.script.cost, s.script.width,
		0, len(own)), own...), own...)
	if _, err := s.store.send(ctx, none, s.script.values); err != nil {
		return explain(ctx, err)
	}
	return nil
}
