package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weirgo/weir"
)

const (
	defaultMaxPause = 10 * time.Minute

	// maxPaused bounds the servers whose pause is remembered. One that finds no room is not paused for.
	maxPaused = 10_000
)

// LimitError is the error of a request that [Transport] did not send.
type LimitError struct {
	Key    string        // what the request is limited by: its host, unless Transport.Key says otherwise
	Wait   time.Duration // how long it would have had to wait; the largest Duration: it can never pass
	Server bool          // the server asked for it; false: the limit of one's own
	Err    error         // the context's error; nil if nobody waited
}

// Error says who keeps the request back, and for how long.
func (e *LimitError) Error() string {
	who := "over the client's own limit"
	if e.Server {
		who = "the server asked for a pause"
	}
	s := fmt.Sprintf("httplimit: request for %q not sent: %s, wait %v", e.Key, who, e.Wait)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the context's error.
func (e *LimitError) Unwrap() error { return e.Err }

// Transport is an http.RoundTripper that keeps an outgoing client under a limit of its own, and heeds what servers say
// about theirs: Retry-After (seconds or a date) on a 429 or 503, and on any answer a RateLimit field that says nothing is
// left, in the forms of the drafts up to 11, or X-RateLimit-Remaining and -Reset. After either it sends nothing to that
// server until the time has come.
//
// A request that must wait waits as long as its context lets it; if the context's deadline comes first it fails at once.
// What keeps a request back is a [LimitError]. Transport never sends a request twice: a retry, and whether the body can
// be sent again, is the caller's affair.
//
// Its zero value has no limit of its own and heeds servers. It is safe for concurrent use, and must not be copied or
// changed after the first request.
type Transport struct {
	// Base sends the requests. nil: http.DefaultTransport.
	Base http.RoundTripper

	// Strategy is the limit of one's own, run with Limit and Duration for each request. nil: none.
	Strategy weir.Strategy
	Limit    uint64
	Duration time.Duration

	// Key returns what requests are limited by, and paused by: those with the same key share a limit. nil: the host and
	// port asked for.
	Key func(*http.Request) string

	// NoWait makes a request that would have to wait fail at once.
	NoWait bool

	// MaxPause bounds what a server is believed: it pauses this client for no longer. 0: 10 minutes; negative: servers
	// are not heeded.
	MaxPause time.Duration

	// Now is the clock that waits are counted from; it must agree with the Strategy's. nil: time.Now.
	Now func() time.Time

	mu     sync.Mutex
	paused map[string]time.Time // guarded by mu; until when, by key
}

// RoundTrip sends r when its turn has come. It closes the body if it does not send it, as a RoundTripper must.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key := t.key(r)
	if err := t.admit(r.Context(), key); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // nothing was read from it
		}
		return nil, err
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	resp, err := base.RoundTrip(r)
	if err == nil {
		t.heed(key, resp)
	}
	return resp, err
}

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
	return r.URL.Host
}

// admit waits until neither the server nor the limit of one's own keeps the request back.
func (t *Transport) admit(ctx context.Context, key string) error {
	for {
		if pause := t.pause(key); pause > 0 {
			if err := t.wait(ctx, &LimitError{Key: key, Wait: pause, Server: true}); err != nil {
				return err
			}
			continue // another answer may have made the pause longer
		}
		if t.Strategy == nil {
			return nil
		}
		res, err := t.Strategy.Run(ctx, &weir.Request{Key: key, Limit: t.Limit, Duration: t.Duration})
		switch {
		case err != nil:
			return fmt.Errorf("httplimit: request for %q not sent: %w", key, err)
		case res == nil:
			return errNoResult
		case res.Allowed():
			return nil
		}
		if err := t.wait(ctx, &LimitError{Key: key, Wait: res.RetryAfter(t.now())}); err != nil {
			return err
		}
	}
}

// wait waits as long as e says, or returns e if that is not to be.
func (t *Transport) wait(ctx context.Context, e *LimitError) error {
	if t.NoWait || e.Wait == never {
		return e
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < e.Wait {
		e.Err = context.DeadlineExceeded // to wait for it would be in vain
		return e
	}
	// A denial whose time has come already is still one tick of the clock away.
	timer := time.NewTimer(max(e.Wait, time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		e.Err = ctx.Err()
		return e
	}
}

// pause returns how much longer the server asked to be left alone.
func (t *Transport) pause(key string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, ok := t.paused[key]
	if !ok {
		return 0
	}
	left := until.Sub(t.now())
	if left <= 0 {
		delete(t.paused, key)
	}
	return left
}

// heed remembers what resp asks for. A later answer never makes a pause shorter: it may have overtaken an earlier one.
func (t *Transport) heed(key string, resp *http.Response) {
	limit := t.MaxPause
	if limit == 0 {
		limit = defaultMaxPause
	}
	now := t.now()
	d := min(askedPause(resp, now), limit)
	if d <= 0 {
		return
	}
	until := now.Add(d)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.paused == nil {
		t.paused = make(map[string]time.Time)
	}
	if old, ok := t.paused[key]; ok && !until.After(old) {
		return
	} else if !ok && len(t.paused) >= maxPaused && !t.forgetOver(now) {
		return
	}
	t.paused[key] = until
}

// forgetOver removes the pauses that are over, and reports whether there is room now. mu is held.
func (t *Transport) forgetOver(now time.Time) bool {
	for key, until := range t.paused {
		if !until.After(now) {
			delete(t.paused, key)
		}
	}
	return len(t.paused) < maxPaused
}
