package httplimit

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/throttle"
)

// logSecret prevents reversing the digests in the log by trying all addresses.
var logSecret = rand.Text()

// logEvery bounds the log: a failing store fails every request.
const logEvery = time.Second

// throttles has one throttle for each kind of record, so that a flood of one kind does not hide
// another.
type throttles struct {
	failure, full, penalty, shared, release, decider, overload throttle.Throttle
}

// logFailures logs which Strategies failed, unless the request ended for that as a client's fault.
func (c *call) logFailures(ctx context.Context) {
	for i := range c.states {
		s := &c.states[i]
		l := s.ask
		if l.Err == nil || i == c.decider && (c.kind == Canceled || c.kind == NoKey) {
			continue
		}
		t := &c.throttles.failure
		if errors.Is(l.Err, weir.ErrFull) {
			t = &c.throttles.full
		}
		d := Decision{Kind: c.kind, Shadow: c.shadow, Err: l.Err}
		s.describe(&d)
		if l.Taken() {
			d.Err = fmt.Errorf("refund: %w", l.Err)
		}
		c.log(ctx, t, slog.LevelError, "httplimit: the limiter failed", s.caller(c.key),
			d.LogValue().Group()...)
	}
}

// log writes a record if t allows it.
func (m *middleware) log(
	ctx context.Context, t *throttle.Throttle, level slog.Level, msg, key string, attrs ...slog.Attr,
) {
	dropped, ok := t.Allow(m.Now(), logEvery)
	if !ok {
		return
	}
	attrs = append(attrs, slog.String("key", m.logKey(key)))
	if dropped > 0 {
		attrs = append(attrs, slog.Uint64("not_logged", dropped))
	}
	cmp.Or(m.Logger, slog.Default()).LogAttrs(ctx, level, msg, attrs...)
}

// logKey returns the key quoted or, unless LogKeys is set, its digest.
func (m *middleware) logKey(key string) string {
	if m.LogKeys {
		return strconv.QuoteToASCII(key)
	}
	mac := hmac.New(sha256.New, []byte(logSecret))
	mac.Write([]byte(key))
	return "hmac:" + hex.EncodeToString(mac.Sum(nil)[:8])
}

// escape escapes bytes that could forge a line of a log or control a terminal, and leaves plain
// text unchanged.
func escape(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return quoted[1 : len(quoted)-1]
}
