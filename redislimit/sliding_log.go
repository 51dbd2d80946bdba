package redislimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/weirgo/weir"
)

// Log is a Strategy that keeps each admitted request with its Meta.
type Log struct{ Strategy }

// SlidingLog keeps the admitted requests of the last r.Duration, each with its instant: the exact
// rolling window. It is a list with one element, of 56 bytes and the Meta, for each of them. The
// counterpart of weir's SlidingLog.
func (s *Store) SlidingLog() *Log {
	return s.log("log", slidingLog, rolling{})
}

// List keeps the admitted requests of a period of r.Duration that starts with the caller's first,
// in a list: a Counter that also records the callers.
func (s *Store) List() *Log {
	return s.log("list", list, listed{})
}

func (s *Store) log(kind string, sc *script, p protocol) *Log {
	l := &Log{Strategy{store: s, kind: kind, script: sc, protocol: p}}
	return describe(l, &l.Strategy, weir.About{Verbs: weir.VerbsOf(weir.OpHits)})
}

// Limit returns the limit of n in d by l, as [Strategy.Limit] does.
func (l *Log) Limit(n uint64, d time.Duration) *weir.Limit { return limit(l, &l.Strategy, n, d) }

// hits lists the admitted requests of r.Key that still count, newest last. Its cost grows with
// the list; it is for inspection, not for decisions.
func (l *Strategy) hits(ctx context.Context, r *weir.Request) (hits []weir.Hit, err error) {
	key, args, _, err := l.prepare("entries", r, 1)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	defer func() { l.store.called(start, err) }()
	bounded, cancel := l.store.deadlines.Within(ctx)
	defer cancel()
	now := l.store.read()
	texts, err := redis.NewScript(l.script.source).Run(bounded, l.store.client, []string{key},
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

// parseHit reads seconds, nanoseconds, cost, sum and meta, as the scripts spell them.
func parseHit(text string, now reading) (weir.Hit, error) {
	f := strings.SplitN(text, " ", 5)
	if len(f) != 5 {
		return weir.Hit{}, fmt.Errorf("%w: entry %.100q", ErrReply, text)
	}
	s, err1 := strconv.ParseInt(f[0], 10, 64)
	ns, err2 := strconv.ParseInt(f[1], 10, 64)
	cost, err3 := strconv.ParseUint(f[2], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return weir.Hit{}, fmt.Errorf("%w: entry %.100q: %w", ErrReply, text, err)
	}
	return weir.Hit{At: now.local(instant{s, ns}), Cost: cost, Meta: f[4]}, nil
}

// rolling is the last Duration.
type rolling struct{ byDuration }

func (rolling) ask(args []any, r *weir.Request, n int64) ([]any, bool, error) {
	args, possible, err := fixed{}.ask(args, r, n)
	return append(args, r.Meta), possible, err
}

func (rolling) answer(r *weir.Request, v numbers) (decision, error) {
	d, err := anchored{}.answer(r, v)
	d.at = d.at.plus(r.Duration) // The script tells the instant of a hit.
	return d, err
}

type listed struct{ anchored }

func (listed) ask(args []any, r *weir.Request, n int64) ([]any, bool, error) {
	args, possible, err := anchored{}.ask(args, r, n)
	return append(args, r.Meta), possible, err
}

func (listed) admitted(_ decision, hit instant) instant { return hit }

func (listed) returned(_ *weir.Request, where instant, _ int64) (op any, at instant) {
	return "return", where
}
