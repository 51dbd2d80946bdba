package redislimit

import (
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/arith"
)

// clocks relates the clock of this process to the server's. The scripts have the server's, and
// answer with it; Results have the instants of this process, so that whoever subtracts its own time
// from one gets how long that is.
//
// The two are taken to differ as they did before, as long as replies allow that: the server read
// its clock between the sending of the command and the arrival of the reply. So one instant is the
// same in every Result, and the instants of clocks that agree are the server's own. An instant is
// late, or early, by at most one round trip: a request that is sent then arrives when it passes.
type clocks struct {
	here  func() time.Time // the clock of this process
	began time.Time        // a reading of it

	// ahead is the time that has passed here since began, less the server's Unix time, in ns.
	ahead atomic.Int64
}

// lateness is by how much a difference of the clocks may be too large until a faster reply replaces
// it.
const lateness = time.Millisecond

// start has the clocks agree, until a reply shows that they do not.
func (c *clocks) start(here func() time.Time) {
	c.here, c.began = here, here()
	c.ahead.Store(arith.Sub(0, instantOf(c.began).unixNano()))
}

// observe corrects the difference of the clocks by a reply: the server's clock was read at server,
// after a command was sent and before its reply was received.
func (c *clocks) observe(sent, received time.Time, server instant) {
	unix := server.unixNano()
	// The server's reading is a whole number of microseconds.
	least := arith.Sub(int64(sent.Sub(c.began)), arith.Add(unix, int64(time.Microsecond)))
	most := arith.Sub(int64(received.Sub(c.began)), unix)
	if now := c.ahead.Load(); now < least || arith.Sub(now, int64(lateness)) > most {
		c.ahead.Store(most)
	}
}

// local returns the instant of this process at which the server's clock shows i. It carries a
// monotonic reading, so that its distance to time.Now stays right when the clock here is set.
func (c *clocks) local(i instant) time.Time {
	return c.began.Add(time.Duration(arith.Add(i.unixNano(), c.ahead.Load())))
}

// server returns the instant on the server's clock for one of this process.
func (c *clocks) server(t time.Time) instant {
	return ofUnixNano(arith.Sub(int64(t.Sub(c.began)), c.ahead.Load()))
}

// reading is the clock of one command: a reading of Config.Now, by which the script decides, or
// when the command was sent.
type reading struct {
	clocks *clocks // nil: of Config.Now
	now    time.Time
}

// observe takes the clock that a reply ends with.
func (r reading) observe(server instant) {
	if r.clocks != nil {
		r.clocks.observe(r.now, r.clocks.here(), server)
	}
}

// local returns the instant i of a script, for a Result.
func (r reading) local(i instant) time.Time {
	if r.clocks != nil {
		return r.clocks.local(i)
	}
	// with the location and the monotonic reading of now
	return r.now.Add(time.Duration(arith.Sub(i.unixNano(), instantOf(r.now).unixNano())))
}

// server returns the instant of a Result as a script has it.
func (r reading) server(t time.Time) instant {
	if r.clocks != nil {
		return r.clocks.server(t)
	}
	return instantOf(t)
}

// seeded returns the two instants that end the arguments of a seed: when the count expires, and how
// long that is from now, by which it holds if the server's clock was set.
func (r reading) seeded(expires time.Time) []any {
	end := r.server(expires)
	s, ns := arith.FloorDiv(int64(expires.Sub(r.now)), second)
	return []any{end.s, end.ns, s, ns}
}

// refunded returns the two instants that end the arguments of a refund: the ExpiresAt of what was
// taken, and how far off that may be: none is on the clock of Config.Now.
func (r reading) refunded(expires time.Time, d time.Duration) []any {
	end, off := r.server(expires), instant{}
	if r.clocks != nil {
		off = ofDuration(slack)
		if 0 < d && d < 2*slack {
			off = ofDuration(d / 2)
		}
	}
	return []any{end.s, end.ns, off.s, off.ns}
}
