package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// what became of a request.
type what int

const (
	answered what = iota
	refused       // by the proxy
	gaveUp
	failed
	whats
)

// score is what callers saw.
type score struct {
	names []string // of the kinds

	mu   sync.Mutex
	of   [][whats]int    // guarded by mu, as all below; by kind, since the last line
	sum  [][whats]int    // since the start
	took []time.Duration // of honest requests since the last line, until they gave up
	late time.Duration   // how late the last request was sent
}

func newScore(kinds []kind) *score {
	s := &score{of: make([][whats]int, len(kinds)), sum: make([][whats]int, len(kinds))}
	for i := range kinds {
		s.names = append(s.names, kinds[i].name)
	}
	return s
}

func (s *score) behind(late time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = late
}

func (s *score) add(kind int, what what, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[kind][what]++
	s.sum[kind][what]++
	if kind == honest && (what == answered || what == gaveUp) {
		s.took = append(s.took, took)
	}
}

// seen is what an honest caller saw.
type seen struct {
	p50, p99 time.Duration
	gaveUp   float64 // the share of all requests
}

// honest returns what an honest caller saw since the last line. mu is held.
func (s *score) honest() seen {
	slices.Sort(s.took)
	at := func(share float64) time.Duration {
		if len(s.took) == 0 {
			return 0
		}
		return s.took[int(share*float64(len(s.took)-1))]
	}
	return seen{p50: at(.5), p99: at(.99), gaveUp: share(&s.of[honest], gaveUp)}
}

// share returns the share of requests of which something became.
func share(of *[whats]int, what what) float64 {
	all := 0
	for _, n := range of {
		all += n
	}
	return float64(of[what]) / float64(max(all, 1))
}

// next returns a line on what happened since the last one.
func (s *score) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.honest()
	line := fmt.Sprintf("honest: p50 %s, p99 %s, %.1f %% gave up | refused:%s",
		round(h.p50), round(h.p99), 100*h.gaveUp, s.shares(s.of, refused))
	if s.late > time.Second {
		line += fmt.Sprintf(" | this program is %s late: try a smaller --scale", round(s.late))
	}
	clear(s.of)
	s.took = s.took[:0]
	return line
}

// all returns a line on what happened since the start.
func (s *score) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("gave up:%s | refused:%s | failed:%s",
		s.shares(s.sum, gaveUp), s.shares(s.sum, refused), s.shares(s.sum, failed))
}

// shares lists, by kind, the share of the requests of which something became.
func (s *score) shares(of [][whats]int, what what) string {
	var b strings.Builder
	for i, name := range s.names {
		fmt.Fprintf(&b, " %s %.1f %%", name, 100*share(&of[i], what))
	}
	return b.String()
}

// round leaves what a person reads.
func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
