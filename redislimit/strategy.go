package redislimit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/limits"
)

const maxCount = 1<<53 - 1 // a Lua number holds every integer up to here

// Strategy counts in Redis by one algorithm: it is a weir.Strategy, and a weir.Admitter, Peeker,
// Refunder, Resetter, Seeder, Charger and Reconciler, each call of which is one script in one round
// trip, and a PrefixResetter. Errors are those of weir for a bad Request, and those of Classify. It
// is safe for concurrent use, by any number of processes.
type Strategy struct {
	store    *Store
	kind     string // in the key
	script   *script
	protocol protocol
}

var _ interface {
	weir.Strategy
	weir.Admitter
	weir.Peeker
	weir.Refunder
	weir.Resetter
	weir.PrefixResetter
	weir.Seeder
	weir.Charger
	weir.Reconciler
	limits.Batcher
	weir.Named
} = (*Strategy)(nil)

var names = map[string]string{
	"fixed": "fixed window", "calendar": "calendar", "sliding": "sliding window", "log": "sliding log",
	"zset": "sorted set", "token": "token bucket", "tiers": "tiers", "flight": "in flight",
	"counter": "counter", "list": "list",
}

// Algorithm returns the plain name, for weir.Named.
func (s *Strategy) Algorithm() string { return names[s.kind] }

// protocol is the part of a strategy in Go: the arguments of its script, and the meaning of the
// reply.
type protocol interface {
	// period returns the part of the key that separates the counts of one caller. It fails with
	// weir.ErrScale.
	period(r *weir.Request) (string, error)

	// ask adds to args the script's own for n hits, and reports whether r can ever pass. It
	// fails with weir.ErrLimit.
	ask(args []any, r *weir.Request, n int64) (with []any, possible bool, err error)

	// answer reads the script's numbers.
	answer(r *weir.Request, v numbers) (decision, error)

	// returned returns the operation that gives back to an admission of which so much was given
	// back before, and the instant that tells the script which one it is.
	returned(a *admission, before int64) (op any, where instant)
}

// decision is the meaning of a script's reply.
type decision struct {
	allowed      bool
	total, limit int64
	at           instant // ExpiresAt

	// of Tiers
	tier  int     // whose figures these are
	own   uint64  // its limit, which is none of the Request; else 0
	slice instant // when the slice of an admission begins
}

// The operations that decide, ready to be arguments.
var opRun, opPeek any = "run", "peek"

// Run decides on r, and counts it if it is admitted. After an error the request may have been
// counted, if its reply was lost, but it was not admitted.
func (s *Strategy) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, _, err := s.decide(ctx, opRun, r)
	return res, err
}

// Peek returns the Result that Run would give. It counts, creates and changes nothing.
func (s *Strategy) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, _, err := s.decide(ctx, opPeek, r)
	return res, err
}

// Refund takes back the cost that Run admitted for r with the Result taken, inside the same period
// only. A Cost over the limit was never admitted, and nothing is refunded. In a log or list it
// costs 10 µs of the server's time for each later hit; with more than 1000 of them nothing is
// refunded. It leaves a key of 100 bytes beside the count, for as long as that lives.
//
// By the server's clock the ExpiresAt that the script knows is known here up to a round trip: of a
// log or in flight that hit or lease gives back which is next to it. If the server's clock was set
// since Run, the refund may be lost. Admit knows its admission exactly.
func (s *Strategy) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	key, args, possible, err := s.prepare("refund", r, cost(r))
	if err != nil || !possible || !taken.Allowed() || taken.ExpiresAt.IsZero() {
		return err
	}
	now := s.store.read()
	args = append(args, now.refunded(taken.ExpiresAt, r.Duration)...)
	return s.takeBack(ctx, key, append(args, ""), now)
}

// Seed raises the count of r.Key to counted.TotalRequests. It never lowers it, and does nothing
// after counted.ExpiresAt.
func (s *Strategy) Seed(ctx context.Context, r *weir.Request, counted *weir.Result) error {
	if counted.ExpiresAt.IsZero() {
		_, err := s.key(r)
		return err
	}
	return s.do(ctx, "seed", r, clamp(counted.TotalRequests), &counted.ExpiresAt)
}

// Charge adds r.Cost without asking whether it fits.
func (s *Strategy) Charge(ctx context.Context, r *weir.Request) error {
	return s.do(ctx, "charge", r, cost(r), nil)
}

// Prompt reports that calls end with the deadline of their context; see fallback.Prompt.
func (s *Strategy) Prompt() bool { return s.store.prompt }

func (s *Strategy) decide(
	ctx context.Context, op any, r *weir.Request,
) (*weir.Result, decision, error) {
	key, args, possible, err := s.prepare(op, r, cost(r))
	if err != nil {
		return nil, decision{}, err
	}
	now := s.store.read()
	v, err := s.store.eval(ctx, s.script, key, at(args, now))
	if err != nil {
		return nil, decision{}, err
	}
	return s.result(r, v, possible, now)
}

// result reads the script's answer on r, which was asked at now.
func (s *Strategy) result(r *weir.Request, v numbers, possible bool,
	now reading) (*weir.Result, decision, error) {
	d, err := s.protocol.answer(r, v)
	clock := s.script.clock(v)
	impossible := possible && d.allowed && (d.total > d.limit || d.total < cost(r))
	if err == nil && (impossible || !clock.valid()) {
		err = strange(v)
	}
	if err != nil {
		return nil, decision{}, err
	}
	now.observe(clock)
	res := &weir.Result{TotalRequests: uint64(d.total), Limit: d.own}
	if possible {
		res.ExpiresAt = now.local(d.at)
		if d.allowed {
			res.State = weir.Allow
		}
	}
	return res, d, nil
}

// do runs an operation of the script that decides nothing. end is when the count of a seed expires.
func (s *Strategy) do(ctx context.Context, op any, r *weir.Request, n int64, end *time.Time) error {
	key, args, _, err := s.prepare(op, r, n)
	if err != nil {
		return err
	}
	now := s.store.read()
	if end != nil {
		args = append(args, now.seeded(*end)...)
	}
	_, err = s.store.eval(ctx, s.script, key, at(args, now))
	return err
}

// prepare checks r and returns the key and the arguments for n hits. A request that can never pass
// takes nothing; its Result still has the count.
func (s *Strategy) prepare(op any, r *weir.Request,
	n int64) (key string, args []any, possible bool, err error) {
	key, err = s.key(r)
	if err == nil {
		args, possible, err = s.protocol.ask(s.store.args(op), r, n)
	}
	if err == nil && !possible && op == opRun {
		args[head] = opPeek
	}
	return key, args, possible, err
}

// key is prefix, kind and period, none of which holds a brace, and the caller in braces: the hash
// tag, which puts all of one caller's keys into one slot of a Cluster. No two of (kind, period,
// caller) have one key.
func (s *Strategy) key(r *weir.Request) (string, error) {
	if !bounds.Key(r.Key) {
		return "", fmt.Errorf("redislimit: key of %d bytes: %w", len(r.Key), weir.ErrID)
	}
	period, err := s.protocol.period(r)
	if err != nil {
		return "", err
	}
	return s.store.prefix + s.kind + ":" + period + ":{" + tag(r.Key) + "}", nil
}

// tag escapes the brace that would end the hash tag early, and its own escape.
func tag(id string) string {
	if !strings.ContainsAny(id, "%}") {
		return id
	}
	return strings.NewReplacer("%", "%25", "}", "%7D").Replace(id)
}

// cost is r.Cost as a count: 0 means 1.
func cost(r *weir.Request) int64 { return clamp(max(1, r.Cost)) }

func clamp(n uint64) int64 { return int64(min(n, maxCount)) }
