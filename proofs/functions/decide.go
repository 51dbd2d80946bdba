package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/coverage"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/weirgo/weir"
)

const (
	day = 24 * time.Hour // no window ends meanwhile

	// turns is how many decisions of a kind are made, each on a caller of its own: one of them may do
	// what is rare, such as let an index grow.
	turns = 5

	// others is how many callers there are besides, so that each shard has some.
	others = 10_000
)

// decide decides on a hit of id under limit.
type decide func(id string, limit uint64) (weir.Result, error)

var strategies = []struct {
	name string
	of   func(*weir.Limiter) decide
}{
	{"CheckRate", func(l *weir.Limiter) decide {
		return func(id string, limit uint64) (weir.Result, error) {
			return l.CheckRate(id, day.Milliseconds(), int64(limit))
		}
	}},
	{"FixedWindow", func(l *weir.Limiter) decide { return strategy(l.FixedWindow()) }},
	{"Calendar", func(l *weir.Limiter) decide { return strategy(l.Calendar(weir.Month, nil)) }},
	{"SlidingWindow", func(l *weir.Limiter) decide { return strategy(l.SlidingWindow()) }},
	{"TokenBucket", func(l *weir.Limiter) decide { return strategy(l.TokenBucket(0)) }},
	{"Counter", func(l *weir.Limiter) decide { return strategy(l.Counter()) }},
}

// strategy decides by Run.
func strategy(s weir.Strategy) decide {
	return func(id string, limit uint64) (weir.Result, error) {
		res, err := s.Run(context.Background(), &weir.Request{Key: id, Limit: limit, Duration: day})
		if err != nil {
			return weir.Result{}, err
		}
		return *res, nil
	}
}

// kinds are the kinds of decisions: those on a known caller, admitted or denied, and on a new one.
// before is how many hits the caller has made under the same limit.
var kinds = []struct {
	name   string
	before int
	limit  uint64
}{
	{"known", 4, 1000},
	{"denied", 4, 2},
	{"new", 0, 1000},
}

// decideAll makes turns decisions of each kind, and each trip, and writes the coverage counters of
// each to a directory under dir. The program must have been built with atomic counters.
func decideAll(dir string) error {
	debug.SetGCPercent(-1) // a collection empties pools, and what is made anew passes more functions
	for i, trip := range trips {
		if err := trip.make(counters(dir, len(strategies), i, 0)); err != nil {
			return fmt.Errorf("%s: %w", trip.name, err)
		}
	}
	for s := range strategies {
		for k := range kinds {
			for turn := range turns {
				if err := decideOnce(s, k, turn, counters(dir, s, k, turn)); err != nil {
					return fmt.Errorf("%s, %s: %w", strategies[s].name, kinds[k].name, err)
				}
			}
		}
	}
	return nil
}

func decideOnce(s, k, turn int, dir string) error {
	l, err := weir.New(weir.Config{SweepEvery: day})
	if err != nil {
		return err
	}
	defer l.Close()
	decide, kind := strategies[s].of(l), kinds[k]
	for n := range others {
		if _, err := decide("other "+strconv.Itoa(n), 1000); err != nil {
			return err
		}
	}
	id := "10.0.0." + strconv.Itoa(turn)
	await()
	for range kind.before { // right before the decision, so that it has no last use to store
		if _, err := decide(id, kind.limit); err != nil {
			return err
		}
	}
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	r, err := decide(id, kind.limit)
	if err != nil {
		return err
	}
	if err := writeCounters(dir); err != nil {
		return err
	}
	if want := kind.limit > uint64(kind.before); r.Allowed() != want {
		return fmt.Errorf("admitted is %t, want %t", r.Allowed(), want)
	}
	return nil
}

func writeCounters(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := coverage.WriteMetaDir(dir); err != nil {
		return err
	}
	return coverage.WriteCountersDir(dir)
}

var busy = regexp.MustCompile(`(?m)^goroutine \d+ \[(running|runnable)`)

// await returns when no other goroutine runs: the janitor has started, and waits for its ticker.
func await() {
	stacks := make([]byte, 1<<20)
	for len(busy.FindAll(stacks[:runtime.Stack(stacks, true)], 2)) > 1 {
		runtime.Gosched()
	}
}
