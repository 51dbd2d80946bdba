package redislimit

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
	"github.com/weirgo/weir"
)

// The ends of the keys beside a count, after its key.
const (
	resetKey   = ":reset"   // the number of the last reset; see reset.lua
	backKey    = ":back"    // when something was last taken back; see take_back.lua
	chargedKey = ":charged" // the totals of backlogs; see reconcile.lua
)

// admissionValues is how many numbers admission.lua and reconcile.lua add to the strategy's: the
// number of the last reset.
const admissionValues = 1

// The numbers of a Receipt: the first two are the instant that names the admission.
const (
	receiptReset = 2 // the number of the last reset of the key before it
	receiptCost  = 3 // of the admission
)

// maxSource is the longest Source of a weir.Backlog, in bytes.
const maxSource = 64

// call is one script, which does one op.
type call struct {
	op       *weir.Op
	strategy *Strategy
	script   *script
	now      reading
	key      string
	beside   []string // the ends of the keys beside it
	args     []any    // began as Store.args; nil if there is nothing to call
	possible bool     // the request can pass
	cmd      *redis.ZeroCopyStringCmd
	reply    numbers
	err      error
}

// prepare sets the call, and reports false if there is nothing to call: the request is bad, or
// there is nothing to give back.
func (c *call) prepare() bool {
	c.script, c.now = c.strategy.script, c.strategy.store.read()
	c.op.Err = c.compose()
	if c.op.Err != nil || c.args == nil {
		return false
	}
	c.args = at(c.args, c.now)
	return true
}

// command returns the command, with evalsha or eval as its word. go-redis never retries a
// ZeroCopyStringCmd, whatever the client's settings, and Cluster's redirections follow only answers
// that say the command was not run. Nor does its reply allocate the length that a malicious server
// states: each number has at most 17 bytes and a space or the two bytes of the end.
func (c *call) command(ctx context.Context, word any) redis.Cmder {
	if c.cmd == nil { // else the keys are there
		c.args[2], c.args[3] = 1+len(c.beside), c.key
		for i, suffix := range c.beside {
			c.args = slices.Insert(c.args, head+i, any(c.key+suffix))
		}
	}
	c.args[0], c.args[1] = word, c.script.digest
	if word == eval {
		c.args[1] = c.script.source
	}
	c.cmd = redis.NewZeroCopyStringCmd(ctx, make([]byte, 8+20*c.script.values), c.args...)
	return c.cmd
}

// sent reports whether the command was sent, with a script that the server knows.
func (c *call) sent() bool {
	if c.cmd == nil {
		return false
	}
	err := c.cmd.Err()
	return err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") // which allocates for a nil, too
}

// compose sets the script, and its keys and arguments.
func (c *call) compose() (err error) {
	s, op := c.strategy, c.op
	switch {
	case op.Verb == weir.OpReset:
		c.key, err = s.key(&op.Request)
		c.resets()
	case op.Verb == weir.OpReturn:
		err = c.prepareReturn()
	case op.Verb == weir.OpTake && op.Backlog != nil:
		err = c.prepareReconcile(opRun)
	case op.Verb == weir.OpCatchUp:
		err = c.prepareReconcile(opPeek)
	default:
		c.key, c.args, c.possible, err = s.prepare(names[op.Verb], &op.Request, cost(&op.Request))
		switch {
		case err != nil:
		case op.Verb == weir.OpHold:
			c.prepareHold()
		case op.Verb == weir.OpRenew, op.Verb == weir.OpRelease:
			c.preparePlace()
		case op.Verb == weir.OpTake && op.Keep && c.possible:
			c.script, c.beside = s.script.load().admitting, []string{resetKey}
		}
	}
	return err
}

// resets has the call clear the count of its key. If there was one, it leaves two keys of 100 bytes
// each for as long as that would have lived.
func (c *call) resets() {
	c.script, c.beside = reset, []string{resetKey, backKey}
	c.args = append(make([]any, head, head+4), "reset", 1+rand.Int64N(maxCount))
}

// names are the operations of the scripts, ready to be arguments.
var names = [...]any{weir.OpTake: opRun, weir.OpPeek: opPeek, weir.OpCharge: "charge",
	weir.OpHold: opRun, weir.OpRenew: "renew", weir.OpRelease: "release"}

// prepareReturn gives cost back: to the admission of the Receipt, or without one inside the same
// period only. A cost over the limit was never admitted, and nothing is given back. In a log or
// list it costs 10 µs of the server's time for each later hit; without a Receipt nothing is given
// back if there are more than 1000 of them. A key of 100 bytes stays beside the count, for as
// long as that lives.
//
// Without a Receipt, by the server's clock the ExpiresAt that the script knows is known here up to
// a round trip: of a log or in flight that hit or lease gives back which is next to it. If the
// server's clock was set since the admission, the cost may be lost.
func (c *call) prepareReturn() (err error) {
	s, op := c.strategy, c.op
	r := &op.Request
	if op.Receipt.Of == nil {
		var possible bool
		c.key, c.args, possible, err = s.prepare("refund", r, cost(r))
		if err != nil || !possible || !op.Result.Allowed() || op.Result.ExpiresAt.IsZero() {
			c.args = nil
			return err
		}
		c.args = append(c.args, c.now.refunded(op.Result.ExpiresAt, r.Duration)...)
		c.args = append(c.args, "")
	} else {
		n := min(max(1, r.Cost), op.Receipt.Cost)
		if n == 0 {
			return nil
		}
		before := op.Receipt.N[receiptCost] - int64(op.Receipt.Cost)
		op.Receipt.Cost -= n
		where := instant{op.Receipt.N[0], op.Receipt.N[1]}
		name, where := s.protocol.returned(r, where, before)
		c.key, c.args, _, err = s.prepare(name, r, int64(n))
		if err != nil {
			return err
		}
		c.args = append(c.args, where.s, where.ns, 0, 0,
			strconv.FormatInt(op.Receipt.N[receiptReset], 10))
	}
	c.takesBack()
	return nil
}

// takesBack has the script of the call take back, and leave when.
func (c *call) takesBack() {
	c.script, c.beside = c.strategy.script.load().takingBack, []string{resetKey, backKey}
}

// prepareReconcile resets the count of the key, if the Backlog says so, or raises it to its
// Counted, unless something was taken back since, charges its debt as far as that was not charged
// before, and decides by op, in one script. The script can be repeated when its answer was lost:
// the debt is charged once, for as long as the server keeps its data. For that the server keeps the
// last Total of each source beside the count: for as long as the count, or as a debt may count, if
// that is longer: a Duration of a Counter or List, and the time in which a whole token bucket
// fills.
//
// Without a Source, which a decision must have, nothing is kept: the debt is charged each time.
func (c *call) prepareReconcile(op any) (err error) {
	b, unnamed := c.op.Backlog, c.op.Verb == weir.OpCatchUp
	if n := len(b.Source); n == 0 && !unnamed || n > maxSource || b.Total < b.Charged {
		return fmt.Errorf("redislimit: backlog of source %q, from %d to %d: %w", b.Source, b.Charged,
			b.Total, weir.ErrLimit)
	}
	s, r := c.strategy, &c.op.Request
	var decision []any
	c.key, decision, c.possible, err = s.prepare(op, r, cost(r))
	if err != nil {
		return err
	}
	// The decision was asked for without an error, and so are these.
	charge, _, _ := s.protocol.ask(nil, r, 1)
	var seed []any
	if n := b.Counted; n != nil && n.TotalRequests > 0 && !n.ExpiresAt.IsZero() {
		seed, _, _ = s.protocol.ask(nil, r, clamp(n.TotalRequests))
		seed = append(seed, c.now.seeded(n.ExpiresAt)...)
	}
	reset := int64(0)
	if b.Reset {
		reset = numberOf(cmp.Or(b.Source, newID("s")))
	}
	age, known := knownAt(b.CountedAt, c.now)
	shared, own := decision[:head+2], decision[head+2:]
	c.args = slices.Concat(shared, []any{b.Source, clamp(b.Charged), clamp(b.Total), s.script.cost,
		s.script.width, age, known, reset, len(seed)}, seed, []any{len(charge)}, charge, own,
		[]any{s.protocol.life(r).Milliseconds()})
	c.script, c.beside = s.script.load().reconciling, []string{chargedKey, backKey, resetKey}
	return nil
}

// prepareHold takes a lease that is renewed until it is released. If its answer was lost, what it
// has taken counts for one Duration.
func (c *call) prepareHold() {
	id := newID("h")
	c.args[len(c.args)-1] = id
	c.op.Receipt = weir.Receipt{Of: id}
}

// preparePlace renews or releases a lease. A release costs as much as an OpReturn.
func (c *call) preparePlace() {
	op := c.op
	c.args[len(c.args)-1] = op.Receipt.Of
	c.args = append(c.args, op.Receipt.N[0], op.Receipt.N[1])
	if op.Verb == weir.OpRelease {
		c.args = append(c.args, "")
		c.takesBack()
	}
}

// finish sets the outcome of the op from the reply.
func (c *call) finish() error {
	op := c.op
	switch op.Verb {
	case weir.OpTake, weir.OpPeek, weir.OpHold:
	case weir.OpRenew:
		c.renewed()
		return nil
	default:
		return nil
	}
	d, err := c.strategy.result(op, c.reply, c.possible, c.now)
	switch {
	case err != nil:
		return err
	case op.Verb == weir.OpHold:
		c.held(d)
	case op.Verb == weir.OpTake && op.Keep:
		c.admitted(d)
	}
	return nil
}

// admitted sets the Receipt of an admission. Beside the key its script has read one more, which
// exists only after a reset.
func (c *call) admitted(d decision) {
	op := c.op
	op.Receipt = weir.Receipt{Of: c.strategy.store}
	if !d.allowed || !c.possible {
		return
	}
	at := c.strategy.protocol.admitted(d, c.strategy.script.clock(c.reply))
	n := cost(&op.Request)
	op.Receipt.Cost = uint64(n)
	op.Receipt.N = [...]int64{at.s, at.ns, receiptReset: c.reply[c.script.values-1], receiptCost: n}
}

// held sets the Receipt of a lease: its ID, and its end.
func (c *call) held(d decision) {
	if !c.op.Result.Allowed() {
		c.op.Receipt = weir.Receipt{}
		return
	}
	c.op.Receipt.Cost = uint64(cost(&c.op.Request))
	c.op.Receipt.N = [4]int64{d.at.s, d.at.ns}
}

// renewed sets the Result of an OpRenew.
func (c *call) renewed() {
	c.op.Result = weir.Result{}
	if c.reply[0] == 0 {
		return
	}
	c.op.Result.State = weir.Allow
	c.op.Receipt.N[0], c.op.Receipt.N[1] = c.reply[2], c.reply[3]
}
