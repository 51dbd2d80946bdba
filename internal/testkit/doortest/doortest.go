// Package doortest holds every door into a guard of package httplimit, such as a middleware or an
// adapter, to the same features. docs/http.md lists them, and says which door lacks which: each
// door checks what stands there of it.
package doortest

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/overload"
)

// Door is a way for requests into a guard.
type Door struct {
	Name string // as on the page

	// Open sets the door up with a limit of 2 requests in a day for each value of the header Key, and
	// returns a function that sends a request with these header fields, names and values in turn. What
	// is behind the door answers with Serve.
	Open func(t *testing.T, s *Setup) func(header ...string) Answer

	// Lacks says of the features that the door has not, or not in this form, why that is so.
	Lacks map[string]string
}

// Answer is what a client sees.
type Answer struct {
	Status int
	Header http.Header
}

// Setup is what a feature needs.
type Setup struct {
	Config httplimit.Config      // without limits, Extractor, DenyList and Concurrency
	Deny   []httplimit.DenyEntry // on the deny list
	Places uint64                // of one caller in flight at one time; 0: no bound
	Full   bool                  // only requests that fit are admitted: see Guard
	Cost   uint64                // of each request; 0: 1
	Exempt bool                  // all requests are, by Skip or as the door has it
	Own    bool                  // the body of a denial is Own's, by Respond or as the door has it
	wait   chan struct{}         // closed: handlers go on
	inside chan struct{}         // has a value for each handler that waits
}

// Limit returns the limit on l.
func (s *Setup) Limit(l *weir.Limiter) *weir.Limit {
	return l.SlidingWindow().Limit(2, 24*time.Hour).Named("door")
}

// Guard returns the Config for the doors that take one. With Full three normal requests fit; a door
// that learns how many admits up to some hundred.
func (s *Setup) Guard(l *weir.Limiter) httplimit.Config {
	cfg := s.Config
	cfg.Extractor = httplimit.Headers("Key")
	if len(s.Deny) > 0 || cfg.Penalty.Denials > 0 {
		cfg.DenyList = httplimit.NewDenyList(httplimit.DenyListConfig{})
		for _, e := range s.Deny {
			_ = cfg.DenyList.Add(e) // or the check of the feature fails
		}
		cfg.Penalty.Strategy = l.FixedWindow()
	}
	if cfg.Penalty.Denials == 0 {
		cfg.Penalty = httplimit.Penalty{}
	}
	if s.Places > 0 {
		cfg.Concurrency = httplimit.Policy{Strategy: l.InFlight().Limit(s.Places)}
	}
	if s.Full {
		cfg.Overload, _ = overload.New(l, overload.Config{Most: 4}) // it is valid
	}
	if s.Cost > 0 {
		cfg.CostFunc = func(*http.Request) uint64 { return s.Cost }
	}
	if s.Own {
		cfg.Respond = Own
	}
	if s.Exempt {
		cfg.Skip = func(*http.Request) bool { return true }
	}
	return cfg
}

// Limiter returns a Limiter that is closed at the end of the test.
func Limiter(t testing.TB) *weir.Limiter {
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return l
}

// Serve is what is behind a door: it returns the status to answer with, that of the field
// Want-Status or 200, and waits if the request has the field Wait.
func (s *Setup) Serve(header http.Header) int {
	if header.Get("Wait") != "" {
		s.inside <- struct{}{}
		<-s.wait
	}
	status, err := strconv.Atoi(header.Get("Want-Status"))
	if err != nil {
		return http.StatusOK
	}
	return status
}

// Handler is Serve for net/http.
func (s *Setup) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(s.Serve(r.Header))
	})
}

// Through serves h, which has the door in it, and returns a function that sends requests to it.
func Through(t *testing.T, h http.Handler) func(header ...string) Answer {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return Send(t, srv.URL)
}

// Send returns a function that sends requests to url.
func Send(t *testing.T, url string) func(header ...string) Answer {
	return func(header ...string) Answer {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		assert.NoError(t, err)
		for i := 0; i < len(header); i += 2 {
			if header[i] == "Method" {
				r.Method = header[i+1]
				continue
			}
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(r)
		if !assert.NoError(t, err) {
			return Answer{Header: http.Header{}}
		}
		defer func() { _ = resp.Body.Close() }()
		return Answer{resp.StatusCode, resp.Header}
	}
}

// page has the features, in the repository.
const page = "docs/http.md"

// Run holds a door to every feature, and the page to what it has. root is the path of the
// repository.
func Run(t *testing.T, root string, doors ...Door) {
	text, err := os.ReadFile(root + "/" + page)
	require.NoError(t, err)
	listed, lacks := read(string(text))
	var names []string
	for _, f := range features {
		names = append(names, f.name)
	}
	assert.ElementsMatch(t, names, listed, "%s lists other features", page)
	for _, door := range doors {
		assert.Contains(t, string(text), "`"+door.Name+"`", "%s names the door", page)
		want := map[string]string{}
		maps.Copy(want, door.Lacks)
		got := map[string]string{}
		maps.Copy(got, lacks[door.Name])
		assert.Equal(t, want, got, "%s: what %s lacks, and why", page, door.Name)
		for _, f := range features {
			if _, lacking := door.Lacks[f.name]; !lacking {
				t.Run(door.Name+"/"+f.name, func(t *testing.T) { check(t, &door, f) })
			}
		}
	}
}

func check(t *testing.T, door *Door, f feature) {
	s := &Setup{wait: make(chan struct{}), inside: make(chan struct{}, 8)}
	var once sync.Once
	goOn := func() { once.Do(func() { close(s.wait) }) }
	t.Cleanup(goOn)
	if f.set != nil {
		f.set(s)
	}
	f.check(t, s, door.Open(t, s), goOn)
}

// read returns the features that stand on a page, between "has" and a full stop, and of each door
// those that it lacks, with the reason.
func read(text string) (listed []string, lacks map[string]map[string]string) {
	_, section, _ := strings.Cut(text, "\n## What each door has\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, list, _ := strings.Cut(section, "Every door has ")
	list, _, _ = strings.Cut(list, ".\n")
	listed = strings.Split(strings.ReplaceAll(list, "\n", " "), ", ")
	lacks = map[string]map[string]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 3 {
			continue
		}
		feature, why := strings.TrimPrefix(cells[0], "| "), strings.TrimSuffix(cells[2], " |")
		for door := range strings.SplitSeq(cells[1], ", ") {
			door = strings.Trim(door, "`")
			if lacks[door] == nil {
				lacks[door] = map[string]string{}
			}
			lacks[door][feature] = why
		}
	}
	return listed, lacks
}

// Rules is the limit of a Setup as a file of rules.
const Rules = `
domain: web
descriptors:
  - key: caller
    rate_limit: {unit: day, requests_per_unit: 2, name: door}
    metadata: {weir: {algorithm: sliding_window}}
rate_limits:
  - actions: [{request_headers: {header_name: Key, descriptor_key: caller}}]
`

// Own answers as a Setup with Own wants it.
func Own(w http.ResponseWriter, _ *http.Request, d httplimit.Decision) {
	w.Header().Set("Own", "own")
	w.WriteHeader(d.Status)
}

// NotInRPC is what RPCs have no use for.
var NotInRPC = map[string]string{
	"another status of a denial":   "a denial of an RPC is ResourceExhausted",
	"preflights that do not count": "RPCs have no preflights that a guard sees",
	"CORS":                         "the answers of RPCs are the framework's",
}

// NotInCaddy is what the module for Caddy leaves to Caddy, or has not.
var NotInCaddy = map[string]string{
	"a penalty box": "Caddy has no penalty box",
	"CORS":          "in Caddy the directive header answers other origins",
}
