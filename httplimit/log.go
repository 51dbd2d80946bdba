package httplimit

import (
	"context"
	"crypto/rand"
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

// escape escapes bytes that could forge a line of a log or control a terminal, and leaves plain
// text unchanged.
func escape(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return quoted[1 : len(quoted)-1]
}
