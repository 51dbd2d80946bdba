package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/clock"
	"github.com/weirgo/weir/internal/core/engine"
)

// Counter is a Strategy that can be asked for more than Run. The strategies of a [Limiter], of
// redislimit, fallback and near are Counters, and so is the one behind a [Limit]: see [CounterOf].
// A Counter is safe for concurrent use.
//
// A wrapper around another Counter is one method: its Do changes ops, hands them on, and reads
// the outcomes. An unknown verb goes on unchanged. The wrapper's Run is [Run], and its About the
// other one's, made its own by [About.By].
type Counter interface {
	Strategy

	// About returns the description of the Counter: the same at each call, which nobody changes.
	About() *About

	// Do does ops in order, sets the Result or the Err of each, and keeps none of them. Ops of
	// Counters with one Store may go together; others are of this Counter alone. Do leaves an Op as
	// it was given, except for the Verb's outcome.
	//
	// A bad Request gets the error of [About.Check], a verb that the Counter cannot do
	// Op.Unsupported, and any op that is done a nil Err. A decision, which OpTake, OpTakeAll,
	// OpLookup, OpHold and OpPeek make, has a Source and Left, where these are known.
	Do(ctx context.Context, ops []*Op)
}

// Verb says which operation an [Op] is. A Counter that cannot do it sets an Err that wraps
// [errors.ErrUnsupported], and does nothing.
type Verb uint8

// The verbs. Each has a Request in, and an Err out.
const (
	// OpTake decides, as Run does: Result, Left and Source out. With Keep a Receipt is out too;
	// with a Backlog the Counter first catches up.
	OpTake Verb = iota

	// OpTakeAll is OpTake of all ops of one call, each of them with this verb: if one is denied,
	// none counts, and each Result is as of an OpPeek. A Counter may leave them undone, for the
	// caller to take one by one: then the first has an Err that wraps [errors.ErrUnsupported].
	OpTakeAll

	// OpPeek sets the Result that OpTake would set now, and counts and creates nothing.
	OpPeek

	// OpReturn gives Cost of an admission back: of the one with the Receipt, whose Cost it lowers, or
	// without one of an admission with the Result. It does nothing for a denial, for a Cost over the
	// limit, once the period has ended, and with a Receipt after a reset. A count never falls below
	// zero.
	OpReturn

	// OpCharge counts Cost whether it fits or not.
	OpCharge

	// OpReset sets the count of Key in Duration to zero.
	OpReset

	// OpResetPrefix sets the counts of all keys that begin with Key to zero, in every Duration. The
	// empty Key stands for all. Result.TotalRequests out is how many counts that were. Progress,
	// unless nil, is called now and then. A count that begins meanwhile is reset or not.
	OpResetPrefix

	// OpCatchUp catches up with a Backlog, and decides nothing.
	OpCatchUp

	// OpHits lists the admissions that still count, of a Counter that keeps a log: Hits out, newest
	// last.
	OpHits

	// OpHold is OpTake for work that counts until its release: a Receipt out, if admitted. OpRenew
	// keeps the place for another Duration, and takes it again if the lease has ended and there is
	// still room; Result says whether the place is held. OpRelease gives the place back.
	OpHold
	OpRenew
	OpRelease

	// OpLookup is OpTake if that takes no round trip, and otherwise unsupported. OpForget removes all
	// that is known of Key in Duration without one.
	OpLookup
	OpForget

	// OpForecast looks ahead from a Result that was admitted: More out.
	OpForecast

	// OpWarm prepares decisions on Key, such as by a connection, and counts nothing.
	OpWarm
)

var verbs = [...]string{OpTake: "take", OpTakeAll: "take all at once", OpPeek: "peek",
	OpReturn: "refund", OpCharge: "charge", OpReset: "reset", OpResetPrefix: "reset a prefix",
	OpCatchUp: "catch up", OpHits: "list hits", OpHold: "hold", OpRenew: "renew",
	OpRelease: "release", OpLookup: "look up", OpForget: "forget", OpForecast: "forecast",
	OpWarm: "warm up"}

// String returns the verb in words, such as "take".
func (v Verb) String() string {
	if int(v) < len(verbs) {
		return verbs[v]
	}
	return fmt.Sprintf("do verb %d", uint8(v))
}

// Op is one operation of a [Counter], and its outcome.
type Op struct {
	// Counter is whose operation this is. Do does an op of nobody, or of an unknown Counter, as its
	// own.
	Counter Counter

	Verb Verb
	Request

	Keep   bool // OpTake: a Receipt is wanted
	AtOnce bool // OpTake: nobody waits, and who would have to is denied

	// Deciding says that an OpPeek is part of a decision, which a denial ends, and that an OpTake
	// follows such a peek of this Op at once.
	Deciding bool
	Full     bool // OpTake, OpPeek: FullAt is wanted

	Backlog  *Backlog
	Progress func(seen, reset int)

	Receipt Receipt

	Result Result
	Source Source

	// Left is how long Result holds, by the clock of the Counter: from the decision to ExpiresAt. 0 is
	// not known.
	Left time.Duration

	// FullAt is the instant from which nothing counts any more, if nothing else is admitted until
	// then: see [Outcome.FullAt]. The zero time is not known.
	FullAt time.Time

	// More is the earliest instant at which more of Limit is available than after Result, if nothing
	// else is admitted until then. The zero time is not known, or that all is available.
	More time.Time

	Hits []Hit
	Err  error

	call engine.Call // in this process: the sight of a Peek that is Deciding, and the rest if Full
}

// Receipt names an admission, to be given back or renewed. Only the Counter that set the Receipt
// can use it.
type Receipt struct {
	Cost uint64   // that was not given back
	Of   any      // for the Counter
	N    [4]int64 // the same
}

// Source is where a decision was made.
type Source uint8

// The sources.
const (
	Nowhere     Source = iota // nobody decided, or it is not known
	FromLocal                 // in this process; of package fallback: local
	FromPrimary               // of package fallback: primary, in a round trip
	FromLease                 // of package near: a lease, without a round trip
	FromDenials               // of package near: a denial that is repeated
	FromOnFail                // of package fallback: Config.OnFail
)

// String returns the source in lower case, such as "primary".
func (s Source) String() string {
	return [...]string{"", "local", "primary", "lease", "denials", "on_fail"}[s]
}

// About describes a [Counter].
type About struct {
	Of    Counter // whose this is
	Verbs Verbs   // that the Counter can do

	Name   string // of the algorithm, plain, such as "sliding window"; empty: of none that is known
	Burst  uint64 // of a token bucket, if not the Limit
	Tiers  []Tier // that hold at once, the shortest first, whatever a Request says
	Period string // of a calendar: the name of its windows

	// Window is about how long the windows of a calendar are, Longest how long an admission may count
	// beyond its ExpiresAt, of tiers.
	Window, Longest time.Duration

	Lapses   Lapse // how admissions end
	Bound    bool  // the Limit and the Duration of a Request are ignored
	Numbers  Tier  // that hold in place of them, unless there are Tiers
	InFlight bool  // bounds work in flight: a hit must be held, or given back
	Waits    bool  // Run may wait
	// Reconciles: a Backlog may be sent again, and its debts are charged once.
	Reconciles bool
	Prompt     bool // calls end with the deadline of their context, and do not panic

	Limiter *Limiter // that counts, in this process; else nil
	stats   *Limiter // whose Stats have the calls that are mistakes; else nil
	Parts   []*About // of limits.All: the limits that hold at once

	// Instances returns how many processes share the counts, of package fallback. ShareWith has the
	// leases of package near inside follow such a number. Both are nil where there are none.
	Instances func() int
	ShareWith func(instances func() int)

	// Store is equal for Counters whose ops may go together; nil for none.
	Store any

	// Counts is equal for Counters that count together, requests of one Key, and of one Limit and
	// Duration unless Bound; nil if that is not known.
	Counts any

	// Base counts for a Limit elsewhere, by Requests with its Numbers, Lasting and the key that Key
	// returns; nil: requests are counted as they are.
	Base    Counter
	Lasting bool
	Key     func(key string) string

	named Strategy // that String names; nil: Of
}

// String returns Name, or without one the String of Of or of the wrapped Counter, or its type.
func (a *About) String() string {
	if a.Name != "" {
		return a.Name
	}
	s := cmp.Or(a.named, Strategy(a.Of))
	if of, ok := s.(fmt.Stringer); ok {
		return of.String()
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", s), "*")
}

// Until returns until when cost that was admitted for r can be used, if its Result had this
// ExpiresAt. If each is 0 all the cost can be used until then, which is the end of a window of
// r.Duration. Otherwise the hits lapse one after the other, as their tokens flow in again: the last
// at until, and each of the others sooner than the next by each. ok is false if the cost is only
// for r, at once.
func (a *About) Until(
	r *Request, expires time.Time,
) (until time.Time, each time.Duration, ok bool) {
	switch a.Lapses {
	case LapsesWithWindow:
		return expires, 0, true
	case LapsesWithWindows:
		return expires.Add(-r.Duration), 0, true
	case LapsesByToken:
		spacing := algorithm.Spacing(r.Duration.Milliseconds(), clampCost(r.Limit))
		return expires, time.Duration(spacing), true
	}
	return until, 0, false
}

// Check returns the error of a bad Request, for a store: [ErrID] for a bad Key and, unless the
// Counter has a Duration of its own, [ErrScale] for a bad Duration.
func (a *About) Check(r *Request) error {
	switch n := len(r.Key); {
	case n == 0:
		return &inputError{"weir: bad key: it is empty, want 1 to 1024 bytes", ErrID}
	case n > maxID:
		return &inputError{fmt.Sprintf("weir: bad key: %d bytes, at most %d", n, maxID), ErrID}
	case a.Bound || a.Period != "" || a.Window > 0:
		return nil
	}
	return checkDuration(r.Duration)
}

// Unreleasable returns the error of a hit of work in flight, by a call that has no way to release
// it, for a strategy or limit of this name. Stats counts it.
func (a *About) Unreleasable(name string) error {
	err := fmt.Errorf("weir: %s: nobody could release a hit of work in flight: use Hold: %w", name,
		errors.ErrUnsupported)
	if a.stats != nil {
		return a.stats.fail(err)
	}
	return err
}

// Verbs is a set of verbs.
type Verbs uint32

// VerbsOf returns a set.
func VerbsOf(verbs ...Verb) (set Verbs) {
	for _, v := range verbs {
		set |= 1 << v
	}
	return set
}

// Has reports whether v is in the set.
func (set Verbs) Has(v Verb) bool { return set>>v&1 == 1 }

// Lapse is how the cost that a Counter has admitted ends.
type Lapse uint8

// The ways.
const (
	LapsesAnyhow      Lapse = iota // nothing is known
	LapsesAtOnce                   // all of it at ExpiresAt
	LapsesWithWindow               // the same, and that is the end of a window of one Duration
	LapsesWithWindows              // counts in its window, and less and less in the next one
	LapsesByToken                  // one token after the other, the last at ExpiresAt
)

// By returns the About of a wrapper: the same, of c, whose ops go with nobody's, and which counts
// by itself.
func (a *About) By(c Counter) *About {
	b := *a
	b.named = cmp.Or(b.named, Strategy(b.Of))
	b.Of, b.Store, b.Counts, b.Base = c, nil, nil, nil
	b.Verbs &^= VerbsOf(OpTakeAll)
	if equal(c, c) {
		b.Counts = c
	}
	return &b
}

// Run is the Run of a Counter: an [OpTake] of r.
func Run(ctx context.Context, c Counter, r *Request) (*Result, error) {
	x := calls.Get().(*call)
	defer x.put()
	x.op.Request = *r
	x.do(ctx, c)
	if x.op.Err != nil {
		return nil, x.op.Err
	}
	res := x.op.Result
	return &res, nil
}

// call is a call of a Counter, which does not keep its ops.
type call struct {
	op  Op
	ops [1]*Op
}

var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) put() {
	*c = call{}
	calls.Put(c)
}

// do has a Counter do the op.
func (c *call) do(ctx context.Context, of Counter) {
	c.op.Counter, c.ops[0] = of, &c.op
	of.Do(ctx, c.ops[:])
}

// setErr sets the outcome of a decision that failed.
func (op *Op) setErr(err error) {
	op.Result, op.Left, op.Source, op.Err = Result{}, 0, Nowhere, err
}

// The numbers of a Receipt in this process. The first two name its bucket.
const (
	receiptExpires = 2 // ExpiresAt
	receiptCost    = 3 // of the admission
)

// receipt sets the Receipt of an op that was decided there, with this ExpiresAt.
func (op *Op) receipt(at *engine.Mark, expires int64) {
	op.Receipt = Receipt{Of: at.Of}
	if op.Result.Allowed() {
		op.Receipt.Cost = max(1, op.Cost)
	}
	copy(op.Receipt.N[:], at.N[:])
	op.Receipt.N[receiptExpires], op.Receipt.N[receiptCost] = expires, int64(op.Receipt.Cost)
}

// returned sets the cost of r to the cost that an OpReturn gives back, which may be 0, and takes
// that from the Receipt. It returns the admission.
func (op *Op) returned(r *Request, c *clock.Clock) (t engine.Taken) {
	r.Cost = max(1, op.Cost)
	if op.Receipt.Of == nil {
		if !op.Result.Allowed() {
			r.Cost = 0
		}
		t.Expires = c.Instant(op.Result.ExpiresAt)
		return t
	}
	n := &op.Receipt.N
	r.Cost = min(r.Cost, op.Receipt.Cost)
	t.Of, t.N, t.Expires = op.Receipt.Of, [2]int64(n[:2]), n[receiptExpires]
	t.Before = n[receiptCost] - int64(op.Receipt.Cost)
	op.Receipt.Cost -= r.Cost
	return t
}

// Unsupported returns the error of an op that a Counter cannot do.
func (op *Op) Unsupported(a *About) error {
	return fmt.Errorf("weir: %v cannot %v: %w", a, op.Verb, errors.ErrUnsupported)
}

// clampCost returns n, or the largest int64.
func clampCost(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
