package redislimit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirgo/weir"
)

// Log is a Strategy that keeps each admitted request with its Meta.
type Log struct{ Strategy }

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
