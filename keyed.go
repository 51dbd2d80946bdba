package weir

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/core/bounds"
)

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

// keyedBy returns what counts for m by c.
func (m *Limit) keyedBy(c Counter) *keyed {
	a := *c.About()
	lasting := m.name != "" && a.Lapses == LapsesByToken // a change of the Duration
	p := &keyed{label: m.label(&a), counter: c, n: m.n, d: m.d, lasting: lasting, about: &a}
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

// label begins the keys that count for a limit by a strategy of another package: its name as the
// first part of a joined key, or an empty part and its numbers.
func (m *Limit) label(a *About) string {
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
