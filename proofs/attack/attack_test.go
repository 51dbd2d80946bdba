package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The same seed sends the same requests, and of each kind as many as it says.
func TestThePlan(t *testing.T) {
	kinds := callersOfAllKinds()
	first := func(n int, scale float64, seed uint64) (all []request) {
		for r := range plan(kinds, scale, seed) {
			if all = append(all, r); len(all) == n {
				break
			}
		}
		return all
	}
	const n = 40_000
	all := first(n, 1, 7)
	assert.Equal(t, all, first(n, 1, 7))
	assert.NotEqual(t, all[:10], first(10, 1, 8))
	assert.InDelta(t, 4, float64(first(n, .25, 7)[n-1].at)/float64(all[n-1].at), .01)

	count, addrs := make([]int, len(kinds)), make([]map[string]bool, len(kinds))
	agents, paths := map[string]bool{}, map[string]bool{}
	for _, r := range all {
		count[r.kind]++
		if addrs[r.kind] == nil {
			addrs[r.kind] = map[string]bool{}
		}
		addrs[r.kind][r.caller.addr] = true
		if r.caller.addr == officeAddr {
			agents[r.caller.agent], paths[r.path] = true, true
		}
	}
	seconds := all[n-1].at.Seconds()
	for i, want := range []struct {
		rate  float64
		addrs int
	}{{360, 1000}, {11, 1}, {30, 1}, {12, 1}, {40, 20}} {
		assert.InEpsilon(t, want.rate, float64(count[i])/seconds, .1, kinds[i].name)
		assert.Len(t, addrs[i], want.addrs, kinds[i].name)
	}
	assert.Greater(t, len(agents), 15, "of the office")
	assert.Greater(t, len(paths), 1000, "of the scraper")
	assert.True(t, addrs[honest][neighbour])
	for guesser := range addrs[len(kinds)-1] {
		assert.False(t, addrs[honest][guesser], "%s is honest, too", guesser)
	}
}

// front is a proxy that refuses some, without a network.
type front struct {
	to http.Handler

	mu      sync.Mutex
	refuses []string // guarded by mu; beginnings of addresses
}

func (f *front) refuse(beginnings ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuses = beginnings
}

func (f *front) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	refuses := f.refuses
	f.mu.Unlock()
	w := httptest.NewRecorder()
	for _, beginning := range refuses {
		if strings.HasPrefix(r.Header.Get("X-Forwarded-For"), beginning) {
			w.WriteHeader(http.StatusForbidden)
			return w.Result(), nil
		}
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		f.to.ServeHTTP(w, r)
	}()
	select {
	case <-answered:
		return w.Result(), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// Honest callers give up while nobody is refused, or only the guessers are, and are served at once
// when the loud one is refused, too.
func TestHonestCallersGiveUpUntilTheLoudOneIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = .25
		u, kinds := newUpstream(scale), callersOfAllKinds()
		proxy := &front{to: u}
		p := &play{client: proxy, patience: 10 * time.Second, score: newScore(kinds), to: "http://proxy"}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.run(ctx, plan(kinds, scale, 1)) })
		// after returns what an honest caller saw in the ten seconds after d.
		after := func(d time.Duration) seen {
			time.Sleep(d)
			p.score.next()
			time.Sleep(10 * time.Second)
			p.score.mu.Lock()
			defer p.score.mu.Unlock()
			assert.Less(t, p.score.late, time.Second)
			return p.score.honest()
		}
		bad := after(50 * time.Second)
		assert.Greater(t, bad.p50, 5*time.Second)
		assert.Greater(t, bad.gaveUp, .1)
		assert.Len(t, u.places, places)

		proxy.refuse(guessersNet)
		bad = after(50 * time.Second)
		assert.Greater(t, bad.gaveUp, .1, "the guessers take little")
		proxy.refuse(guessersNet, loudAddr)
		good := after(50 * time.Second) // until the line is worked off
		assert.Less(t, good.p50, 300*time.Millisecond)
		assert.Zero(t, good.gaveUp)
		stop()
		running.Wait()
		assert.Less(t, share(&p.score.sum[honest], refused), .002, "the neighbour alone")
		assert.NotZero(t, p.score.sum[honest][refused])
		time.Sleep(time.Minute) // the work on what was given up goes on
		assert.Empty(t, u.places)
		assert.Zero(t, u.waiting.Load())
	})
}

// The program says what it does, goes on until it is interrupted, and ends cleanly.
func TestTheProgram(t *testing.T) {
	proxy := httptest.NewServer(http.NotFoundHandler())
	defer proxy.Close()
	out := new(bytes.Buffer)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	err := run(ctx, []string{"--upstream", "127.0.0.1:0", "--proxy", proxy.URL + "/", "--every", "50ms"},
		writer(func(text []byte) (int, error) {
			if bytes.Contains(text, []byte("honest: p50")) {
				stop()
			}
			return out.Write(text)
		}))
	require.NoError(t, err)
	assert.Regexp(t, regexp.MustCompile(`^upstream http://127\.0\.0\.1:\d+: 24 places, and a line
honest: callers 1000, addresses 1000, requests a second 360\.0
office: callers 30, addresses 1, requests a second 11\.0
(.+\n)+(.*: p50 \d+(\.\d)?m?s, p99 \d+(\.\d)?m?s, 0\.0 % gave up \| refused: honest 0\.0 % .* \| 0 of 24 places taken, 0 wait
)+in all gave up: honest 0\.0 % .*
$`), out.String())

	for _, args := range [][]string{{"--scale", "0"}, {"--every", "0s"}, {"more"}, {"--upstream", "nowhere"}} {
		require.Error(t, run(t.Context(), args, out), args)
	}
}

type writer func([]byte) (int, error)

func (f writer) Write(text []byte) (int, error) { return f(text) }
