package httpclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httpclient"
	"github.com/weirgo/weir/internal/core/turns"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/weirtest"
)

// server is a RoundTripper with scripted responses, of which it repeats the last one. It records
// the path and the time of each request. A response is a status and header lines.
type server struct {
	answers [][]string
	start   time.Time

	mu       sync.Mutex
	paths    []string        // guarded by mu
	requests []time.Duration // guarded by mu; since start
}

func serving(answers ...[]string) *server { return &server{answers: answers, start: time.Now()} }

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.answers[min(len(s.requests), len(s.answers)-1)]
	s.paths = append(s.paths, r.URL.Path)
	s.requests = append(s.requests, time.Since(s.start))
	resp := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody,
		Request: r}
	for _, line := range answer {
		if name, value, ok := strings.Cut(line, ": "); ok {
			resp.Header.Add(name, value)
			continue
		}
		_, _ = fmt.Sscan(line, &resp.StatusCode)
	}
	return resp, nil
}

func get(ctx context.Context, t *httpclient.Transport, url string) (int, error) {
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

// Each row has the first response of a server, and how long the client then pauses.
func TestTransportPausesAsServersRequest(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer []string
		want   time.Duration
	}{
		{"no fields", []string{"200"}, 0},
		{"429 without Retry-After", []string{"429"}, 0},
		{"429 with seconds", []string{"429", "Retry-After: 7"}, 7 * time.Second},
		{"503 with seconds", []string{"503", "Retry-After: 7"}, 7 * time.Second},
		{"403 with seconds: an abuse limit", []string{"403", "Retry-After: 7"}, 7 * time.Second},
		{"413 with seconds", []string{"413", "Retry-After: 7"}, 7 * time.Second},
		{"404 with seconds", []string{"404", "Retry-After: 7"}, 0},
		{"200 with seconds: not about a limit", []string{"200", "Retry-After: 7"}, 0},
		{"a date", []string{"429", "Retry-After: Sat, 01 Jan 2000 00:00:09 GMT"}, 9 * time.Second},
		{"a date by the server's own clock", []string{"429", "Retry-After: Fri, 20 Nov 2026 12:00:09 GMT",
			"Date: Fri, 20 Nov 2026 12:00:05 GMT"}, 4 * time.Second},
		{"no more than ten minutes", []string{"429", "Retry-After: 999999999999999999999"},
			10 * time.Minute},
		{"an invalid value", []string{"429", "Retry-After: soon"}, 0},
		{"a list: the longest", []string{"429", "Retry-After: 5, 10"}, 10 * time.Second},
		{"a list: the longest is first", []string{"429", "Retry-After: 10,5"}, 10 * time.Second},
		{"two fields: the longest", []string{"429", "Retry-After: 5", "Retry-After: 10"}, 10 * time.Second},
		{"two fields, the first invalid", []string{"429", "Retry-After: soon", "Retry-After: 10"},
			10 * time.Second},
		{"two fields, one empty", []string{"429", "Retry-After:", "Retry-After: 10"}, 10 * time.Second},
		{"a list with an invalid member", []string{"429", "Retry-After: soon, 5,, -3"}, 5 * time.Second},
		{"a list of a date and a number", []string{"429",
			"Retry-After: Sat, 01 Jan 2000 00:00:09 GMT, 5"}, 9 * time.Second},
		{"a list of a number and a date", []string{"429",
			"Retry-After: 11, Sat, 01 Jan 2000 00:00:09 GMT"}, 11 * time.Second},
		{"a list of nothing", []string{"429", "Retry-After: , ,"}, 0},
		{"quoted", []string{"429", `Retry-After: "7"`}, 7 * time.Second},
		{"with a parameter", []string{"429", "Retry-After: 7; comment=busy"}, 7 * time.Second},
		{"a negative number", []string{"429", "Retry-After: -7"}, 0},
		{"milliseconds twice", []string{"429", "Retry-After-Ms: 100, 300", "Retry-After: 9"},
			300 * time.Millisecond},
		{"seconds with decimals, as Shopify sends them", []string{"429", "Retry-After: 2.0"},
			2 * time.Second},
		{"not a number", []string{"429", "Retry-After: NaN"}, 10 * time.Minute},
		{"an instant of the epoch", []string{"429", "Retry-After: 1795176025",
			"Date: Fri, 20 Nov 2026 12:00:05 GMT"}, 20 * time.Second},
		{"a duration", []string{"429", "Retry-After: 1m3s"}, 63 * time.Second},
		{"an overload of a language model", []string{"529", "Retry-After: 7"}, 7 * time.Second},
		{"milliseconds", []string{"429", "retry-after-ms: 503"}, 503 * time.Millisecond},
		{"milliseconds take precedence over seconds", []string{"429", "retry-after-ms: 503",
			"Retry-After: 1"}, 503 * time.Millisecond},
		{"invalid milliseconds do not", []string{"429", "retry-after-ms: soon", "Retry-After: 1"},
			time.Second},
		{"milliseconds as Azure spells them", []string{"429", "x-ms-retry-after-ms: 100"},
			100 * time.Millisecond},
		{"milliseconds on a 200", []string{"200", "retry-after-ms: 503"}, 0},
		{"nothing left, on a 200", []string{"200", `RateLimit: "default";r=0;t=5`}, 5 * time.Second},
		{"some left", []string{"200", `RateLimit: "default";r=1;t=5`}, 0},
		{"the longest of those that have nothing left", []string{"200",
			`RateLimit: "a";r=0;t=5, "b";r=3;t=60`, `RateLimit: "c";t=8;r=0;pk=:YQ==:;x`}, 8 * time.Second},
		{"Retry-After takes precedence",
			[]string{"429", "Retry-After: 3", `RateLimit: "a";r=0;t=5`}, 3 * time.Second},
		{"an invalid Retry-After does not",
			[]string{"429", "Retry-After: soon", `RateLimit: "a";r=0;t=5`}, 5 * time.Second},
		{"names as tokens", []string{"200", `RateLimit: default;r=0;t=5`}, 5 * time.Second},
		{"nothing left, without t", []string{"200", `RateLimit: "a";r=0`}, 0},
		{"malformed: ignored as a whole", []string{"200", `RateLimit: "a";r=0;t=5, "b`}, 0},
		{"malformed: r is a String", []string{"200", `RateLimit: "a";r="0";t=5`}, 0},
		{"malformed: r is a Decimal", []string{"200", `RateLimit: "a";r=0.0;t=5`}, 0},
		{"malformed: t is negative", []string{"200", `RateLimit: "a";r=0;t=-5`}, 0},
		{"malformed: t has 16 digits", []string{"200", `RateLimit: "a";r=0;t=1000000000000000`}, 0},
		{"malformed: a blank before the semicolon", []string{"200", `RateLimit: "a" ;r=0;t=5`}, 0},
		{"malformed: a trailing comma", []string{"200", `RateLimit: "a";r=0;t=5,`}, 0},
		{"malformed: an invalid escape", []string{"200", "RateLimit: \"\a\";r=0;t=5"}, 0},
		{"malformed: a parameter in upper case", []string{"200", `RateLimit: "a";R=0;t=5`}, 0},
		{"malformed: a name that is an Integer", []string{"200", `RateLimit: 7;r=0;t=5`}, 0},
		{"malformed: draft 07 with Strings",
			[]string{"200", `RateLimit: limit="1", remaining="0", reset="6"`}, 0},
		{"a parameter twice: the last one counts",
			[]string{"200", `RateLimit: "a";r=3;t=50;r=0;t=5`}, 5 * time.Second},
		{"parameters of other types", []string{"200",
			`RateLimit: "a";x;y=?0;z=1.5;d=@1;u=%"%c3%a9";p=:YQ==:;q=*tok/:;r=0;t=5`}, 5 * time.Second},
		{"blanks and tabs between members",
			[]string{"200", "RateLimit: \t\"a\";  r=1;t=9 \t,\t \"b\";r=0;t=5"}, 0},
		{"blanks around members",
			[]string{"200", "RateLimit:  \"a\"; r=1;t=9 \t,\t \"b\";r=0;t=5 "}, 5 * time.Second},
		{"a member that is an inner list",
			[]string{"200", `RateLimit: ("a" "b");r=0;t=50, "c";r=0;t=5`}, 5 * time.Second},
		{"an escaped name", []string{"200", `RateLimit: "say \"hi\" \\o/";r=0;t=5`}, 5 * time.Second},
		{"draft 07 with parameters",
			[]string{"200", "RateLimit: limit=100;w=60, remaining=0, reset=6"}, 6 * time.Second},
		{"from a cache", []string{"200", `RateLimit: "a";r=0;t=5`, "Age: 30"}, 0},
		{"fresh from a cache", []string{"200", `RateLimit: "a";r=0;t=5`, "Age: 0"}, 5 * time.Second},
		{"draft 07", []string{"200", "RateLimit: limit=100, remaining=0, reset=6"}, 6 * time.Second},
		{"draft 07 with some left", []string{"200", "RateLimit: limit=100, remaining=1, reset=6"}, 0},
		{"drafts to 06", []string{"200", "RateLimit-Limit: 100", "RateLimit-Remaining: 0",
			"RateLimit-Reset: 6"}, 6 * time.Second},
		{"drafts to 06 with some left", []string{"200", "RateLimit-Remaining: 2", "RateLimit-Reset: 6"},
			0},
		{"drafts to 06, an instant of the epoch, as GitLab sends it", []string{"200",
			"Date: Fri, 20 Nov 2026 12:00:05 GMT", "RateLimit-Limit: 600", "RateLimit-Observed: 600",
			"RateLimit-Remaining: 0", "RateLimit-Reset: 1795176030",
			"RateLimit-ResetTime: Fri, 20 Nov 2026 12:00:30 GMT"}, 25 * time.Second},
		{"drafts to 06, an instant that is past", []string{"200", "Date: Fri, 20 Nov 2026 12:00:05 GMT",
			"RateLimit-Remaining: 0", "RateLimit-Reset: 1795176004"}, 0},
		{"drafts to 06, an instant with some left", []string{"200", "RateLimit-Remaining: 1",
			"Date: Fri, 20 Nov 2026 12:00:05 GMT", "RateLimit-Reset: 1795176030"}, 0},
		{"t with decimals", []string{"200", `RateLimit: "a";r=0;t=2.5`}, 2500 * time.Millisecond},
		{"t as an instant", []string{"200", `RateLimit: "a";r=0;t=1795176030`,
			"Date: Fri, 20 Nov 2026 12:00:05 GMT"}, 25 * time.Second},
		{"draft 07 with decimals", []string{"200", "RateLimit: limit=1, remaining=0, reset=2.5"},
			2500 * time.Millisecond},
		{"a malformed RateLimit beside a valid field", []string{"200", `RateLimit: "a`,
			"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 6"}, 6 * time.Second},
		{"the longest of several fields", []string{"200", `RateLimit: "a";r=0;t=5`,
			"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 6"}, 6 * time.Second},
		{"requests of a language model", []string{"200", "x-ratelimit-remaining-requests: 0",
			"x-ratelimit-reset-requests: 1m3s"}, 63 * time.Second},
		{"requests of a language model with some left", []string{"200",
			"x-ratelimit-remaining-requests: 59", "x-ratelimit-reset-requests: 1m3s"}, 0},
		{"tokens of a language model", []string{"200", "x-ratelimit-remaining-requests: 59",
			"x-ratelimit-reset-requests: 1m3s", "x-ratelimit-remaining-tokens: 0",
			"x-ratelimit-reset-tokens: 28.75ms"}, 28750 * time.Microsecond},
		{"the longest of requests and tokens", []string{"200", "x-ratelimit-remaining-requests: 0",
			"x-ratelimit-reset-requests: 1s", "x-ratelimit-remaining-tokens: 0",
			"x-ratelimit-reset-tokens: 6m0s"}, 6 * time.Minute},
		{"requests of Anthropic", []string{"200", "Date: Fri, 20 Nov 2026 12:00:05 GMT",
			"anthropic-ratelimit-requests-remaining: 0",
			"anthropic-ratelimit-requests-reset: 2026-11-20T12:00:30Z"}, 25 * time.Second},
		{"the longest of Anthropic's quotas that have nothing left", []string{"200",
			"Date: Fri, 20 Nov 2026 12:00:05 GMT",
			"anthropic-ratelimit-requests-remaining: 9",
			"anthropic-ratelimit-requests-reset: 2026-11-20T12:05:00Z",
			"anthropic-ratelimit-tokens-remaining: 0",
			"anthropic-ratelimit-tokens-reset: 2026-11-20T12:00:30Z",
			"anthropic-ratelimit-input-tokens-remaining: 0",
			"anthropic-ratelimit-input-tokens-reset: 2026-11-20T13:00:40+01:00",
			"anthropic-ratelimit-output-tokens-remaining: 0",
			"anthropic-ratelimit-output-tokens-reset: 2026-11-20T12:00:06Z"}, 35 * time.Second},
		{"Retry-After takes precedence over them", []string{"429", "Retry-After: 3",
			"Date: Fri, 20 Nov 2026 12:00:05 GMT", "anthropic-ratelimit-tokens-remaining: 0",
			"anthropic-ratelimit-tokens-reset: 2026-11-20T12:00:30Z"}, 3 * time.Second},
		{"legacy, seconds from now",
			[]string{"200", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 6"}, 6 * time.Second},
		{"legacy, since the epoch", []string{"200", "X-RateLimit-Remaining: 0",
			fmt.Sprint("X-RateLimit-Reset: ", 2_000_000_000)}, 10 * time.Minute},
		{"legacy, a date", []string{"200", "X-RateLimit-Remaining: 0",
			"X-RateLimit-Reset: Sat, 01 Jan 2000 00:00:06 GMT"}, 6 * time.Second},
		{"legacy, since the epoch by the server's own clock, which is ahead", []string{"200",
			"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795176065",
			"Date: Fri, 20 Nov 2026 12:00:05 GMT"}, time.Minute},
		{"legacy, milliseconds since the epoch by the server's own clock", []string{"200",
			"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795176065000",
			"Date: Fri, 20 Nov 2026 12:00:05 GMT"}, time.Minute},
		{"legacy, a date by the server's own clock, which is behind",
			[]string{"200", "X-RateLimit-Remaining: 0",
				"X-RateLimit-Reset: Fri, 31 Dec 1999 23:56:00 GMT", "Date: Fri, 31 Dec 1999 23:55:00 GMT"},
			time.Minute},
		{"legacy, a remainder below 0",
			[]string{"200", "X-Ratelimit-Remaining: -1", "X-Ratelimit-Reset: 6"}, 6 * time.Second},
		{"legacy, a remainder that is not a number",
			[]string{"200", "X-Ratelimit-Remaining: NaN", "X-Ratelimit-Reset: 6"}, 0},
		{"legacy, an invalid remainder",
			[]string{"200", "X-Ratelimit-Remaining: none", "X-Ratelimit-Reset: 6"}, 0},
		{"legacy, a remainder with a decimal",
			[]string{"200", "X-Ratelimit-Remaining: 0.0", "X-Ratelimit-Reset: 6"}, 6 * time.Second},
		{"legacy, a remainder below 1",
			[]string{"200", "X-Ratelimit-Remaining: 0.5", "X-Ratelimit-Reset: 6"}, 0},
		{"legacy, a fraction from now takes precedence", []string{"200", "X-RateLimit-Remaining: 0",
			"X-RateLimit-Reset: 2000000000.5", "X-RateLimit-Reset-After: 6.250"}, 6250 * time.Millisecond},
		{"legacy, the other spelling", []string{"200", "X-Rate-Limit-Remaining: 0",
			"X-Rate-Limit-Reset: 1795176011", "Date: Fri, 20 Nov 2026 12:00:05 GMT"}, 6 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serving(row.answer, []string{"200"})
				client := &httpclient.Transport{Base: s}
				for range 2 {
					_, err := get(t.Context(), client, "http://api.example/")
					require.NoError(t, err)
				}
				assert.Equal(t, []time.Duration{0, row.want}, s.requests)
			})
		})
	}
}

func TestTransportPausesOneServerNotAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serving([]string{"429", "Retry-After: 60"}, []string{"200"})
		client := &httpclient.Transport{Base: s}
		_, err := get(t.Context(), client, "http://a.example/")
		require.NoError(t, err)
		_, err = get(t.Context(), client, "http://b.example/")
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{0, 0}, s.requests)
	})
}

func TestTransportNeverRetries(t *testing.T) {
	s := serving([]string{"503", "Retry-After: 0"})
	status, err := get(t.Context(), &httpclient.Transport{Base: s}, "http://a.example/")
	require.NoError(t, err)
	assert.Equal(t, 503, status)
	assert.Len(t, s.requests, 1)
}

func TestTransportWaitsWithinItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serving([]string{"429", "Retry-After: 60"}, []string{"200"})
		client := &httpclient.Transport{Base: s}
		_, err := get(t.Context(), client, "http://a.example/")
		require.NoError(t, err)

		short, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		before := time.Now()
		_, err = get(short, client, "http://a.example/")
		var limited *httpclient.LimitError
		require.ErrorAs(t, err, &limited)
		assert.Equal(t, httpclient.LimitError{Key: "a.example", Wait: time.Minute, Server: true,
			Err: context.DeadlineExceeded}, *limited)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, time.Since(before), "it fails without waiting")

		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, leave)
		_, err = get(gone, client, "http://a.example/")
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 10*time.Second, time.Since(before))

		client.NoWait = true
		_, err = get(t.Context(), client, "http://a.example/")
		require.ErrorAs(t, err, &limited)
		assert.EqualError(t, err,
			`httpclient: request for "a.example" not sent: the server asked for a pause, wait 50s`)
		assert.Len(t, s.requests, 1)
	})
}

func TestTransportUsesTheLongerOfTwoPauses(t *testing.T) {
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
		client := &httpclient.Transport{Base: slow}
		done := make(chan error)
		for range 2 {
			go func() { _, err := get(t.Context(), client, "http://a.example/"); done <- err }()
		}
		synctest.Wait()
		release <- []string{"30"} // the responses arrive out of order
		require.NoError(t, <-done)
		release <- []string{"5"}
		require.NoError(t, <-done)
		go func() { release <- nil }()
		_, err := get(t.Context(), client, "http://a.example/")
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{0, 0, 30 * time.Second}, s.requests)
	})
}

func TestTransportWaitsForAnExtendedPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serving([]string{"200"})
		late := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := s.RoundTrip(r)
			if r.Method == http.MethodPut { // answered five seconds later, with a longer pause
				time.Sleep(5 * time.Second)
				resp.StatusCode = 503
				resp.Header.Set("Retry-After", "30")
			}
			return resp, err
		})
		client := &httpclient.Transport{Base: late}
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
		assert.Equal(t, []time.Duration{0, 0, 35 * time.Second}, s.requests)
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
		client := &httpclient.Transport{Base: s, Limit: limiter.FixedWindow().Limit(2, time.Second)}
		for range 5 {
			_, err := get(t.Context(), client, "http://a.example/")
			require.NoError(t, err)
		}
		assert.Equal(t, []time.Duration{0, 0, time.Second, time.Second, 2 * time.Second}, s.requests)

		client.NoWait = true
		_, _ = get(t.Context(), client, "http://a.example/")
		_, err = get(t.Context(), client, "http://a.example/")
		var limited *httpclient.LimitError
		require.ErrorAs(t, err, &limited)
		assert.Equal(t, httpclient.LimitError{Key: "a.example", Wait: time.Second}, *limited)
		assert.Contains(t, err.Error(), "over the client's own limit")
	})
}

// limitOf returns the limit of n in d by any Strategy.
func limitOf(s weir.Strategy, n uint64, d time.Duration) *weir.Limit {
	m, err := weir.NewLimit(s, n, d)
	if err != nil {
		panic(err)
	}
	return m
}

// never denies, and no wait helps.
var never = &weirtest.Fake{Answer: func(context.Context, *weir.Request, time.Time) (weir.Result,
	error) {
	return weir.Result{}, nil
}}

// neither returns neither a Result nor an error.
type neither struct{}

func (neither) Run(context.Context, *weir.Request) (*weir.Result, error) { return nil, nil }

func TestTransportFailsAtOnceIfWaitingCannotHelp(t *testing.T) {
	s := serving([]string{"200"})
	var limited *httpclient.LimitError
	client := &httpclient.Transport{Base: s, Limit: never.Limit(1, time.Second)}
	_, err := get(t.Context(), client, "http://a.example/")
	require.ErrorAs(t, err, &limited)

	client.Limit = weirtest.FailAll(weir.ErrClosed).Limit(1, time.Second)
	_, err = get(t.Context(), client, "http://a.example/")
	assert.ErrorIs(t, err, weir.ErrClosed)
	client.Limit = limitOf(neither{}, 1, time.Second)
	_, err = get(t.Context(), client, "http://a.example/")
	assert.Error(t, err)
	assert.Empty(t, s.requests)
}

func TestTransportClosesTheBodyItDoesNotSend(t *testing.T) {
	client := &httpclient.Transport{Limit: weirtest.DenyAll().Limit(1, time.Second),
		NoWait: true}
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
	client := &httpclient.Transport{
		Base:  roundTripper(func(*http.Request) (*http.Response, error) { return nil, boom }),
		Limit: fake.Limit(3, time.Minute),
		Key:   func(r *http.Request) string { return r.Method },
	}
	_, err := get(t.Context(), client, "http://a.example/")
	assert.ErrorIs(t, err, boom)
	assert.Equal(t, weir.CounterOf(client.Limit).About().Key("GET"), fake.Calls()[0].Request.Key)
}

// search has nothing left of a quota of a resource.
var search = []string{"200", "X-RateLimit-Resource: search", "X-RateLimit-Remaining: 0",
	"X-RateLimit-Reset: 60"}

// Each row has the responses of a server, and the requests to it with the second in which they are
// sent.
func TestTransportPausesOneResource(t *testing.T) {
	type request struct {
		path string
		want time.Duration
	}
	core := []string{"200", "X-RateLimit-Resource: core", "X-RateLimit-Remaining: 4999",
		"X-RateLimit-Reset: 3600"}
	noCore := []string{"403", "X-RateLimit-Resource: core", "X-RateLimit-Remaining: 0",
		"X-RateLimit-Reset: 90"}
	for _, row := range []struct {
		name     string
		answers  [][]string
		requests []request
	}{
		{"other paths do not wait, the same path does", [][]string{search, core},
			[]request{{"/search/code?q=a", 0}, {"/repos/a", 0}, {"/search/issues", time.Minute}}},
		{"all known paths of the resource wait", [][]string{core, core, noCore, core, core},
			[]request{{"/user", 0}, {"/orgs/a", 0}, {"/repos/a", 0}, {"/search/code", 0},
				{"/user", 90 * time.Second}, {"/orgs/b", 90 * time.Second}}},
		{"a path that is not known is sent once", [][]string{noCore},
			[]request{{"/repos/a", 0}, {"/user", 0}, {"/user", 90 * time.Second}}},
		{"two resources wait for their own pauses", [][]string{search, noCore, core},
			[]request{{"/search", 0}, {"/repos", 0}, {"/search", time.Minute}, {"/repos", 90 * time.Second}}},
		{"Retry-After with nothing left of a resource holds it back", [][]string{
			{"403", "Retry-After: 30", "X-RateLimit-Resource: search", "X-RateLimit-Remaining: 0",
				"X-RateLimit-Reset: 90"}, core},
			[]request{{"/search", 0}, {"/repos", 0}, {"/search", 30 * time.Second}}},
		{"Retry-After with some left holds back all resources", [][]string{core,
			{"403", "Retry-After: 30", "X-RateLimit-Resource: search", "X-RateLimit-Remaining: 14",
				"X-RateLimit-Reset: 90"}, core},
			[]request{{"/repos", 0}, {"/search", 0}, {"/repos", 30 * time.Second},
				{"/search", 30 * time.Second}}},
		{"the end of the longer of two pauses counts", [][]string{search,
			{"503", "Retry-After: 90"}, core},
			[]request{{"/search", 0}, {"/user", 0}, {"/search", 90 * time.Second}}},
		{"RateLimit with a resource", [][]string{
			{"200", "X-RateLimit-Resource: search", `RateLimit: "a";r=0;t=60`}, core},
			[]request{{"/search", 0}, {"/repos", 0}, {"/search", time.Minute}}},
		{"without a resource all paths wait", [][]string{
			{"200", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60"}, core},
			[]request{{"/search", 0}, {"/repos", time.Minute}}},
		{"a name that is too long is none", [][]string{
			{"200", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60",
				"X-RateLimit-Resource: " + strings.Repeat("x", 101)}, core},
			[]request{{"/search", 0}, {"/repos", time.Minute}}},
		{"the root", [][]string{search, core}, []request{{"", 0}, {"/repos", 0}, {"/", time.Minute}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serving(row.answers...)
				client := &httpclient.Transport{Base: s}
				for i, r := range row.requests {
					_, err := get(t.Context(), client, "http://api.example"+r.path)
					require.NoError(t, err)
					assert.Equal(t, r.want, s.requests[i].Truncate(time.Second), r.path)
				}
			})
		})
	}
}

// A request for a resource fails at once if it cannot wait for the end of its pause.
func TestTransportRefusesPausedResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &httpclient.Transport{Base: serving(search), NoWait: true}
		_, err := get(t.Context(), client, "http://a.example/search")
		require.NoError(t, err)
		_, err = get(t.Context(), client, "http://a.example/search")
		var limited *httpclient.LimitError
		require.ErrorAs(t, err, &limited)
		assert.Equal(t, httpclient.LimitError{Key: "a.example", Wait: time.Minute, Server: true}, *limited)
		assert.NoError(t, client.Admit(t.Context(), "a.example"), "it has no path")

		client.NoWait = false
		ended, end := context.WithCancel(t.Context())
		go func() { _, _ = get(ended, client, "http://a.example/search") }()
		synctest.Wait() // it is first in the row
		short, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		before := time.Now()
		_, err = get(short, client, "http://a.example/search")
		require.ErrorAs(t, err, &limited)
		assert.Zero(t, time.Since(before), "it fails without waiting")
		end()
		synctest.Wait()
	})
}

// slowly answers as s does, after so long.
func slowly(s http.RoundTripper, d time.Duration) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := s.RoundTrip(r)
		time.Sleep(d)
		return resp, err
	})
}

// drawing returns a function that returns random numbers below n, the same ones for a seed.
func drawing(seed uint64) func(n int) int {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, seed)) // guarded by mu
	return func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
}

// Requests that wait for the client's own limit when a pause of their resource begins wait for its
// end too, are counted once each, and are sent in order of arrival, before those that arrive in the
// pause. Others do not wait for them. However long a request takes from one step to the next, as
// where its goroutine is not scheduled, the order is the same.
func TestTransportHoldsBackARowThatWaitsForItsLimit(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			limiter, err := weir.New(weir.Config{})
			require.NoError(t, err)
			defer limiter.Close()
			s := serving(search, []string{"200"})
			draw := drawing(seed)
			client := &httpclient.Transport{
				Limit: limiter.FixedWindow().Limit(1, time.Second),
				Base:  slowly(s, time.Second/2),
				Now: func() time.Time {
					time.Sleep(time.Duration(draw(5)) * time.Millisecond) // of a bubble
					return time.Now()
				},
			}
			var all errgroup.Group
			for _, path := range []string{"/search/0", "/search/1", "/search/2", "/repos", "/search/3",
				"/search/4"} {
				all.Go(func() error {
					_, err := get(t.Context(), client, "http://a.example"+path)
					return err
				})
				time.Sleep(140 * time.Millisecond) // of a bubble; the last one arrives in the pause
			}
			require.NoError(t, all.Wait())
			require.Equal(t, []string{"/search/0", "/repos", "/search/1", "/search/2", "/search/3",
				"/search/4"}, s.paths)
			var seconds []time.Duration
			for _, at := range s.requests {
				seconds = append(seconds, at.Truncate(time.Second))
			}
			require.Equal(t, []time.Duration{0, time.Second, 60 * time.Second, 61 * time.Second,
				62 * time.Second, 63 * time.Second}, seconds)
		})
	}
}

// Requests that the limit denies wait in the order in which they arrived, not in which it answered.
func TestTransportSendsInOrderOfArrivalHoweverLateItsLimitDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		fake := &weirtest.Fake{Answer: func(ctx context.Context, r *weir.Request,
			now time.Time) (weir.Result, error) {
			if now.Sub(start) >= 10*time.Second {
				time.Sleep(time.Millisecond) // of a bubble, between the two
				return weirtest.Allow(ctx, r, now)
			}
			if now.Equal(start) {
				time.Sleep(3 * time.Second) // of a bubble
			}
			return weir.Result{State: weir.Deny, ExpiresAt: start.Add(10 * time.Second)}, nil
		}}
		s := serving([]string{"200"})
		client := &httpclient.Transport{Base: s, Limit: fake.Limit(1, time.Minute)}
		var all errgroup.Group
		for _, path := range []string{"/first", "/second"} {
			all.Go(func() error {
				_, err := get(t.Context(), client, "http://a.example"+path)
				return err
			})
			time.Sleep(time.Second) // of a bubble
		}
		require.NoError(t, all.Wait())
		assert.Equal(t, []string{"/first", "/second"}, s.paths)
	})
}

// Whatever the server answers, and whatever the limit decides, waiting requests of a path are sent
// in order of arrival, and the limit decides on one at a time.
func TestTransportKeepsTheOrderOfEachPath(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			draw := drawing(seed)
			var deciding atomic.Int64
			fake := &weirtest.Fake{Answer: func(ctx context.Context, r *weir.Request,
				now time.Time) (weir.Result, error) {
				assert.EqualValues(t, 1, deciding.Add(1))
				defer deciding.Add(-1)
				time.Sleep(time.Duration(1+draw(3)) * time.Millisecond) // of a bubble
				if draw(3) == 0 {
					return weir.Result{State: weir.Deny, ExpiresAt: now.Add(20 * time.Millisecond)}, nil
				}
				return weirtest.Allow(ctx, r, now)
			}}
			var mu sync.Mutex
			sent := make(map[string][]int) // guarded by mu
			client := &httpclient.Transport{
				Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					dir, n, _ := strings.Cut(r.URL.Path[1:], "/")
					number, err := strconv.Atoi(n)
					assert.NoError(t, err)
					mu.Lock()
					sent[dir] = append(sent[dir], number)
					mu.Unlock()
					time.Sleep(time.Duration(draw(200)) * time.Millisecond) // of a bubble
					resource := map[string]string{"a": "x", "b": "x", "c": "y"}[dir]
					return serving([]string{"200", "X-RateLimit-Resource: " + resource,
						"X-RateLimit-Reset: 2", fmt.Sprint("X-RateLimit-Remaining: ", draw(20)),
					}).RoundTrip(r)
				}),
				Limit: limitOf(refundCtx(fake), 1, time.Minute), // no peek, which may be at any time
			}
			client.Pause("example", time.Second)
			var all errgroup.Group
			for i := range 300 {
				path := fmt.Sprintf("http://example/%c/%d", "abcd"[draw(4)], i)
				all.Go(func() error {
					_, err := get(t.Context(), client, path)
					return err
				})
				synctest.Wait()
				time.Sleep(time.Millisecond)
			}
			require.NoError(t, all.Wait())
			for dir, numbers := range sent {
				assert.IsIncreasing(t, numbers, dir)
			}
		})
	}
}

// A request that its limit is still deciding on when a pause begins, of its resource or of all, is
// refunded, and waits for the end of the pause.
func TestTransportHoldsBackARequestThatItsLimitDecidesOn(t *testing.T) {
	for name, answer := range map[string][]string{
		"of its resource": search,
		"of all":          {"429", "Retry-After: 60"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serving(answer, []string{"200"})
				fake := &weirtest.Fake{Answer: func(ctx context.Context, r *weir.Request,
					now time.Time) (weir.Result, error) {
					time.Sleep(2 * time.Second)
					return weirtest.Allow(ctx, r, now)
				}}
				client := &httpclient.Transport{Base: slowly(s, time.Second),
					Limit: fake.Limit(1, time.Minute)}
				var all errgroup.Group
				for range 2 {
					all.Go(func() error {
						_, err := get(t.Context(), client, "http://a.example/search")
						return err
					})
					time.Sleep(2 * time.Second)
				}
				require.NoError(t, all.Wait())
				assert.Equal(t, []time.Duration{2 * time.Second, 65 * time.Second}, s.requests,
					"3 s, a minute, and the Strategy's 2 s")
				var methods []string
				for _, call := range fake.Calls() {
					methods = append(methods, call.Method)
				}
				assert.Equal(t, []string{"Run", "Run", "Refund", "Run"}, methods)
			})
		})
	}
}

// Resources are recorded up to a bound, so that no server can fill the memory. Beyond it a pause
// holds back the whole key.
func TestTransportRecordsABoundedNumberOfResources(t *testing.T) {
	for name, row := range map[string]struct {
		requests          int
		host, path, named string // "%d": the number of the request
	}{
		"a name of its own in each response": {100, "a.example", "/same", "resource %d"},
		"paths":                              {100, "a.example", "/%d", "same"},
		"servers":                            {10_000, "%d.example", "/same", "same"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				fill := func(s string) string { return strings.ReplaceAll(s, "%d", fmt.Sprint(sent)) }
				client := &httpclient.Transport{NoWait: true, Base: roundTripper(
					func(r *http.Request) (*http.Response, error) {
						h := http.Header{}
						h.Set("X-RateLimit-Resource", fill(row.named))
						h.Set("X-RateLimit-Remaining", fmt.Sprint(max(0, row.requests-sent)))
						h.Set("X-RateLimit-Reset", "60")
						return &http.Response{StatusCode: 200, Header: h, Body: http.NoBody, Request: r}, nil
					})}
				for ; sent <= row.requests; sent++ {
					_, err := get(t.Context(), client, fill("http://"+row.host+row.path))
					require.NoError(t, err)
				}
				sent--
				_, err := get(t.Context(), client, fill("http://"+row.host+"/other"))
				assert.Error(t, err)
			})
		})
	}
}

// The bound of pauses can be taken away, and adding the jitter does not wrap around.
func TestTransportWithoutABoundOfPauses(t *testing.T) {
	for _, row := range []struct {
		after  string
		jitter time.Duration
		want   time.Duration
	}{
		{"86400", 0, 24 * time.Hour}, {"Inf", 0, math.MaxInt64}, {"Inf", time.Hour, math.MaxInt64},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := &httpclient.Transport{Base: serving([]string{"429", "Retry-After: " + row.after}),
				MaxPause: math.MaxInt64, Jitter: row.jitter, NoWait: true}
			_, err := get(t.Context(), client, "http://a.example/")
			require.NoError(t, err)
			_, err = get(t.Context(), client, "http://a.example/")
			var limited *httpclient.LimitError
			require.ErrorAs(t, err, &limited)
			assert.Equal(t, row.want, limited.Wait)
		})
	}
}

func TestTransportCanIgnorePauses(t *testing.T) {
	s := serving([]string{"429", "Retry-After: 60"})
	client := &httpclient.Transport{Base: s, MaxPause: -1, NoWait: true}
	for range 2 {
		_, err := get(t.Context(), client, "http://a.example/")
		require.NoError(t, err)
	}
	assert.Len(t, s.requests, 2)
}

// The number of recorded pauses is bounded. Beyond the bound a new pause is kept, and one that ends
// earlier is not.
func TestTransportRecordsABoundedNumberOfPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, longer, more = 10_000, 5000, 500
		client := &httpclient.Transport{NoWait: true}
		pause := func(from, n int, d time.Duration) {
			for i := range n {
				client.Pause(strconv.Itoa(from+i), d)
			}
		}
		paused := func(from, n int) (held int) {
			for i := range n {
				if client.Admit(t.Context(), strconv.Itoa(from+i)) != nil {
					held++
				}
			}
			return held
		}
		pause(0, longer, time.Minute)
		pause(longer, bound-longer, time.Second)
		pause(bound, more, 30*time.Second)
		// Of 16 that are looked at, nearly always one ends soon.
		assert.InDelta(t, more, paused(bound, more), 10, "the new ones")
		assert.InDelta(t, longer, paused(0, longer), 10, "the long ones")
		assert.Equal(t, bound, paused(0, bound+more), "each takes the place of one")
		time.Sleep(time.Minute)
		pause(2*bound, 2*bound, time.Minute)
		assert.InDelta(t, bound, paused(2*bound, 2*bound), 100, "those that have ended make room")
	})
}

// A pause beyond the bound costs no search through all others.
func BenchmarkPauseBeyondTheBound(b *testing.B) {
	client := new(httpclient.Transport)
	for i := range 10_000 + b.N {
		if i == 10_000 {
			b.ResetTimer()
		}
		client.Pause(strconv.Itoa(i), time.Minute)
	}
}

// All spellings of a host share a key; another port is another server.
func TestTransportKeyOfServer(t *testing.T) {
	for url, want := range map[string]string{
		"http://example.com/": "example.com", "http://EXAMPLE.com/": "example.com",
		"http://example.com:80/":  "example.com",
		"http://example.com.:80/": "example.com", "https://example.com:443/": "example.com",
		"http://example.com:443/": "example.com:443", "https://example.com:8443/": "example.com:8443",
		"http://[2001:DB8::1]:80/": "[2001:db8::1]", "http://[2001:db8::1]:8080/": "[2001:db8::1]:8080",
	} {
		fake := &weirtest.Fake{}
		client := &httpclient.Transport{Base: serving([]string{"200"}), Limit: fake.Limit(1, time.Minute)}
		_, err := get(t.Context(), client, url)
		require.NoError(t, err)
		assert.Equal(t, weir.CounterOf(client.Limit).About().Key(want), fake.Calls()[0].Request.Key, url)
	}
}

// A request that the client's own limit has admitted, and that its context ends during a pause, is
// refunded.
func TestTransportRefundsUnsentRequests(t *testing.T) {
	for name, row := range map[string]struct {
		noWait   bool
		paused   time.Duration // the pause before the request
		deadline time.Duration
		ended    time.Duration // when it is canceled
		want     time.Duration // when it fails
	}{
		"no wait":                                {noWait: true},
		"a deadline before the end of the pause": {deadline: 30 * time.Second},
		"canceled in the pause":                  {ended: 30 * time.Second, want: 30 * time.Second},
		"a deadline in a second pause": {paused: time.Second, deadline: 30 * time.Second,
			want: time.Second},
		"canceled in a second pause": {paused: time.Second, ended: 30 * time.Second,
			want: 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &httpclient.Transport{NoWait: row.noWait}
				fake := pausing(client)
				client.Limit = limitOf(refundCtx(fake), 1, time.Hour)
				client.Pause("db", row.paused)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if row.ended > 0 {
					time.AfterFunc(row.ended, cancel)
				}
				if row.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, row.deadline)
					defer cancel()
				}
				start := time.Now()
				var limited *httpclient.LimitError
				require.ErrorAs(t, client.Admit(ctx, "db"), &limited)
				assert.Equal(t, row.want, time.Since(start))
				calls := fake.Calls()
				require.Len(t, calls, 2)
				run, refund := calls[0], calls[1]
				assert.Equal(t, "Refund", refund.Method)
				assert.Equal(t, run.Request, refund.Request)
				refund.Result.Limit = run.Result.Limit // which a Limit adds to its own
				assert.Equal(t, run.Result, refund.Result)
			})
		})
	}
}

// refundCtx returns s without a peek, whose refunds fail once their context is done, as of a remote
// store.
func refundCtx(s weir.Strategy) weir.Strategy {
	w := ops.Through(s, func(ctx context.Context, op *weir.Op, next func()) {
		if err := ctx.Err(); err != nil && op.Verb == weir.OpReturn {
			op.Err = err
			return
		}
		next()
	})
	w.Is.Verbs = weir.VerbsOf(weir.OpTake, weir.OpReturn)
	return w
}

// pausing returns a Strategy that admits everything and pauses "db" for a minute in each Run.
func pausing(client *httpclient.Transport) *weirtest.Fake {
	fake := &weirtest.Fake{}
	fake.Answer = func(ctx context.Context, r *weir.Request, now time.Time) (weir.Result, error) {
		client.Pause("db", time.Minute)
		return weirtest.Allow(ctx, r, now)
	}
	return fake
}

// Where nothing is given back, requests that are not sent stay counted.
func TestTransportNeedsNoRefunds(t *testing.T) {
	client := &httpclient.Transport{NoWait: true}
	fake := pausing(client)
	client.Limit = limitOf(struct{ weir.Strategy }{fake}, 1, time.Hour)
	var limited *httpclient.LimitError
	require.ErrorAs(t, client.Admit(t.Context(), "db"), &limited)
	require.Len(t, fake.Calls(), 1)
	assert.Equal(t, "Run", fake.Calls()[0].Method)
}

// After a pause requests are sent one by one in order of arrival, the first alone.
func TestTransportSendsWaitersInOrderAndSpreadOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 50
		s := serving([]string{"429", "Retry-After: 10"}, []string{"200"})
		var sent [waiters]time.Time // each is set by its own request
		client := &httpclient.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			var i int
			if _, err := fmt.Sscanf(r.URL.Path, "/%d", &i); err == nil {
				sent[i] = time.Now()
			}
			return s.RoundTrip(r)
		})}
		_, err := get(t.Context(), client, "http://a.example/first")
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				_, err := get(t.Context(), client, fmt.Sprintf("http://a.example/%d", i))
				assert.NoError(t, err)
			})
			synctest.Wait() // it is queued
		}
		wg.Wait()
		assert.Equal(t, 10*time.Second, s.requests[1])
		assert.GreaterOrEqual(t, sent[1].Sub(sent[0]), 50*time.Millisecond, "the first one is alone")
		for i := range sent[1:] {
			if i < 6 {
				assert.True(t, sent[i+1].After(sent[i]), "the first ones are spread out")
			}
			assert.False(t, sent[i+1].Before(sent[i]), "request %d overtook another", i+1)
		}
		assert.Less(t, s.requests[waiters], 11*time.Second, "and the last one soon after")
	})
}

// A pause delays a busy client but does not reduce its rate afterwards: waiting requests leave
// faster than new ones arrive.
func TestTransportReachesItsFullRateAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every, rounds = 500 * time.Microsecond, 4000 // 2000 a second for two seconds
		s := serving([]string{"429", "Retry-After: 1"}, []string{"200"})
		client := &httpclient.Transport{Base: s}
		_, err := get(t.Context(), client, "http://a.example/")
		require.NoError(t, err)
		var wg sync.WaitGroup
		var late atomic.Int64 // requests of the last half second that waited
		for i := range rounds {
			wg.Go(func() {
				start := time.Now()
				_, err := get(t.Context(), client, "http://a.example/")
				assert.NoError(t, err)
				if i >= rounds*3/4 && time.Since(start) > 0 {
					late.Add(1)
				}
			})
			time.Sleep(every)
		}
		wg.Wait()
		assert.Zero(t, late.Load())
		assert.LessOrEqual(t, s.requests[rounds], rounds*every)
	})
}

// If the first request starts another pause, the others keep waiting.
func TestTransportSendsOneRequestBeforeAnotherPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serving([]string{"429", "Retry-After: 10"}, []string{"429", "Retry-After: 10"},
			[]string{"200"})
		client := &httpclient.Transport{Base: s}
		_, err := get(t.Context(), client, "http://a.example/")
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { _, _ = get(t.Context(), client, "http://a.example/") })
		}
		wg.Wait()
		assert.Equal(t, 10*time.Second, s.requests[1])
		assert.GreaterOrEqual(t, s.requests[2], 20*time.Second)
	})
}

// The client's own limit also admits in order of arrival.
func TestTransportIsFairUnderItsOwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer limiter.Close()
		var mu sync.Mutex
		windows := map[string]time.Duration{} // guarded by mu; the send time by path
		want := map[string]time.Duration{}
		start := time.Now()
		s := serving([]string{"200"})
		client := &httpclient.Transport{
			Limit: limiter.FixedWindow().Limit(3, time.Second),
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				windows[r.URL.Path] = time.Since(start)
				mu.Unlock()
				return s.RoundTrip(r)
			}),
		}
		var wg sync.WaitGroup
		for i := range 30 {
			path := fmt.Sprint("/", i)
			want[path] = time.Duration(i/3) * time.Second // three are sent at the same instant
			wg.Go(func() {
				_, err := get(t.Context(), client, "http://a.example"+path)
				assert.NoError(t, err)
			})
			synctest.Wait()
		}
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = get(short, client, "http://a.example/late")
		var limited *httpclient.LimitError
		require.ErrorAs(t, err, &limited, "it fails without waiting, as the limit lasts longer")
		assert.False(t, limited.Server)
		wg.Wait()
		assert.Equal(t, want, windows)
	})
}

// However near the instants of its own limit are, the client sends as many as it allows.
func TestTransportReachesItsOwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer limiter.Close()
		client := &httpclient.Transport{Limit: limiter.TokenBucket(1).Limit(10_000, time.Second)}
		var all errgroup.Group
		start := time.Now()
		for range 1000 {
			all.Go(func() error { return client.Admit(t.Context(), "a.example") })
		}
		require.NoError(t, all.Wait())
		assert.Equal(t, 99900*time.Microsecond, time.Since(start))
	})
}

// lateStrategy has whoever waits for it be woken late. It decides at the present if lossy is set.
type lateStrategy struct {
	weir.Strategy
	lossy bool
}

func (s lateStrategy) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if due := turns.UseDue(ctx); turns.IsDue(ctx) && !due.Before(time.Now()) {
		time.Sleep(700 * time.Microsecond) // of a bubble
	}
	if s.lossy {
		ctx = context.Background()
	}
	return s.Strategy.Run(ctx, r)
}

// However late requests are woken, they are sent at the rate of the limit, and one that is canceled
// costs nothing.
func TestTransportKeepsTheRateOfItsOwnLimit(t *testing.T) {
	sent := func(lossy bool) (n int) {
		synctest.Test(t, func(t *testing.T) {
			limiter, err := weir.New(weir.Config{})
			require.NoError(t, err)
			defer limiter.Close()
			limit, err := weir.NewLimit(lateStrategy{limiter.TokenBucket(1), lossy}, 1000, time.Second)
			require.NoError(t, err)
			client, ends := &httpclient.Transport{Limit: limit}, time.Now().Add(time.Second)
			var mu sync.Mutex
			var all errgroup.Group
			for range 50 {
				all.Go(func() error {
					for {
						err := client.Admit(t.Context(), "a.example")
						if err != nil || time.Now().After(ends) {
							return err
						}
						mu.Lock()
						n++
						mu.Unlock()
					}
				})
			}
			for i := range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Millisecond)
				defer cancel()
				all.Go(func() error {
					time.Sleep(time.Duration(i) * 7 * time.Millisecond)
					if client.Admit(ctx, "a.example") == nil {
						mu.Lock()
						n++
						mu.Unlock()
					}
					return nil
				})
			}
			require.NoError(t, all.Wait())
		})
		return n
	}
	assert.InDelta(t, 1000, sent(false), 2)
	assert.Less(t, sent(true), 700, "a limit that decides at the present")
}

// A request whose context is done leaves the queue without delaying others.
func TestTransportWaitersCanLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serving([]string{"429", "Retry-After: 10"}, []string{"200"})
		client := &httpclient.Transport{Base: s}
		_, err := get(t.Context(), client, "http://a.example/")
		require.NoError(t, err)
		errs := make(chan error, 3)
		var leave [3]context.CancelFunc
		for i := range leave {
			ctx, cancel := context.WithCancel(t.Context())
			leave[i] = cancel
			go func() { _, err := get(ctx, client, "http://a.example/"); errs <- err }()
			synctest.Wait()
		}
		leave[0]()
		assert.ErrorIs(t, <-errs, context.Canceled)
		leave[1]()
		assert.ErrorIs(t, <-errs, context.Canceled)
		assert.NoError(t, <-errs)
		assert.Equal(t, []time.Duration{0, 10 * time.Second}, s.requests)
		leave[2]()
	})
}

func TestTransportJitterOnlyAdds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waited := make(map[time.Duration]bool)
		for range 20 {
			s := serving([]string{"429", "Retry-After: 10"}, []string{"200"})
			client := &httpclient.Transport{Base: s, Jitter: 5 * time.Second}
			for range 2 {
				_, err := get(t.Context(), client, "http://a.example/")
				require.NoError(t, err)
			}
			require.GreaterOrEqual(t, s.requests[1], 10*time.Second)
			require.Less(t, s.requests[1], 15*time.Second)
			waited[s.requests[1]] = true
		}
		assert.Greater(t, len(waited), 10)
	})
}

func TestTransportClosesIdleConnections(t *testing.T) {
	base := &idleCloser{}
	client := http.Client{Transport: &httpclient.Transport{Base: base}}
	client.CloseIdleConnections()
	assert.True(t, base.closed)
	(&httpclient.Transport{Base: serving()}).CloseIdleConnections() // no idle connections
}

type idleCloser struct {
	http.RoundTripper
	closed bool
}

func (c *idleCloser) CloseIdleConnections() { c.closed = true }

// Clients of other protocols use Admit and Pause.
func TestTransportWithoutHTTP(t *testing.T) {
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	client := &httpclient.Transport{NoWait: true, MaxPause: time.Minute, Now: clock.Now}
	ctx := context.Background()
	require.NoError(t, client.Admit(ctx, "db"))
	client.Pause("db", time.Hour)
	client.Pause("db", time.Second) // shorter, so ignored
	client.Pause("db", -time.Hour)
	var held *httpclient.LimitError
	require.ErrorAs(t, client.Admit(ctx, "db"), &held)
	assert.Equal(t, httpclient.LimitError{Key: "db", Wait: time.Minute, Server: true}, *held)
	assert.NoError(t, client.Admit(ctx, "cache"))
	clock.Advance(time.Minute)
	assert.NoError(t, client.Admit(ctx, "db"))
}
