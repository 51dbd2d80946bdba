package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"
)

const places = 24

// upstream is a service that works on so many requests at a time as it has places. The others wait
// in line. Whoever gives up leaves it, but the work on a request is not broken off.
type upstream struct {
	slower  float64 // its times are so many times as long
	places  chan struct{}
	waiting atomic.Int64
}

func newUpstream(scale float64) *upstream {
	return &upstream{slower: 1 / scale, places: make(chan struct{}, places)}
}

// enter waits for a place, and reports whether there was one before ctx ended.
func (u *upstream) enter(ctx context.Context) bool {
	u.waiting.Add(1)
	defer u.waiting.Add(-1)
	select {
	case u.places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// ServeHTTP implements http.Handler.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !u.enter(r.Context()) {
		return
	}
	defer func() { <-u.places }()
	// The work is between a half and three halves of its average.
	took := u.slower * (.5 + rand.Float64()) * float64(work(r.Method, r.URL.Path))
	time.Sleep(time.Duration(took)) // it is the work
	if r.URL.Path == loginPath {
		w.WriteHeader(http.StatusUnauthorized)
	}
	_, _ = w.Write([]byte("served\n"))
}
