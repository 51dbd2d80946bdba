package fallback

import (
	"slices"
	"time"
)

// debts are what one caller owes primary: cost that local admitted while primary did not answer.
// Debts are sent to primary as two numbers, charged and total. Primary charges total less charged,
// or less the largest total that was sent before, if that is more. So a debt is charged once,
// however often sent:
//
//	                                              debts up to   total   charged   sent
//	1. local admits 5                             5                 5         0      0
//	2. local admits 3                             5 8               8         0      0
//	3. a call takes 0 and 8 along, but its answer
//	   is lost; has primary charged 8?            5 8               8         0      8
//	4. local decides on that call and others,
//	   and admits 4                               5 8 12           12         0      8
//	5. 2 are given back                           5 8 10           10         0      8
//	6. the first 5 count no more: as if charged   8 10             10         5      8
//	7. a call takes 5 and 10 along; primary, if it
//	   has seen 8, charges 2, and otherwise 5     8 10             10         5     10
//	8. its answer arrives                         8 10             10        10     10
//
// The zero debts are none. Debts are not safe for concurrent use.
type debts struct {
	// list is the cost that local admitted, oldest first. total is all so far, charged the part that
	// primary has charged or that counts no more, sent the largest total that primary was sent. Only
	// total falls, when cost is given back; while total is below sent, primary may have charged more
	// than is owed, and the next debts make up for it.
	list                 []debt
	total, charged, sent uint64
}

// debt is the admitted cost between the upTo before it and its own. Its admissions lapse between
// two instants, and the debt does so as a whole at the later one.
type debt struct {
	upTo        uint64
	from, until time.Time
}

// Add adds cost that counts until an instant: to the last debt, if that lapses no sooner or begins
// to lapse less than a quarter of the time earlier, and otherwise as a debt of its own. So there
// are few debts, in the order of their lapse, and debts of fixed windows lapse with their
// windows.
func (d *debts) Add(cost uint64, until, now time.Time) {
	d.lapse(now)
	d.total = plus(d.total, cost)
	n, little := len(d.list), until.Sub(now)/4
	if n == 0 || until.After(d.list[n-1].until) && until.Sub(d.list[n-1].from) >= little {
		d.list = append(d.list, debt{from: until, until: until})
	}
	last := &d.list[len(d.list)-1]
	last.upTo = d.total
	if until.After(last.until) {
		last.until = until
	}
}

// lapse removes the debts that count no more. When none is left, total and charged are equal and at
// least sent: nothing is owed, and no total is sent twice.
func (d *debts) lapse(now time.Time) {
	for len(d.list) > 0 && !d.list[0].until.After(now) {
		d.charged = max(d.charged, d.list[0].upTo)
		d.list = slices.Delete(d.list, 0, 1)
	}
	if len(d.list) == 0 {
		d.total = max(d.total, d.charged, d.sent)
		d.charged = d.total
	}
}

// Owed returns the cost that local admitted, that primary has not charged, and that still counts.
func (d *debts) Owed(now time.Time) uint64 {
	d.lapse(now)
	return d.total - min(d.total, d.charged)
}

// Refund removes up to cost from the debts, and returns how much that was.
func (d *debts) Refund(cost uint64, now time.Time) uint64 {
	cost = min(cost, d.Owed(now))
	d.total -= cost
	for i := range d.list {
		d.list[i].upTo = min(d.list[i].upTo, d.total)
	}
	return cost
}

// Send returns the numbers to send, which primary may have seen even if its answer is lost. The
// total is never less than charged. If the numbers are not sent after all, nothing changes.
func (d *debts) Send() (charged, total uint64) {
	d.sent = max(d.sent, d.total, d.charged)
	return d.charged, max(d.total, d.charged)
}

// Charged records that primary has answered a call that brought total, and returns how much more is
// charged now.
func (d *debts) Charged(total uint64) (more uint64) {
	more = total - min(total, d.charged)
	d.charged += more
	return more
}

// Last returns when nothing is owed any more, or the zero time if nothing is.
func (d *debts) Last() (until time.Time) {
	if n := len(d.list); n > 0 {
		until = d.list[n-1].until
	}
	return until
}
