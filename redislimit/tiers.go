package redislimit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir"
)

// Tiers is a Strategy that holds several limits at once. Make one with [Store.Tiers].
type Tiers struct {
	Strategy
	tiers []weir.Tier
}

// namesOf returns the Durations of tiers as decimal numbers of milliseconds.
func namesOf(tiers []weir.Tier) ([]string, error) {
	if len(tiers) == 0 {
		return nil, fmt.Errorf("redislimit: no tiers: %w", weir.ErrScale)
	}
	names := make([]string, len(tiers))
	for i, given := range tiers {
		if err := checkDuration(given.Duration); err != nil {
			return nil, err
		}
		name := strconv.FormatInt(given.Duration.Milliseconds(), 10)
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("redislimit: two tiers of %v: %w", given.Duration, weir.ErrScale)
		}
		names[i] = name
	}
	return names, nil
}

// checkDuration fails for a bad Duration of a tier.
func checkDuration(d time.Duration) error {
	return new(weir.About).Check(&weir.Request{Key: "any", Duration: d})
}

// Resolution returns the same tiers with slices of d, and with each tier counting one slice more,
// so that at most Limit are admitted in any span of one Duration: the counterpart of weir's
// Tiers.Resolution, as to bad ones too. A decision reads so many more slices: with 5000 in 10 s by
// the tenth of a second up to 101, which took 92 µs of the server's time (SLOWLOG; 26 with one
// slice) and 1,368 bytes (MEMORY USAGE; 104).
func (t *Tiers) Resolution(d time.Duration) *Tiers {
	fine, ms := t.protocol.(several), d.Milliseconds()
	err := checkDuration(d)
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
	return t.Strategy.Limit(0, 0)
}

// several is Tiers' algorithm.
type several struct {
	name   string // the Durations, the shortest first: the period of the key
	slice  int64  // ms
	limits []int64
	least  uint64 // of the limits, not clamped
	bad    error  // that no request can mend; then there is nothing else

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

func (several) life(*weir.Request) time.Duration { return 0 }

func (several) admitted(d decision, _ instant) instant { return d.slice }

func (several) returned(_ *weir.Request, where instant, _ int64) (op any, at instant) {
	return "return", where
}
