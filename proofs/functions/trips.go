package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/coverage"
	"time"

	"github.com/weirgo/weir"
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
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			h.ServeHTTP(w, r)
			if w.Code != http.StatusNotFound {
				return fmt.Errorf("the status is %d", w.Code)
			}
			return nil
		}
		return serve, serve()
	}},
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
