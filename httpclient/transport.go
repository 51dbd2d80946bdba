package httpclient

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/weirgo/weir"
	lines "github.com/weirgo/weir/internal/core/turns"
)

const defaultMaxPause = 10 * time.Minute

// LimitError is the error of a request that [Transport] did not send.
type LimitError struct {
	Key    string        // the request's key: its host, unless Transport.Key returns another one
	Wait   time.Duration // the wait that it would have needed; the largest Duration: it can never pass
	Server bool          // the server asked for a pause; false: the client's own limit
	Err    error         // the context's error; nil if the request did not wait
}

// Error returns the reason and the time to wait.
func (e *LimitError) Error() string {
	who := "over the client's own limit"
	if e.Server {
		who = "the server asked for a pause"
	}
	s := fmt.Sprintf("httpclient: request for %q not sent: %s, wait %v", e.Key, who, e.Wait)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the context's error.
func (e *LimitError) Unwrap() error { return e.Err }

// Transport is an http.RoundTripper that keeps a client within a limit of its own, and pauses when
// a server asks for it. During a pause it sends nothing to that server.
//
// A response asks for a pause in one of two ways:
//
//   - A 403, 413, 429, 503 or 529 has a Retry-After-Ms, X-Ms-Retry-After-Ms or Retry-After field.
//     The first valid one counts, and no other field. Of several values the longest counts.
//   - A response that is not from a cache reports a quota with nothing remaining, and until when:
//     by RateLimit, in the forms of the drafts up to 11; by X-RateLimit-Remaining and
//     X-RateLimit-Reset-After or -Reset, also spelled RateLimit- or X-Rate-Limit-; by
//     X-RateLimit-Remaining-Requests or -Tokens and the same with Reset, as of OpenAI; or by
//     Anthropic-RateLimit-Requests-Remaining and -Reset, also with Tokens, Input-Tokens or
//     Output-Tokens. Of several such quotas the longest pause counts. A quota with something
//     remaining asks for no pause, whatever its reset.
//
// The time is a number of seconds, or of milliseconds where the name of the field says so, with
// decimals or without; a duration such as 1m3s; a date of HTTP or of RFC 3339; or a number of
// seconds or milliseconds since the epoch, as each number of more than 31 years is. Dates and
// instants are compared with the response's Date, or with Now if it has none.
//
// A pause holds back the requests with the response's Key. If a quota has nothing remaining and the
// response names its resource, as GitHub does by X-RateLimit-Resource, the pause holds back only
// requests for that resource: those whose path has the same first segment as an earlier request
// that was answered with it. Others are sent. Where a server has limits by path, by model or by
// token and does not name a resource, let Key tell them apart.
//
// Requests that wait for a key, or for one of its resources, are sent in order of arrival. After a
// pause the first is sent alone and the others follow at a growing rate, which is unlimited after
// about 200 ms, so that a server that is not ready yet can ask for another pause. A request waits
// as long as its context allows, and fails at once with a [LimitError] if the context's deadline is
// earlier than the end of the pause, or than the instant at which its own limit admits a request:
// those that wait before it do not count, and only contexts bound how many do. The rate grows
// slowly for waiting requests only: if none waits, because of NoWait or because all deadlines are
// shorter than the pause, the full rate returns as soon as the pause ends.
//
// Transport never sends a request twice: retries are the caller's affair. The zero value has no
// limit of its own and pauses when servers ask for it. It is safe for concurrent use, and must not
// be copied or changed after the first request.
type Transport struct {
	// Base sends the requests. nil: http.DefaultTransport.
	Base http.RoundTripper

	// Limit is the client's own, taken for each request, and for one at a time while requests wait. A
	// request that it admits but that is not sent, because a pause began meanwhile, is refunded if its
	// strategy can [weir.OpReturn]; otherwise it stays counted. After the pause the Limit is taken
	// again. nil: none.
	Limit *weir.Limit

	// Key returns the key of a request; requests with one key share a limit and a pause. nil: the
	// host in lower case, without a final dot, and with its port unless that is the scheme's
	// default.
	Key func(*http.Request) string

	// NoWait makes a request that would have to wait fail at once.
	NoWait bool

	// MaxPause bounds the pauses that servers can ask for. 0: 10 minutes; negative: servers cannot
	// ask for a pause; [math.MaxInt64]: no bound.
	MaxPause time.Duration

	// Jitter spreads clients that a server gave the same time: a random duration up to Jitter is
	// added to each pause. 0: none.
	Jitter time.Duration

	// Now is the clock for pauses; it must agree with that of Limit. nil: time.Now.
	Now func() time.Time

	turns     turns
	resources resources
}

// RoundTrip sends r when the limit and the server's pauses allow it. It closes the body if it does
// not send r.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key, path := t.key(r), firstSegment(r.URL.Path)
	if err := t.admit(r.Context(), key, path); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // nothing was read from it
		}
		return nil, err
	}
	resp, err := t.base().RoundTrip(r)
	if err == nil {
		t.pauseFor(key, path, resp)
	}
	return resp, err
}

// Admit waits until a request of this key may be sent, as RoundTrip does: it takes the Limit and
// waits for its turn. If the request must not be sent the error is a [LimitError], the Limit's, or
// that of ctx if it has ended. Admit and Pause are for clients of other protocols; they do not
// use Base and Key.
func (t *Transport) Admit(ctx context.Context, key string) error { return t.admit(ctx, key, "") }

// admit waits until a request of this path may be sent.
func (t *Transport) admit(ctx context.Context, key, path string) error {
	if err := ctx.Err(); err != nil {
		return err // nothing is counted for a caller who has gone
	}
	s := scope{key, t.resources.find(key, path)}
	arrival, free := t.turns.arrive(s, t.now())
	if !free {
		if err := t.peek(ctx, s); err != nil {
			return err
		}
		return t.wait(ctx, s, path, arrival)
	}
	out, err := t.take(ctx, key)
	switch {
	case err != nil:
		return err
	case !out.Allowed() && t.hopeless(ctx, out.Wait):
		return t.refusal(key, out.Wait, false)
	case !out.Allowed():
	case t.isPaused(s.key, path): // since the Limit began to decide
		t.refund(ctx, key, &out.Result)
	default:
		return nil
	}
	return t.wait(ctx, s, path, arrival)
}

// isPaused reports whether a request of path has to wait for a pause or a gap.
func (t *Transport) isPaused(key, path string) bool {
	return t.turns.pause(scope{key, t.resources.find(key, path)}, t.now()) > 0
}

// Pause holds requests of this key back for d, as an answer with Retry-After does: MaxPause bounds
// it, and Jitter is added. A pause that is shorter than the current one, or not positive, changes
// nothing.
func (t *Transport) Pause(key string, d time.Duration) { t.pause(scope{key: key}, d) }

func (t *Transport) pause(s scope, d time.Duration) {
	d = min(d, cmp.Or(t.MaxPause, defaultMaxPause))
	if d <= 0 {
		return
	}
	if t.Jitter > 0 {
		d += min(rand.N(t.Jitter), never-d)
	}
	now := t.now()
	t.turns.extend(s, now.Add(d), now)
}

// CloseIdleConnections closes the idle connections of Base, for [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper { return cmp.Or(t.Base, http.DefaultTransport) }

func (t *Transport) now() time.Time {
	if t.Now != nil {
		return t.Now()
	}
	return time.Now()
}

func (t *Transport) key(r *http.Request) string {
	if t.Key != nil {
		return t.Key(r)
	}
	port := r.URL.Port()
	host := strings.ToLower(strings.TrimRight(strings.TrimSuffix(r.URL.Host, ":"+port), "."))
	if port == "" || r.URL.Scheme == "http" && port == "80" ||
		r.URL.Scheme == "https" && port == "443" {
		return host
	}
	return host + ":" + port
}

// wait waits until a request of path has the turn and its limit admits it.
//
// The Limit decides as of the instant at which the request was due, or the nearest that it can: so
// requests that wait keep its rate, although each is late.
func (t *Transport) wait(ctx context.Context, s scope, path string, arrival uint64) (err error) {
	w := t.turns.join(s, arrival, t.now())
	defer lines.Line()()
	defer func() { t.turns.leave(w, err == nil, t.now()) }()
	for {
		d, first, turn := t.turns.look(w, t.resources.find(s.key, path), t.now())
		switch {
		case d > 0 && t.hopeless(ctx, d):
			return t.refusal(s.key, d, true)
		case d > 0 && first:
			if err := sleep(ctx, d); err != nil {
				return &LimitError{Key: s.key, Wait: d, Server: true, Err: err}
			}
		case turn:
			sent, err := t.takeTurn(ctx, w, path)
			if sent || err != nil {
				return err
			}
		default:
			select {
			case <-w.wake:
			case <-ctx.Done():
				d := t.turns.pause(w.scope, t.now())
				return &LimitError{Key: s.key, Wait: d, Server: d > 0, Err: ctx.Err()}
			}
		}
	}
}

// takeTurn takes the Limit for w, which has the turn, and reports whether it is sent. If not, it
// has waited until the Limit may admit w, or w is paused.
func (t *Transport) takeTurn(ctx context.Context, w *waiter, path string) (sent bool, err error) {
	out, late, err := t.takeAsOf(ctx, w.key, w.due)
	switch {
	case err != nil:
		return false, err
	case out.Allowed() && !t.isPaused(w.key, path):
		return true, nil
	case out.Allowed(): // a pause has begun since the Limit began to decide
		t.refund(ctx, w.key, &out.Result)
		return false, nil
	}
	w.due = out.ExpiresAt
	if late {
		return false, nil
	}
	if t.hopeless(ctx, out.Wait) {
		return false, t.refusal(w.key, out.Wait, false)
	}
	if err := sleep(ctx, out.Wait); err != nil {
		return false, &LimitError{Key: w.key, Wait: out.Wait, Err: err}
	}
	return false, nil
}

// takeAsOf is take for a request that was due at an instant; the zero time stands for the present.
// late reports of a denial that the instant which it names has passed too.
func (t *Transport) takeAsOf(
	ctx context.Context, key string, due time.Time,
) (out weir.Outcome, late bool, err error) {
	if t.Limit == nil || due.IsZero() {
		out, err = t.take(ctx, key)
		return out, false, err
	}
	as := lines.At(ctx, due)
	res, err := t.Limit.Run(as, &weir.Request{Key: key, Cost: 1})
	if err != nil {
		return out, false, notSent(key, err)
	}
	out.Result, out.Wait = *res, res.RetryAfter(t.now())
	return out, as.Used() && out.Wait == 0 && res.ExpiresAt.After(due), nil
}

func notSent(key string, err error) error {
	return fmt.Errorf("httpclient: request for %q not sent: %w", key, err)
}

// take takes one hit of the Limit, if there is one.
func (t *Transport) take(ctx context.Context, key string) (out weir.Outcome, err error) {
	if t.Limit == nil {
		out.State = weir.Allow
		return out, nil
	}
	out, err = t.Limit.Take(ctx, key, 1)
	if err != nil {
		err = notSent(key, err)
	}
	return out, err
}

// refund gives back what the Limit admitted, even if ctx has ended.
func (t *Transport) refund(ctx context.Context, key string, taken *weir.Result) {
	if t.Limit == nil {
		return
	}
	op := &weir.Op{Verb: weir.OpReturn, Request: weir.Request{Key: key, Cost: 1},
		Result: *taken}
	_ = weir.Do(context.WithoutCancel(ctx), t.Limit, op) // if it fails, it stays counted
}

// peek returns an error if a request of s would have to wait for a pause, or for its limit, for
// longer than it can, as far as the Limit can be peeked at.
func (t *Transport) peek(ctx context.Context, s scope) error {
	if d := t.turns.pause(s, t.now()); d > 0 && t.hopeless(ctx, d) {
		return t.refusal(s.key, d, true)
	}
	if t.Limit == nil {
		return nil
	}
	out, err := t.Limit.Peek(ctx, s.key)
	if err != nil || out.Allowed() || !t.hopeless(ctx, out.Wait) {
		return nil //nolint:nilerr // Take reports it
	}
	return t.refusal(s.key, out.Wait, false)
}

// hopeless reports whether the request must not wait for d, or would not be sent after it.
func (t *Transport) hopeless(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return t.NoWait || d == never || ok && time.Until(deadline) < d
}

// refusal returns the error of a request that is hopeless.
func (t *Transport) refusal(key string, d time.Duration, server bool) error {
	e := &LimitError{Key: key, Wait: d, Server: server}
	if !t.NoWait && d != never {
		e.Err = context.DeadlineExceeded
	}
	return e
}

// pauseFor records the pause that resp asks for, and the resource of path that it names.
func (t *Transport) pauseFor(key, path string, resp *http.Response) {
	d, quota := requestedPause(resp, t.now())
	s := scope{key: key}
	name := resp.Header.Get(resourceField)
	if name != "" && t.resources.learn(key, path, name) && quota {
		s.resource = name
	}
	t.pause(s, d)
}
