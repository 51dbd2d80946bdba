package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/weirtest"
)

// server is a RoundTripper that answers what it is scripted to, the last answer again and again, and notes when it was
// asked. Each answer is a status and header lines.
type server struct {
	answers [][]string
	start   time.Time

	mu    sync.Mutex
	asked []time.Duration // guarded by mu; since start
}

func serving(answers ...[]string) *server { return &server{answers: answers, start: time.Now()} }

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.answers[min(len(s.asked), len(s.answers)-1)]
	s.asked = append(s.asked, time.Since(s.start))
	resp := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody, Request: r}
	for _, line := range answer {
		if name, value, ok := strings.Cut(line, ": "); ok {
			resp.Header.Add(name, value)
			continue
		}
		_, _ = fmt.Sscan(line, &resp.StatusCode)
	}
	return resp, nil
}

func get(ctx context.Context, t *httplimit.Transport, url string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// Each row is the first answer of a server, and how long the client then leaves it alone.
func TestTransportHeedsWhatServersSay(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer []string
		want   time.Duration
	}{
		{"nothing said", []string{"200"}, 0},
		{"429 without a word", []string{"429"}, 0},
		{"429 with seconds", []string{"429", "Retry-After: 7"}, 7 * time.Second},
		{"503 with seconds", []string{"503", "Retry-After: 7"}, 7 * time.Second},
		{"200 with seconds: they are not about a limit", []string{"200", "Retry-After: 7"}, 0},
		{"a date", []string{"429", "Retry-After: Sat, 01 Jan 2000 00:00:09 GMT"}, 9 * time.Second},
		{"a date by the server's own clock", []string{"429", "Retry-After: Fri, 20 Nov 2026 12:00:09 GMT", "Date: Fri, 20 Nov 2026 12:00:05 GMT"}, 4 * time.Second},
		{"a date that is past", []string{"429", "Retry-After: Fri, 31 Dec 1999 00:00:09 GMT"}, 0},
		{"no more than ten minutes", []string{"429", "Retry-After: 999999999999999999999"}, 10 * time.Minute},
		{"rubbish", []string{"429", "Retry-After: soon"}, 0},
		{"a negative number", []string{"429", "Retry-After: -7"}, 0},
		{"a fraction", []string{"429", "Retry-After: 7.5"}, 0},
		{"nothing left, on a 200", []string{"200", `RateLimit: "default";r=0;t=5`}, 5 * time.Second},
		{"some left", []string{"200", `RateLimit: "default";r=1;t=5`}, 0},
		{"the longest of those that have nothing left", []string{"200", `RateLimit: "a";r=0;t=5, "b";r=3;t=60`, `RateLimit: "c";t=8;r=0;pk=:YQ==:;x`}, 8 * time.Second},
		{"Retry-After takes precedence", []string{"429", "Retry-After: 3", `RateLimit: "a";r=0;t=5`}, 3 * time.Second},
		{"rubbish in Retry-After does not", []string{"429", "Retry-After: soon", `RateLimit: "a";r=0;t=5`}, 5 * time.Second},
		{"names as tokens", []string{"200", `RateLimit: default;r=0;t=5`}, 5 * time.Second},
		{"nothing left, and no word of when", []string{"200", `RateLimit: "a";r=0`}, 0},
		{"malformed: ignored as a whole", []string{"200", `RateLimit: "a";r=0;t=5, "b`}, 0},
		{"out of a cache", []string{"200", `RateLimit: "a";r=0;t=5`, "Age: 30"}, 0},
		{"fresh out of a cache", []string{"200", `RateLimit: "a";r=0;t=5`, "Age: 0"}, 5 * time.Second},
		{"draft 07", []string{"200", "RateLimit: limit=100, remaining=0, reset=6"}, 6 * time.Second},
		{"draft 07 with some left", []string{"200", "RateLimit: limit=100, remaining=1, reset=6"}, 0},
		{"drafts to 06", []string{"200", "RateLimit-Limit: 100", "RateLimit-Remaining: 0", "RateLimit-Reset: 6"}, 6 * time.Second},
		{"drafts to 06 with some left", []string{"200", "RateLimit-Remaining: 2", "RateLimit-Reset: 6"}, 0},
		{"legacy, seconds from now", []string{"200", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 6"}, 6 * time.Second},
		{"legacy, since the epoch", []string{"200", "X-RateLimit-Remaining: 0", fmt.Sprint("X-RateLimit-Reset: ", 2_000_000_000)}, 10 * time.Minute},
		{"legacy, since the epoch and past", []string{"200", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 946684799000"}, 0}, // ms
		{"legacy, a date", []string{"200", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: Sat, 01 Jan 2000 00:00:06 GMT"}, 6 * time.Second},
		{"legacy rubbish", []string{"200", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: tomorrow"}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serving(row.answer, []string{"200"})
				client := &httplimit.Transport{Base: s}
				for range 2 {
					_, err := get(t.Context(), client, "http://api.example/")
					require.NoError(t, err)
				}
				assert.Equal(t, []time.Duration{0, row.want}, s.asked)
			})
		})
	}
}

func TestTransportPausesOneServerNotAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serving([]string{"429", "Retry-After: 60"}, []string{"200"})
		client := &httplimit.Transport{Base: s}
		_, err := get(t.Context(), client, "http://a.example/")
		require.NoError(t, err)
		_, err = get(t.Context(), client, "http://b.example/")
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{0, 0}, s.asked)
	})
}

func TestTransportNeverRetries(t *testing.T) {
	s := serving([]string{"503", "Retry-After: 0"})
	status, err := get(t.Context(), &httplimit.Transport{Base: s}, "http://a.example/")
	require.NoError(t, err)
	assert.Equal(t, 503, status)
	assert.Len(t, s.asked, 1)
}

func TestTransportWaitsAsLongAsTheContextLetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serving([]string{"429", "Retry-After: 60"}, []string{"200"})
		client := &httplimit.Transport{Base: s}
		_, err := get(t.Context(), client, "http://a.example/")
		require.NoError(t, err)

		short, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		before := time.Now()
		_, err = get(short, client, "http://a.example/")
		var limited *httplimit.LimitError
		require.ErrorAs(t, err, &limited)
		assert.Equal(t, httplimit.LimitError{Key: "a.example", Wait: time.Minute, Server: true, Err: context.DeadlineExceeded}, *limited)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, time.Since(before), "waiting would have been in vain")

		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, leave)
		_, err = get(gone, client, "http://a.example/")
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 10*time.Second, time.Since(before))

		client.NoWait = true
		_, err = get(t.Context(), client, "http://a.example/")
		require.ErrorAs(t, err, &limited)
		assert.EqualError(t, err, `httplimit: request for "a.example" not sent: the server asked for a pause, wait 50s`)
		assert.Len(t, s.asked, 1)
	})
}

func TestTransportTakesAPauseOnceAndTheLongerOfTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serving([]string{"200"})
		release := make(chan []string)
		slow := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := s.RoundTrip(r)
			for _, line := range <-release {
				resp.StatusCode = 429
				resp.Header.Set("Retry-After", line)
			}
			return resp, err
		})
		client := &httplimit.Transport{Base: slow}
		done := make(chan error)
		for range 2 {
			go func() { _, err := get(t.Context(), client, "http://a.example/"); done <- err }()
		}
		synctest.Wait()
		release <- []string{"30"} // the answers overtake each other
		require.NoError(t, <-done)
		release <- []string{"5"}
		require.NoError(t, <-done)
		go func() { release <- nil }()
		_, err := get(t.Context(), client, "http://a.example/")
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{0, 0, 30 * time.Second}, s.asked)
	})
}

func TestTransportHeedsAPauseThatGrowsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serving([]string{"200"})
		late := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := s.RoundTrip(r)
			if r.Method == http.MethodPut { // it is answered five seconds later, and for longer
				time.Sleep(5 * time.Second)
				resp.StatusCode = 503
				resp.Header.Set("Retry-After", "30")
			}
			return resp, err
		})
		client := &httplimit.Transport{Base: late}
		go func() {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://a.example/", http.NoBody)
			_, _ = client.RoundTrip(r)
		}()
		synctest.Wait()
		s.answers = [][]string{{"429", "Retry-After: 10"}}
		for range 2 {
			_, err := get(t.Context(), client, "http://a.example/")
			require.NoError(t, err)
		}
		assert.Equal(t, []time.Duration{0, 0, 35 * time.Second}, s.asked)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransportKeepsToItsOwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer limiter.Close()
		s := serving([]string{"200"})
		client := &httplimit.Transport{Base: s, Strategy: limiter.FixedWindow(), Limit: 2, Duration: time.Second}
		for range 5 {
			_, err := get(t.Context(), client, "http://a.example/")
			require.NoError(t, err)
		}
		assert.Equal(t, []time.Duration{0, 0, time.Second, time.Second, 2 * time.Second}, s.asked)

		client.NoWait = true
		_, _ = get(t.Context(), client, "http://a.example/")
		_, err = get(t.Context(), client, "http://a.example/")
		var limited *httplimit.LimitError
		require.ErrorAs(t, err, &limited)
		assert.Equal(t, httplimit.LimitError{Key: "a.example", Wait: time.Second}, *limited)
		assert.Contains(t, err.Error(), "over the client's own limit")
	})
}

func TestTransportFailsAtOnceIfWaitingIsOfNoUse(t *testing.T) {
	s := serving([]string{"200"})
	var limited *httplimit.LimitError
	client := &httplimit.Transport{Base: s, Strategy: &weirtest.Fake{Answer: answer(weir.Deny, 0, time.Time{})}, Limit: 1, Duration: time.Second}
	_, err := get(t.Context(), client, "http://a.example/")
	require.ErrorAs(t, err, &limited)

	client.Strategy = weirtest.FailAll(weir.ErrClosed)
	_, err = get(t.Context(), client, "http://a.example/")
	assert.ErrorIs(t, err, weir.ErrClosed)
	client.Strategy = neither{}
	_, err = get(t.Context(), client, "http://a.example/")
	assert.Error(t, err)
	assert.Empty(t, s.asked)
}

func TestTransportClosesTheBodyItDoesNotSend(t *testing.T) {
	client := &httplimit.Transport{Strategy: weirtest.DenyAll(), Limit: 1, Duration: time.Second, NoWait: true}
	body := &closeCounter{Reader: strings.NewReader("x")}
	r, err := http.NewRequest(http.MethodPost, "http://a.example/", body)
	require.NoError(t, err)
	_, err = client.RoundTrip(r)
	require.Error(t, err)
	assert.Equal(t, int32(1), body.closed.Load())
}

type closeCounter struct {
	io.Reader
	closed atomic.Int32
}

func (c *closeCounter) Close() error { c.closed.Add(1); return nil }

func TestTransportLimitsByTheCallersKey(t *testing.T) {
	fake := &weirtest.Fake{}
	boom := errors.New("boom")
	client := &httplimit.Transport{
		Base:     roundTripper(func(*http.Request) (*http.Response, error) { return nil, boom }),
		Strategy: fake, Limit: 3, Duration: time.Minute,
		Key: func(r *http.Request) string { return r.Method },
	}
	_, err := get(t.Context(), client, "http://a.example/")
	assert.ErrorIs(t, err, boom)
	assert.Equal(t, weir.Request{Key: "GET", Limit: 3, Duration: time.Minute}, fake.Calls()[0].Request)
}

func TestTransportCanBeToldNotToHeed(t *testing.T) {
	s := serving([]string{"429", "Retry-After: 60"})
	client := &httplimit.Transport{Base: s, MaxPause: -1, NoWait: true}
	for range 2 {
		_, err := get(t.Context(), client, "http://a.example/")
		require.NoError(t, err)
	}
	assert.Len(t, s.asked, 2)
}

// The pauses remembered are bounded: servers beyond the bound are not paused for, and those that are over make room.
func TestTransportRemembersABoundedNumberOfServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serving([]string{"429", "Retry-After: 60"})
		client := &httplimit.Transport{Base: s, NoWait: true}
		for i := range 10_001 {
			_, err := get(t.Context(), client, fmt.Sprintf("http://%d.example/", i))
			require.NoError(t, err)
		}
		_, err := get(t.Context(), client, "http://10000.example/")
		assert.NoError(t, err)
		_, err = get(t.Context(), client, "http://9999.example/")
		assert.Error(t, err)
		time.Sleep(time.Minute)
		_, err = get(t.Context(), client, "http://10000.example/")
		assert.NoError(t, err)
		_, err = get(t.Context(), client, "http://10000.example/")
		assert.Error(t, err)
	})
}
