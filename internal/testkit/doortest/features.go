package doortest

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/httplimit"
)

// T is a test, or what counts failures in a test of these.
type T = assert.TestingT

// send sends a request with these header fields.
type send = func(header ...string) Answer

// feature stands on the page.
type feature struct {
	name  string
	set   func(s *Setup)
	check func(t T, s *Setup, do send, goOn func())
}

// ask sends n requests with these header fields, and returns their statuses.
func ask(do send, n int, header ...string) (statuses []int) {
	for range n {
		statuses = append(statuses, do(header...).Status)
	}
	return statuses
}

// simple is the check of a feature that only needs requests.
func simple(f func(t T, do send)) func(T, *Setup, send, func()) {
	return func(t T, _ *Setup, do send, _ func()) { f(t, do) }
}

var features = []feature{
	{"a limit for each caller", nil, simple(func(t T, do send) {
		assert.Equal(t, []int{200, 200, 429, 429}, ask(do, 4, "Key", "ann"))
		assert.Equal(t, []int{200}, ask(do, 1, "Key", "bob"))
	})},
	{"the fields of the draft", nil, simple(func(t T, do send) {
		for _, left := range []string{"1", "0", "0"} {
			a := do("Key", "ann")
			assert.Contains(t, a.Header.Get("RateLimit"), ";r="+left)
			assert.Contains(t, a.Header.Get("RateLimit-Policy"), ";q=2;w=86400")
			assert.Equal(t, a.Status == 429, a.Header.Get("Retry-After") != "")
		}
	})},
	{"the legacy fields", func(s *Setup) { s.Config.Headers = httplimit.HeadersLegacy },
		simple(func(t T, do send) {
			a := do("Key", "ann")
			assert.Equal(t, "2", a.Header.Get("X-RateLimit-Limit"))
			assert.Equal(t, "1", a.Header.Get("X-RateLimit-Remaining"))
			assert.Empty(t, a.Header.Get("RateLimit"))
		})},
	{"no fields", func(s *Setup) { s.Config.Headers = httplimit.HeadersNone },
		simple(func(t T, do send) {
			for range 3 {
				assert.Empty(t, do("Key", "ann").Header.Get("RateLimit"))
			}
		})},
	{"another status of a denial", func(s *Setup) { s.Config.DeniedStatus = 413 },
		simple(func(t T, do send) {
			assert.Equal(t, []int{200, 200, 413}, ask(do, 3, "Key", "ann"))
		})},
	{"jitter", func(s *Setup) { s.Config.Jitter = 1000 * time.Hour },
		simple(func(t T, do send) {
			ask(do, 2, "Key", "ann")
			waits := map[string]bool{}
			for range 4 {
				waits[do("Key", "ann").Header.Get("Retry-After")] = true
			}
			assert.Greater(t, len(waits), 1)
		})},
	{"a deny list", func(s *Setup) { s.Deny = []httplimit.DenyEntry{{Key: "ann"}} },
		simple(func(t T, do send) {
			assert.Equal(t, []int{403}, ask(do, 1, "Key", "ann"))
			assert.Equal(t, []int{200}, ask(do, 1, "Key", "bob"))
		})},
	{"a penalty box", func(s *Setup) {
		s.Config.Penalty = httplimit.Penalty{Denials: 2, Within: 24 * time.Hour, For: time.Minute}
	}, simple(func(t T, do send) {
		assert.Equal(t, []int{200, 200, 429, 429}, ask(do, 4, "Key", "ann"))
		listed := do("Key", "ann")
		assert.Equal(t, 429, listed.Status)
		assert.Contains(t, []string{"59", "60"}, listed.Header.Get("Retry-After"))
		assert.Empty(t, listed.Header.Get("RateLimit"), "no limit was asked")
	})},
	{"counting by the status", func(s *Setup) {
		s.Config.CountIf = func(status int) bool { return status == http.StatusUnauthorized }
	}, simple(func(t T, do send) {
		assert.Equal(t, []int{200, 200, 200}, ask(do, 3, "Key", "ann"))
		assert.Equal(t, []int{401, 401, 429}, ask(do, 3, "Key", "ann", "Want-Status", "401"))
	})},
	{"a cost", func(s *Setup) { s.Cost = 2 }, simple(func(t T, do send) {
		assert.Equal(t, []int{200, 429}, ask(do, 2, "Key", "ann"))
	})},
	{"exemption", func(s *Setup) { s.Exempt = true }, simple(func(t T, do send) {
		assert.Equal(t, []int{200, 200, 200}, ask(do, 3, "Key", "ann"))
	})},
	{"preflights that do not count", nil, simple(func(t T, do send) {
		assert.Equal(t, []int{200, 200, 200}, ask(do, 3, "Key", "ann", "Method", "OPTIONS",
			"Origin", "https://a.example", "Access-Control-Request-Method", "GET"))
		assert.Equal(t, []int{200, 200, 429}, ask(do, 3, "Key", "ann"))
	})},
	{"CORS", func(s *Setup) { s.Config.CORS.Origins = []string{"https://a.example"} },
		simple(func(t T, do send) {
			ask(do, 2, "Key", "ann")
			denied := do("Key", "ann", "Origin", "https://a.example")
			assert.Equal(t, "https://a.example", denied.Header.Get("Access-Control-Allow-Origin"))
		})},
	{"shadow mode", func(s *Setup) { s.Config.Shadow = true }, simple(func(t T, do send) {
		for range 3 {
			a := do("Key", "ann")
			assert.Equal(t, 200, a.Status)
			assert.Empty(t, a.Header.Get("RateLimit"))
		}
	})},
	{"an answer of your own", func(s *Setup) { s.Own = true }, simple(func(t T, do send) {
		ask(do, 2, "Key", "ann")
		denied := do("Key", "ann")
		assert.Equal(t, 429, denied.Status)
		assert.Equal(t, "own", denied.Header.Get("Own"))
		assert.NotEmpty(t, denied.Header.Get("Retry-After"))
	})},
	{"a bound on keys", func(s *Setup) { s.Config.MaxKeysPerClient = 1 },
		simple(func(t T, do send) {
			assert.Equal(t, []int{200, 200}, ask(do, 2, "Key", "a"))
			assert.Equal(t, []int{200}, ask(do, 1, "Key", "b"))
			assert.Equal(t, []int{200}, ask(do, 1, "Key", "c"))
			assert.Equal(t, []int{429}, ask(do, 1, "Key", "d"), "b, c and d share a budget")
		})},
	{"requests in flight", func(s *Setup) { s.Config.MaxInFlight = 1 },
		func(t T, s *Setup, do send, goOn func()) { inFlight(t, s, do, goOn, "bob", 503) }},
	{"those of one caller", func(s *Setup) { s.Places = 1 },
		func(t T, s *Setup, do send, goOn func()) {
			inFlight(t, s, do, goOn, "ann", 429)
			assert.Equal(t, []int{200}, ask(do, 1, "Key", "bob"))
		}},
	{"overload", func(s *Setup) { s.Full = true }, full},
}

// full checks that requests are admitted until one of another caller does not fit, and that those
// before it have answers.
func full(t T, s *Setup, do send, goOn func()) {
	most := 200 + 32*runtime.GOMAXPROCS(0)
	ended := make(chan Answer, most)
	inside, refused := 0, Answer{}
	for refused.Status == 0 && inside < most {
		name := "caller " + strconv.Itoa(inside)
		go func() { ended <- do("Key", name, "Wait", "1") }()
		select {
		case <-s.inside:
			inside++
		case refused = <-ended:
		}
	}
	assert.Equal(t, 503, refused.Status, "after %d requests", inside)
	assert.NotEmpty(t, refused.Header.Get("Retry-After"))
	assert.Empty(t, refused.Header.Get("RateLimit"), "no limit was asked")
	goOn()
	for range inside {
		assert.Equal(t, 200, (<-ended).Status)
	}
	assert.Eventually(t, func() bool { return do("Key", "another").Status == 200 }, 10*time.Second,
		time.Millisecond)
}

// inFlight checks that a request of ann is in flight until it has ended, and another one is refused
// with status meanwhile.
func inFlight(t T, s *Setup, do send, goOn func(), other string, status int) {
	ended := make(chan int, 1)
	go func() { ended <- do("Key", "ann", "Wait", "1").Status }()
	<-s.inside
	assert.Equal(t, []int{status}, ask(do, 1, "Key", other))
	goOn()
	assert.Equal(t, 200, <-ended)
	assert.Eventually(t, func() bool { return do("Key", other).Status == 200 }, 10*time.Second,
		time.Millisecond)
}
