package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/coverage"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/limits"
)

// trip is a call whose way is longer than that of one decision.
type trip struct {
	name  string
	after time.Duration // since the buckets were used

	// prepare returns the call on l, which has a bucket of each of eight strategies. An empty Limiter
	// like it is made by cfg.
	prepare func(l *weir.Limiter, cfg weir.Config) (call func() error, err error)
}

var trips = []trip{
	{"Save", 0, func(l *weir.Limiter, _ weir.Config) (func() error, error) {
		return func() error { return l.Save(io.Discard) }, nil
	}},
	{"Load", 0, func(l *weir.Limiter, cfg weir.Config) (func() error, error) {
		var saved bytes.Buffer
		if err := l.Save(&saved); err != nil {
			return nil, err
		}
		empty, err := weir.New(cfg)
		return func() error { return empty.Load(&saved) }, err // its janitor ends with the program
	}},
	{"Sweep", day, func(l *weir.Limiter, _ weir.Config) (func() error, error) {
		return func() error {
			if n := l.Sweep(); n != 8 {
				return fmt.Errorf("%d buckets were removed", n)
			}
			return nil
		}, nil
	}},
	{"All with a log", 0, func(l *weir.Limiter, _ weir.Config) (func() error, error) {
		both := limits.All(l.FixedWindow().Limit(9, day), l.SlidingLog().Limit(9, day))
		take := func() error {
			out, err := both.Take(context.Background(), caller, 1)
			if err == nil && !out.Allowed() {
				return fmt.Errorf("denied: %v", out)
			}
			return err
		}
		return take, take()
	}},
	{"one policy", 0, func(l *weir.Limiter, _ weir.Config) (func() error, error) {
		h := httplimit.New(l.FixedWindow().Limit(9, day),
			httplimit.Config{Extractor: httplimit.RemoteAddr()})(http.NotFoundHandler())
		serve := func() error {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
			h.ServeHTTP(w, r)
			if w.Code != http.StatusNotFound {
				return fmt.Errorf("the status is %d", w.Code)
			}
			return nil
		}
		return serve, serve()
	}},
	{"fallback, up", 0, func(l *weir.Limiter, _ weir.Config) (func() error, error) {
		return decideBehind(l, new(primary), weir.FromPrimary)
	}},
	{"fallback, outage", 0, func(l *weir.Limiter, _ weir.Config) (func() error, error) {
		return decideBehind(l, &primary{down: true}, weir.FromLocal)
	}},
}

// primary is a store elsewhere that counts one caller, as far as that is not of weir.
type primary struct {
	down bool
	used uint64
}

var aboutPrimary = weir.About{Verbs: weir.VerbsOf(weir.OpTake), Prompt: true, Reconciles: true,
	Lapses: weir.LapsesWithWindow}

func (p *primary) About() *weir.About { return &aboutPrimary }

func (p *primary) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, p, r)
}

func (p *primary) Do(_ context.Context, ops []*weir.Op) {
	op := ops[0]
	if p.down {
		op.Err = errors.New("connection refused")
		return
	}
	p.used++
	op.Result = weir.Result{State: weir.Allow, TotalRequests: p.used,
		ExpiresAt: time.Now().Truncate(day).Add(day)}
}

// decideBehind returns a decision of a Fallback on a caller that it knows, made by one side.
func decideBehind(l *weir.Limiter, p *primary, by weir.Source) (func() error, error) {
	f, err := fallback.New(p, l.FixedWindow(), fallback.Config{MinCalls: 1, Stall: -1,
		ProbeInterval: day})
	if err != nil {
		return nil, err
	}
	op := &weir.Op{Request: weir.Request{Key: caller, Limit: 9, Duration: day}}
	decide := func() error {
		f.Do(context.Background(), []*weir.Op{op})
		if op.Err == nil && (op.Source != by || !op.Result.Allowed()) {
			return fmt.Errorf("decided by %v: %v", op.Source, op.Result)
		}
		return op.Err
	}
	return decide, errors.Join(decide(), decide()) // the first of an outage opens the breaker
}

const caller = "10.0.0.7"

// make makes the trip, and writes its coverage counters to dir.
func (t trip) make(dir string) error {
	now := time.Now()
	cfg := weir.Config{Now: func() time.Time { return now }, Timeout: 1, SweepEvery: day}
	l, err := weir.New(cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	tiers := l.Tiers(weir.Tier{Limit: 5, Duration: time.Minute})
	for _, s := range []weir.Strategy{l.FixedWindow(), l.SlidingWindow(), l.TokenBucket(0),
		l.Counter(), l.SlidingLog(), l.List(), tiers, l.LeakyBucket(0)} {
		r := &weir.Request{Key: caller, Limit: 5, Duration: time.Minute}
		if _, err := s.Run(context.Background(), r); err != nil {
			return err
		}
	}
	call, err := t.prepare(l, cfg)
	if err != nil {
		return err
	}
	now = now.Add(t.after)
	await()
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	return writeCounters(dir)
}
