package weir

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/core/engine"
	"github.com/weirgo/weir/internal/core/ids"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/windows"
)

// decider decides for a Limit. It is immutable.
type decider struct {
	counter  Counter // counts for the limit, whatever the numbers of a request
	about    *About  // of the counter
	most     uint64  // of Outcome.Left
	inFlight bool    // bounds work in flight: a hit that nobody releases is a mistake
	own      bool    // the counter is of this package

	// of a strategy on slots; nil for others
	l      *Limiter
	table  *slots.Table
	slots  *slotStrategy
	params params       // of a cost of 1
	key    slots.Period // where it is no window's

	tiered []*Limit // with the numbers of each tier, the shortest first
}

func newDecider(m *Limit) *decider {
	d := &decider{most: m.n}
	c := CounterOf(m.strategy)
	d.inFlight = c.About().InFlight
	own, ok := c.(own)
	if !ok {
		d.counter = newKeyed(m, c)
		d.about = d.counter.About()
		d.most = cmp.Or(d.about.Burst, m.n)
		d.tiered = d.ofTiers(m)
		return d
	}
	s, err := own.bind(m)
	if err != nil {
		s = newFailing(c, err)
	}
	d.counter, d.about, d.own = s, s.About(), true
	if s, ok := s.(onSlots); ok {
		d.slots = s.onSlots()
		d.l, d.table = d.slots.l, d.slots.in.Table
		d.params = d.slots.one
		d.key, d.most = d.slots.in.Period(d.params.Scale), uint64(d.params.Limit)
	}
	d.tiered = d.ofTiers(m)
	return d
}

// ofTiers returns a limit with the numbers of each tier of m, which d decides for.
func (d *decider) ofTiers(m *Limit) (all []*Limit) {
	for _, tier := range d.about.Tiers {
		part := &Limit{strategy: m.strategy, n: tier.Limit, d: tier.Duration, name: m.name,
			failOpen: m.failOpen}
		part.made.Store(d)
		all = append(all, part)
	}
	return all
}

// newFailing returns the Counter of a Limit that cannot count by c: each op fails, and Stats counts
// that.
func newFailing(c Counter, err error) Counter {
	f := byFunc(About{}, func(_ context.Context, op *Op) { op.Err = c.About().Limiter.fail(err) })
	f.about, f.all = *c.About().By(f), true
	return f
}

// find returns the slot of a known caller, with its state as read before the key was compared, and
// its window if the limit counts in fixed windows. It returns nil for an unknown caller, and for
// keys and limiters that fail. The clock is to be read after find, as in engine.Slots.Take.
func (d *decider) find(key string) (slot *slots.Slot, state slots.Word, w *windows.Window) {
	if d.slots == nil || uint(len(key)-1) >= maxID || d.l.closed.Load() {
		return nil, 0, nil
	}
	p, w := d.current()
	t := d.table
	if len(key) > ids.Inline {
		slot, state, _ = t.Find(key, p)
		return slot, state, w
	}
	k := t.PackShort(key)
	slot, state, _ = t.Index(k.Hash).FindShort(k, len(key), p)
	return slot, state, w
}

// findBytes is find.
func (d *decider) findBytes(key []byte) (slot *slots.Slot, state slots.Word, w *windows.Window) {
	if len(key) <= ids.Inline {
		return d.find(string(key)) // a copy on the stack
	}
	if d.slots == nil || len(key) > maxID || d.l.closed.Load() {
		return nil, 0, nil
	}
	p, w := d.current()
	slot, state = d.table.FindLongBytes(key, p)
	return slot, state, w
}

// current returns the period of the buckets and, of fixed windows, the latest window, which may
// have ended: current reads no clock.
func (d *decider) current() (*slots.Period, *windows.Window) {
	if d.slots.series == nil {
		return &d.key, nil
	}
	w := d.slots.series.Current.Load()
	return &w.Fixed, w
}

// decide decides on r for m by any strategy, or only looks.
func (d *decider) decide(ctx context.Context, m *Limit, look bool, r *Request) (Outcome, error) {
	if d.inFlight && !look {
		return Outcome{}, m.unreleasable()
	}
	c := calls.Get().(*call)
	defer c.put()
	c.op.Request = *r
	if look {
		c.op.Verb = OpPeek
	}
	c.op.Full = true
	c.do(ctx, d.counter)
	if c.op.Err != nil {
		return Outcome{}, c.op.Err
	}
	if look && c.op.Result.Allowed() {
		c.op.Result.TotalRequests -= min(1, c.op.Result.TotalRequests)
	}
	return m.Outcome(ctx, &c.op), nil
}

// complete sets the fields of out that a Result does not have.
func (d *decider) complete(out *Outcome, m *engine.Rest) {
	left := uint64(m.Left)
	if len(d.tiered) > 0 {
		out.By = d.tiered[m.Tier]
	} else {
		left = min(d.most, left)
	}
	if m.Unsaid {
		out.Left = left
	}
}

// keyed counts for a [Limit] by a Counter of another package: with the numbers of the limit in
// place of a request's, and under keys that begin with a label.
type keyed struct {
	label   string
	counter Counter
	n       uint64
	d       time.Duration
	lasting bool // see Request
	about   *About
}

// keyedStore is the Store of Limits on one Store.
type keyedStore struct{ of any }

// newKeyed returns the Counter that counts for m by c.
func newKeyed(m *Limit, c Counter) *keyed {
	a := *c.About()
	lasting := m.name != "" && a.Lapses == LapsesByToken // a change of the Duration
	p := &keyed{label: labelOf(m, &a), counter: c, n: m.n, d: m.d, lasting: lasting, about: &a}
	a.named = cmp.Or(a.named, Strategy(a.Of))
	a.Of, a.Bound, a.Numbers = p, true, Tier{m.n, m.d}
	a.Base, a.Lasting = c, lasting
	a.Verbs &^= VerbsOf(OpResetPrefix)
	if a.Store != nil {
		a.Store = keyedStore{a.Store}
	}
	if a.Counts != nil {
		a.Counts = counts{of: a.Counts, scale: m.d.Milliseconds(), bound: true, plan: p.label}
	}
	inner := a.Key
	a.Key = func(key string) string {
		key = p.key(key)
		if inner != nil {
			key = inner(key)
		}
		return key
	}
	return p
}

// About implements [Counter].
func (p *keyed) About() *About { return p.about }

// Run implements [Strategy].
func (p *keyed) Run(ctx context.Context, r *Request) (*Result, error) { return Run(ctx, p, r) }

// Do implements [Counter].
func (p *keyed) Do(ctx context.Context, ops []*Op) {
	type given struct {
		Counter
		Request
	}
	var few [4]given
	all := few[:0]
	for _, op := range ops {
		all = append(all, given{op.Counter, op.Request})
		of, ok := op.Counter.(*keyed)
		if !ok {
			of = p
		}
		op.Counter = of.counter
		op.Limit, op.Duration, op.Lasting = of.n, of.d, of.lasting
		if op.Key != "" { // an empty key is to stay an error
			op.Key = of.key(op.Key)
		}
	}
	if ops[0].Verb == OpResetPrefix { // of keys with their lengths before them
		ops[0].Err = ops[0].Unsupported(p.about)
	} else {
		p.counter.Do(ctx, ops)
	}
	for i, op := range ops {
		op.Counter, op.Request = all[i].Counter, all[i].Request
	}
}

// key returns the key that the strategy gets: of one that is too long with the label its digest
// takes the place, after a character with which no joined key goes on. A key that is too long
// without the label stays an error.
func (p *keyed) key(key string) string {
	counted := p.label + JoinKey(key)
	if len(counted) <= maxID || len(key) > maxID {
		return counted
	}
	label, rest := p.label, counted[len(p.label):]
	if len(label)+1+hex.EncodedLen(sha256.Size) > maxID { // of many tiers
		label, rest = "", counted
	}
	sum := sha256.Sum256([]byte(rest))
	return label + "#" + hex.EncodeToString(sum[:])
}

// labelOf returns the begin of the keys that count for a limit by a strategy of another package:
// its name as the first part of a joined key, or an empty part and its numbers.
func labelOf(m *Limit, a *About) string {
	if m.name != "" {
		return JoinKey(m.name)
	}
	if a.Tiers != nil {
		var all strings.Builder
		for _, tier := range a.Tiers {
			all.WriteString(numbersText(tier.Limit, tier.Duration) + " ")
		}
		return JoinKey("", all.String())
	}
	numbers := numbersText(m.n, m.d)
	if a.Burst != 0 {
		numbers += fmt.Sprintf("/%d", a.Burst)
	}
	return JoinKey("", numbers)
}

func numbersText(n uint64, d time.Duration) string {
	return fmt.Sprintf("%d/%s", n, bounds.Text(d))
}

// Do does one op of s, and returns its Err: for who asks for more than a decision.
//
//	reset := &weir.Op{Verb: weir.OpResetPrefix, Request: weir.Request{Key: "acme/"}}
//	err := weir.Do(ctx, perUser, reset) // reset.Result.TotalRequests is how many
func Do(ctx context.Context, s Strategy, op *Op) error {
	op.Counter = CounterOf(s)
	op.Counter.Do(ctx, []*Op{op})
	return op.Err
}

// CounterOf returns s, if s is a Counter, of a [Limit] the one that counts for it, and else one
// that calls the Run of s. A type that embeds a Counter is none unless it has an About of its own.
func CounterOf(s Strategy) Counter {
	if m, ok := s.(*Limit); ok {
		return m.decider().counter
	}
	if c, ok := s.(Counter); ok {
		if of := c.About().Of; of == nil || reflect.TypeOf(of) == reflect.TypeOf(c) {
			return c
		}
	}
	a := About{Verbs: VerbsOf(OpTake), named: s}
	if equal(s, s) {
		a.Counts = s
	}
	return byFunc(a, func(ctx context.Context, op *Op) { run(ctx, s, op) })
}

// run does an OpTake by the Run of a Strategy.
func run(ctx context.Context, s Strategy, op *Op) {
	res, err := s.Run(ctx, &op.Request)
	switch {
	case err == nil && res == nil:
		err = fmt.Errorf("weir: %s returned %w: %w", (&About{named: s}).String(), bounds.ErrNothing,
			errors.ErrUnsupported)
	case err == nil:
		op.Result = *res
	}
	op.Err = err
}

// NewCounter returns the Counter that a describes, for a store that does one op after the other: of
// a only Verbs must be set. do, which is safe for concurrent use, does an op, one of these Verbs,
// and sets its Result or its Err. Its Request has passed [About.Check], and an [OpReturn] is of an
// admission, whose period may have ended. The Counter gives no Receipts, and an op that Keeps one
// fails. In a store of fixed windows, where counted is the count of Key in the Duration that ends
// at end, do does OpTake, OpPeek and OpReturn so:
//
//	switch {
//	case op.Verb != weir.OpReturn:
//		op.Result = op.Decide(counted, end)
//		if op.Verb == weir.OpTake { counted = op.Result.TotalRequests }
//	case op.Result.ExpiresAt.Equal(end): // else the window of the admission is over
//		counted -= min(counted, max(1, op.Cost))
//	}
//
// An example of weirtest.TestStrategy, in its package's example_counter_test.go, is such a store in
// a map, in 25 lines.
func NewCounter(a About, do func(ctx context.Context, op *Op)) Counter {
	f := byFunc(a, func(ctx context.Context, op *Op) {
		op.Err = nil
		if op.Verb != OpResetPrefix {
			op.Err = a.Check(&op.Request)
		}
		admitted := op.Result.Allowed() && (a.Bound || op.Cost <= op.Limit)
		if op.Err == nil && (op.Verb != OpReturn || admitted) {
			op.Source, op.Left, op.FullAt = FromLocal, 0, time.Time{}
			do(ctx, op)
		}
	})
	f.about.Counts, f.about.Store = cmp.Or(a.Counts, any(f)), nil // it does no ops of others
	return f
}

// function is a Counter by a function, which does one op.
type function struct {
	about About
	do    func(ctx context.Context, op *Op)
	all   bool // does all ops, whatever they ask for
}

// byFunc returns the Counter that a describes, with an About of its own.
func byFunc(a About, do func(ctx context.Context, op *Op)) *function {
	f := &function{about: a, do: do}
	f.about.Of = f
	return f
}

// About implements [Counter].
func (f *function) About() *About { return &f.about }

// String names a Counter in errors, if nothing else does.
func (f *function) String() string { return "a Counter without a Name" }

// Run implements [Strategy].
func (f *function) Run(ctx context.Context, r *Request) (*Result, error) { return Run(ctx, f, r) }

// Do implements [Counter].
func (f *function) Do(ctx context.Context, ops []*Op) {
	for _, op := range ops {
		more := op.Verb == OpTake && (op.Keep || op.Backlog != nil)
		if !f.all && (more || !f.about.Verbs.Has(op.Verb)) {
			op.Err = op.Unsupported(&f.about)
			continue
		}
		f.do(ctx, op)
	}
}
