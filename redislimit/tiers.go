package redislimit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/algorithm"
)

// Tiers is a Strategy that holds several limits at once. Make one with [Store.Tiers].
type Tiers struct {
	Strategy
	tiers []weir.Tier
}

// Tiers holds several limits at once over one key, all or nothing, in one round trip: 1000 in 1 s,
// 5000 in 10 s, 7000 in 15 s. The request's own Limit and Duration are ignored. With a Duration
// that cannot be or is given twice, or with none, its Limit panics, and weir.NewLimit and each call
// fail with weir.ErrScale. Tiers of the same Durations count together, in whatever order they are
// given. The counterpart of weir's Tiers.
//
// Time is cut into slices, as long as the greatest common divisor of the Durations. A decision
// reads one number for each slice of the longest tier that has a hit: about 0.6 µs of the server's
// time and 13 bytes each, or 56 bytes with over 512 of them (hash-max-listpack-entries). Up to 1024
// slices it equals its counterpart. Of longer tiers the older slices are merged, so that a caller
// has at most about 500 of them (1 s and 24 h), and 32 more for each doubling: then a hit counts
// for up to 1/32 of its age longer than in the counterpart, never shorter, and a refund of a hit
// older than 64 slices gives nothing back.
func (s *Store) Tiers(tiers ...weir.Tier) *Tiers {
	given := slices.Clone(tiers)
	names, err := namesOf(given)
	if err != nil {
		return s.tiers(several{bad: err}, given)
	}
	t := several{limits: make([]int64, len(tiers)), least: tiers[0].Limit}
	all := make([]algorithm.Tier, len(tiers))
	for i, tier := range given {
		t.limits[i], t.least = clamp(tier.Limit), min(t.least, tier.Limit)
		all[i] = algorithm.Tier{Limit: t.limits[i], Scale: tier.Duration.Milliseconds()}
	}
	t.slice = algorithm.NewTiers(all).Slice()
	for i, tier := range given {
		t.args = append(t.args, tier.Duration.Milliseconds()/t.slice, t.limits[i])
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(len(a)-len(b), strings.Compare(a, b))
	})
	t.name = strings.Join(names, "-")
	return s.tiers(t, given)
}

// namesOf returns the Durations of tiers as decimal numbers of milliseconds.
func namesOf(tiers []weir.Tier) ([]string, error) {
	if len(tiers) == 0 {
		return nil, fmt.Errorf("redislimit: no tiers: %w", weir.ErrScale)
	}
	names := make([]string, len(tiers))
	for i, given := range tiers {
		name, err := byDuration{}.period(&weir.Request{Duration: given.Duration})
		if err != nil {
			return nil, err
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("redislimit: two tiers of %v: %w", given.Duration, weir.ErrScale)
		}
		names[i] = name
	}
	return names, nil
}

func (s *Store) tiers(t several, tiers []weir.Tier) *Tiers {
	sorted := append([]weir.Tier{}, tiers...) // not nil
	slices.SortFunc(sorted, func(a, b weir.Tier) int { return cmp.Compare(a.Duration, b.Duration) })
	of := &Tiers{Strategy{store: s, kind: "tiers", script: tiered, protocol: t}, tiers}
	return describe(of, &of.Strategy, weir.About{Bound: true, Tiers: sorted})
}

// Resolution returns the same tiers with slices of d, and with each tier counting one slice more,
// so that at most Limit are admitted in any span of one Duration: the counterpart of weir's
// Tiers.Resolution, as to bad ones too. A decision reads so many more slices: with 5000 in 10 s by
// the tenth of a second up to 101, which took 92 µs of the server's time (SLOWLOG; 26 with one
// slice) and 1,368 bytes (MEMORY USAGE; 104).
func (t *Tiers) Resolution(d time.Duration) *Tiers {
	fine, ms := t.protocol.(several), d.Milliseconds()
	_, err := byDuration{}.period(&weir.Request{Duration: d})
	switch {
	case fine.bad != nil:
		return t
	case err != nil:
		return t.store.tiers(several{bad: err}, t.tiers)
	case fine.slice%ms != 0:
		return t.store.tiers(several{bad: fmt.Errorf(
			"redislimit: a resolution of %v does not divide slices of %d ms: %w", d, fine.slice,
			weir.ErrScale)}, t.tiers)
	}
	durations, _, _ := strings.Cut(fine.name, "/")
	fine.name, fine.slice, fine.args = fmt.Sprint(durations, "/", ms), ms, nil
	for i, tier := range t.tiers {
		fine.args = append(fine.args, tier.Duration.Milliseconds()/ms+1, fine.limits[i])
	}
	return t.store.tiers(fine, t.tiers)
}

// Limit returns the limit by t, as [Strategy.Limit] does.
func (t *Tiers) Limit() *weir.Limit {
	if bad := t.protocol.(several).bad; bad != nil {
		panic(bad.Error())
	}
	return limit(t, &t.Strategy, 0, 0)
}

// several is Tiers' algorithm.
type several struct {
	name   string // the Durations, the shortest first: the period of the key
	slice  int64  // ms
	limits []int64
	least  uint64 // of the limits, not clamped
	bad    error  // what no request can mend; then there is nothing else

	// For each tier its slices and its limit. Converting a number to an interface allocates, so
	// they are converted once.
	args []any
}

func (t several) period(*weir.Request) (string, error) { return t.name, t.bad }

func (t several) ask(args []any, r *weir.Request, n int64) ([]any, bool, error) {
	return append(append(args, t.slice, n), t.args...), fits(r, t.least), nil
}

func (t several) answer(_ *weir.Request, v numbers) (decision, error) {
	which, used, slice := v[1], v[2], v[3]
	at, ok := startOf(slice, t.slice)
	if which < 0 || which >= int64(len(t.limits)) || used < 0 || !ok {
		return decision{}, strange(v)
	}
	began, _ := startOf(slice-t.args[2*which].(int64), t.slice)
	limit := t.limits[which]
	return decision{v[0] == 1, used, limit, at, uint64(limit), began}, nil
}

func (several) admitted(d decision, _ instant) instant { return d.slice }

func (several) returned(_ *weir.Request, where instant, _ int64) (op any, at instant) {
	return "return", where
}
