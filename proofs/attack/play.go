package main

import (
	"context"
	"io"
	"iter"
	"net/http"
	"sync"
	"time"
)

// play sends requests, each at its instant, whatever becomes of those before.
type play struct {
	to       string        // a URL without a path
	patience time.Duration // of people: between a half and twice of it
	client   http.RoundTripper
	score    *score
}

// run sends requests until ctx ends, and returns when none is in flight.
func (p *play) run(ctx context.Context, requests iter.Seq[request]) {
	var sent sync.WaitGroup
	defer sent.Wait()
	started := time.Now()
	for r := range requests {
		late := time.Since(started) - r.at
		p.score.behind(late)
		if late < 0 {
			wait(ctx, -late)
		}
		if ctx.Err() != nil {
			return
		}
		sent.Go(func() { p.send(ctx, r) })
	}
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// send sends a request, and scores what became of it unless ctx ends before.
func (p *play) send(ctx context.Context, r request) {
	patient, cancel := context.WithTimeout(ctx, time.Duration(r.patience*float64(p.patience)))
	defer cancel()
	started := time.Now()
	status := p.answer(patient, r)
	if ctx.Err() != nil {
		return
	}
	what := answered
	switch {
	case patient.Err() != nil:
		what = gaveUp
	case status == http.StatusForbidden || status == http.StatusTooManyRequests:
		what = refused
	case status == 0 || status >= http.StatusInternalServerError:
		what = failed
	}
	p.score.add(r.kind, what, time.Since(started))
}

// answer returns the status of the answer to a request, and 0 without one.
func (p *play) answer(ctx context.Context, r request) (status int) {
	of, err := http.NewRequestWithContext(ctx, r.method, p.to+r.path, http.NoBody)
	if err != nil {
		return 0
	}
	of.Header.Set("X-Forwarded-For", r.caller.addr)
	of.Header.Set("User-Agent", r.caller.agent)
	resp, err := p.client.RoundTrip(of)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}
