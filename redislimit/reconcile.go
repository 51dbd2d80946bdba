package redislimit

import (
	"context"
	"hash/fnv"
	"slices"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/arith"
)

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

// warm prepares the server of r's key for decisions: it connects and loads the scripts, and counts
// nothing. Unlike decisions it is bounded by ctx and the client's own settings only, and not by
// Config.Timeout.
func (s *Strategy) warm(ctx context.Context, r *weir.Request) error {
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
