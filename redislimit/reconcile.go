package redislimit

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/arith"
)

// maxSource is the longest Source of a weir.Backlog, in bytes.
const maxSource = 64

// Reconcile resets the count of r.Key, if b says so, or raises it to b.Counted, unless something
// was taken back since, charges b's debt as far as it was not charged before, and decides on r, in
// one script. It can be repeated when its answer was lost: the debt is charged once, for as long as
// the server keeps its data. For that the server keeps the last Total of each Source beside r.Key's
// count: for as long as that, or as a debt may count, if that is longer: a Duration of a Counter or
// List, and the time in which a whole token bucket fills.
func (s *Strategy) Reconcile(
	ctx context.Context, r *weir.Request, b *weir.Backlog,
) (*weir.Result, error) {
	if n := len(b.Source); n == 0 || n > maxSource || b.Total < b.Charged {
		return nil, fmt.Errorf("redislimit: backlog of source %q, from %d to %d: %w", b.Source, b.Charged,
			b.Total, weir.ErrLimit)
	}
	key, decision, possible, err := s.prepare(opRun, r, cost(r))
	if err != nil {
		return nil, err
	}
	now := s.store.read()
	seed, err := s.seedArgs(r, b.Counted, now)
	if err != nil {
		return nil, err
	}
	reset := int64(0)
	if b.Reset {
		reset = numberOf(b.Source)
	}
	_, charge, _, err := s.prepare("charge", r, 1)
	if err != nil {
		return nil, err
	}
	args := make([]any, head, head+28)
	age, known := knownAt(b.CountedAt, now)
	args = append(args, decision[head], s.store.grace, b.Source, clamp(b.Charged), clamp(b.Total),
		s.script.cost, s.script.width, age, known, reset, len(seed))
	args = append(args, seed...)
	args = append(append(append(args, len(charge)-head-2), charge[head+2:]...), decision[head+2:]...)
	args = append(args, s.life(r).Milliseconds())
	v, err := s.store.eval(ctx, s.script.load().reconciling, key, at(args, now), chargedKey, backKey,
		resetKey)
	if err != nil {
		return nil, err
	}
	res, _, err := s.result(r, v, possible, now)
	return res, err
}

// life returns how long what a local strategy admits for r may count, or 0 if it counts no longer
// there than here. Its period may have begun later, and its share of a bucket fills more slowly.
func (s *Strategy) life(r *weir.Request) time.Duration {
	if p, ok := s.protocol.(interface {
		life(r *weir.Request) time.Duration
	}); ok {
		return p.life(r)
	}
	return 0
}

func (anchored) life(r *weir.Request) time.Duration { return r.Duration }

func (t token) life(r *weir.Request) time.Duration {
	_, p, _ := t.prepare(r)
	return grow(p.Limit, p.Each)
}

// numberOf returns the number of a reset that the source has missed. A source has missed only one:
// the next has another source.
func numberOf(source string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(source))
	return 1 + int64(h.Sum64()%maxCount)
}

// slack is by how much a count is taken to be older than it is, and for each 1024 s of its age a
// second more: clocks differ, and commands take time to arrive.
const slack = 100 * time.Millisecond

// knownAt returns how long ago an instant was, and the instant by the script's clock, in ms, both
// rather too long ago. A command may arrive long after it was sent, when only the instant is right,
// and the server's clock may have been set, when only the difference is right.
func knownAt(at time.Time, now reading) (age, unix int64) {
	ago := max(0, now.now.Sub(at))
	ago += slack + ago/1024
	known, _ := arith.FloorDiv(now.server(now.now.Add(-ago)).unixNano(), msec)
	return int64(ago / time.Millisecond), known
}

// seedArgs returns the script's own arguments of a seed, none if there is nothing to seed.
func (s *Strategy) seedArgs(r *weir.Request, counted *weir.Result, now reading) ([]any, error) {
	if counted == nil || counted.TotalRequests == 0 || counted.ExpiresAt.IsZero() {
		return nil, nil
	}
	_, args, _, err := s.prepare("seed", r, clamp(counted.TotalRequests))
	if err != nil {
		return nil, err
	}
	return append(args[head+2:], now.seeded(counted.ExpiresAt)...), nil
}

// Warm prepares the server of r's key for decisions: it connects and loads the scripts, and counts
// nothing. Unlike decisions it is bounded by ctx and the client's own settings only, and not by
// Config.Timeout.
func (s *Strategy) Warm(ctx context.Context, r *weir.Request) error {
	key, args, _, err := s.prepare(opPeek, r, cost(r))
	if err != nil {
		return err
	}
	args = at(args, s.store.read())
	shared, own := args[head:head+2], args[head+2:]
	none := append([]any{"warm", 0, 0, s.script.cost, s.script.width, 0, 0, 0, 0, len(own)}, own...)
	for _, step := range []struct {
		script   *script
		args     []any
		suffixes []string
	}{
		{s.script, own, nil},
		{s.script.load().admitting, own, []string{resetKey}},
		{s.script.load().reconciling, append(append(none, own...), 0),
			[]string{chargedKey, backKey, resetKey}},
	} {
		command := on(slices.Concat(make([]any, head), shared, step.args), key, step.suffixes...)
		command[0], command[1] = eval, step.script.source
		if _, err := s.store.send(ctx, command, step.script.values); err != nil {
			return explain(ctx, err)
		}
	}
	return nil
}
