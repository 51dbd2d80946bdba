package redislimit

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir"
)

const maxCount = 1<<53 - 1 // a Lua number holds every integer up to here

// Strategy counts in Redis by one algorithm: it is a weir.Counter, each op of which is one script
// in one round trip, but OpResetPrefix. Errors are weir's for a bad Request, and the ones of
// Classify. It is safe for concurrent use, by any number of processes.
type Strategy struct {
	store    *Store
	kind     string // in the key
	script   *script
	protocol protocol
	about    *weir.About
}

// kinds are the plain names of the kinds.
var kinds = map[string]string{
	"fixed": "fixed window", "calendar": "calendar", "sliding": "sliding window", "log": "sliding log",
	"zset": "sorted set", "token": "token bucket", "tiers": "tiers", "flight": "in flight",
	"counter": "counter", "list": "list",
}

// counts identifies the counts of a Strategy.
type counts struct {
	store      *Store
	kind, plan string
}

// describe sets the About of c, which has s embedded, and returns it.
func describe[C weir.Counter](c C, s *Strategy, a weir.About) C {
	a.Of, a.Name, a.Prompt, a.Store = c, kinds[s.kind], s.store.prompt, s.store
	a.Reconciles = true
	a.Verbs |= weir.VerbsOf(weir.OpTake, weir.OpPeek, weir.OpReturn, weir.OpCharge, weir.OpReset,
		weir.OpResetPrefix, weir.OpCatchUp, weir.OpWarm)
	plan := a.Period
	if t, ok := s.protocol.(several); ok {
		plan = t.name
	}
	a.Counts = counts{s.store, s.kind, plan}
	s.about = &a
	return c
}

// About implements weir.Counter.
func (s *Strategy) About() *weir.About { return s.about }

// Run decides on r, and counts it if it is admitted. After an error the request may have been
// counted, if its reply was lost, but it was not admitted.
func (s *Strategy) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, s, r)
}

// Do implements weir.Counter. Several ops of Strategies of one Store are one pipeline on each node,
// as far as each is one script. After an error an op may have been done, if its reply was lost, but
// nothing was admitted.
func (s *Strategy) Do(ctx context.Context, ops []*weir.Op) {
	if len(ops) == 1 {
		s.of(ops[0]).do(ctx, ops[0])
		return
	}
	calls := make([]*call, 0, len(ops))
	for _, op := range ops {
		of := s.of(op)
		if !of.isCall(op) {
			s.store.do(ctx, calls...)
			calls = calls[:0]
			of.do(ctx, op)
			continue
		}
		c := &call{op: op, strategy: of}
		if c.prepare() {
			calls = append(calls, c)
		}
	}
	s.store.do(ctx, calls...)
}

// of returns the Strategy that does an op: s, unless it is another one's of the same Store.
func (s *Strategy) of(op *weir.Op) *Strategy {
	if c, ok := op.Counter.(onRedis); ok && c.itself().store == s.store {
		return c.itself()
	}
	return s
}

// onRedis is a Strategy, or a type that embeds one.
type onRedis interface{ itself() *Strategy }

// itself returns the Strategy that a Log or Tiers has embedded.
func (s *Strategy) itself() *Strategy { return s }

// isCall reports whether one script does an op.
func (s *Strategy) isCall(op *weir.Op) bool {
	switch op.Verb {
	case weir.OpTake, weir.OpPeek, weir.OpReturn, weir.OpCharge, weir.OpReset, weir.OpCatchUp:
		return true
	case weir.OpHold, weir.OpRenew, weir.OpRelease:
		return s.about.InFlight
	}
	return false
}

// do does one op.
func (s *Strategy) do(ctx context.Context, op *weir.Op) {
	switch {
	case s.isCall(op):
		c := call{op: op, strategy: s}
		if c.prepare() {
			s.store.do(ctx, &c)
		}
	case op.Verb == weir.OpResetPrefix:
		op.Err = (&prefixReset{of: s, op: op}).run(ctx)
	case op.Verb == weir.OpWarm:
		op.Err = s.warm(ctx, &op.Request)
	case op.Verb == weir.OpHits && s.about.Verbs.Has(weir.OpHits):
		op.Hits, op.Err = s.hits(ctx, &op.Request)
	default:
		op.Err = op.Unsupported(s.about)
	}
}

// Limit returns the limit of n in d by s: a value that counts under keys which begin with its name
// or, without one, with its numbers, such as "100/1m". Processes that make equal limits count
// together. It panics where [weir.NewLimit] fails, which is for numbers of a configuration, and for
// a token bucket that takes too long to fill.
func (s *Strategy) Limit(n uint64, d time.Duration) *weir.Limit {
	m, err := weir.NewLimit(s.about.Of, n, d)
	if err == nil {
		_, _, _, err = s.prepare(opPeek, &weir.Request{Key: "any", Limit: n, Duration: d}, 1)
	}
	if err != nil {
		panic(err.Error())
	}
	return m
}

// The operations that decide, ready to be arguments.
var opRun, opPeek any = "run", "peek"

// result sets the Result of an op from the script's answer, which was asked at now.
func (s *Strategy) result(op *weir.Op, v numbers, possible bool, now reading) (decision, error) {
	r := &op.Request
	d, err := s.protocol.answer(r, v)
	clock := s.script.clock(v)
	impossible := possible && d.allowed && (d.total > d.limit || d.total < cost(r))
	if err == nil && (impossible || !clock.valid()) {
		err = strange(v)
	}
	if err != nil {
		return decision{}, err
	}
	now.observe(clock)
	op.Result = weir.Result{TotalRequests: uint64(d.total), Limit: d.own}
	op.Source, op.Left = weir.FromPrimary, 0
	if possible {
		op.Result.ExpiresAt = now.local(d.at)
		if d.allowed {
			op.Result.State = weir.Allow
		}
	}
	return d, nil
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
	if err := s.about.Check(r); err != nil {
		return "", err
	}
	period, err := s.protocol.period(r)
	if err != nil {
		return "", err
	}
	return s.store.prefix + s.kind + ":" + period + ":{" + tag(r.Key) + "}", nil
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
	for _, step := range []call{
		{script: s.script, args: own},
		{script: s.script.load().admitting, args: own, beside: []string{resetKey}},
		{script: s.script.load().reconciling, args: append(append(none, own...), 0),
			beside: []string{chargedKey, backKey, resetKey}},
	} {
		step.key, step.args = key, slices.Concat(make([]any, head), shared, step.args)
		if err := s.store.server.client.Process(ctx, step.command(ctx, eval)); err != nil {
			return explain(ctx, err)
		}
	}
	return nil
}

// hits lists the admitted requests of r.Key that still count, newest last. Its cost grows with
// the list; it is for inspection, not for decisions.
func (s *Strategy) hits(ctx context.Context, r *weir.Request) (hits []weir.Hit, err error) {
	key, args, _, err := s.prepare("entries", r, 1)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	defer func() { s.store.server.called(start, err) }()
	bounded, cancel := s.store.server.deadlines.Within(ctx)
	defer cancel()
	now := s.store.read()
	texts, err := redis.NewScript(s.script.source).Run(bounded, s.store.server.client, []string{key},
		at(args, now)[head:]...).StringSlice()
	if err != nil {
		return nil, explain(ctx, err)
	}
	hits = make([]weir.Hit, 0, len(texts))
	for _, text := range texts {
		e, err := parseHit(text, now)
		if err != nil {
			return nil, err
		}
		if e.Cost > 0 { // 0 was given back
			hits = append(hits, e)
		}
	}
	return hits, nil
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
