package traffic

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirgo/weir/internal/core/frequent"
)

// Window is the time that is looked back on.
type Window int

// The windows. A minute is of 50 to 60 seconds, and an hour of 50 to 60 minutes.
const (
	Minute Window = iota
	Hour
	Start // since the start
)

// windows are the names of the Windows.
var windows = []string{Minute: "minute", Hour: "hour", Start: "start"}

// String returns the name of w.
func (w Window) String() string { return windows[w] }

// ParseWindow returns the window of a name. Without a name it is Start.
func ParseWindow(name string) (Window, error) {
	if name == "" {
		return Start, nil
	}
	if i := slices.Index(windows, name); i >= 0 {
		return Window(i), nil
	}
	return 0, fmt.Errorf("window %q: want minute, hour or start", name)
}

// Callers finds the callers with the most requests of each window. It holds at most so many for
// each of its 13 counts, each of which takes some 300 bytes and at most LongestKey of the key: the
// sketch of package offenders. Make one with NewCallers. It is safe for concurrent use, at some 200
// ns a request.
type Callers struct {
	size int
	seed maphash.Seed

	mu      sync.Mutex
	seconds series // guarded by mu, as all below; of ten seconds each
	minutes series // of ten minutes each, of ended seconds
	start   *span  // of ended seconds
	line    line
}

// Request is a request of a caller.
type Request struct {
	Key    string
	Addr   netip.Addr // the zero Addr if it is unknown
	Agent  string
	Path   string
	Denied bool
	At     time.Time
}

// Counts is what is known of the requests of a caller.
type Counts struct {
	Denied   uint64
	Turned   uint64        // the upstream answered with 4xx
	Failed   uint64        // it answered with 5xx, or not
	Upstream time.Duration // the sum of its time, but for what everybody waits in line
	Addr     netip.Addr    // the last one that is known
	Last     time.Time
	Agents   Distinct
	Paths    Distinct
}

func (c *Counts) add(o *Counts) {
	c.Denied, c.Turned, c.Failed = c.Denied+o.Denied, c.Turned+o.Turned, c.Failed+o.Failed
	c.Upstream += o.Upstream
	if o.Last.After(c.Last) {
		c.Last = o.Last
	}
	if o.Addr.IsValid() {
		c.Addr = o.Addr
	}
	c.Agents.merge(o.Agents)
	c.Paths.merge(o.Paths)
}

// Caller sent between N-Error and N requests. Its Counts are of those that were surely its own.
type Caller struct {
	Key      string
	N, Error uint64
	Counts
}

// span holds the callers of some time.
type span struct {
	keys     *frequent.Keys[Counts]
	denied   uint64
	upstream time.Duration
}

// fold adds the callers of o to s.
func (s *span) fold(o *span) {
	if o == nil {
		return
	}
	for _, c := range o.keys.All() {
		to := s.keys.Add(c.Key, c.N)
		to.Error += c.Error
		to.Value.add(&c.Value)
	}
	s.denied, s.upstream = s.denied+o.denied, s.upstream+o.upstream
}

// series is a window of six spans of the same length, the newest first. Those before the start are
// nil.
type series struct {
	every time.Duration
	from  time.Time // of the newest span
	spans [6]*span
}

// NewCallers returns Callers that hold size of them for each of its counts.
func NewCallers(size int) *Callers {
	c := &Callers{size: size, seed: maphash.MakeSeed(),
		seconds: series{every: 10 * time.Second}, minutes: series{every: 10 * time.Minute}}
	c.start = c.span()
	return c
}

func (c *Callers) span() *span { return &span{keys: frequent.New[Counts](c.size)} }

// turn begins the span that now is in, and returns the newest one of those that ended. mu is held.
func (c *Callers) turn(s *series, now time.Time) (ended *span) {
	if s.spans[0] != nil && now.Sub(s.from) < s.every {
		return nil
	}
	ended = s.spans[0]
	missed := len(s.spans) // at the start, and after a long time without a request
	if passed := now.Sub(s.from) / s.every; ended != nil && passed < time.Duration(missed) {
		missed = int(passed)
		s.from = s.from.Add(passed * s.every)
	} else {
		s.from = now
	}
	for range missed {
		copy(s.spans[1:], s.spans[:])
		s.spans[0] = nil
	}
	s.spans[0] = c.span()
	return ended
}

// turnAll begins the spans that now is in. What ended counts for the hour and since the start. mu
// is held.
func (c *Callers) turnAll(now time.Time) {
	ended := c.turn(&c.seconds, now)
	c.turn(&c.minutes, now)
	if ended != nil {
		c.minutes.spans[0].fold(ended)
		c.start.fold(ended)
	}
}

// Add counts a request when it is decided. It returns how many the caller sent within some ten
// seconds.
func (c *Callers) Add(r Request) (n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turnAll(r.At)
	s := c.seconds.spans[0]
	counter := s.keys.Add(cut(r.Key), 1)
	of := &counter.Value
	of.Last = r.At
	if r.Addr.IsValid() {
		of.Addr = r.Addr
	}
	if r.Denied {
		of.Denied++
		s.denied++
	}
	of.Agents.add(c.seed, r.Agent)
	of.Paths.add(c.seed, r.Path)
	return counter.N - counter.Error
}

// Served notes how long the upstream took for a request of a caller, and the status that follows;
// 0: there is none to judge by.
func (c *Callers) Served(key string, took time.Duration, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.seconds.spans[0]
	if s == nil {
		return
	}
	if status != 0 && status < http.StatusInternalServerError {
		c.line.note(took)
	}
	took = c.line.own(took)
	s.upstream += took
	key = cut(key)
	of := s.keys.Find(key)
	for _, before := range c.seconds.spans[1:] { // those that wait long are not counted again
		if of == nil && before != nil {
			of = before.keys.Find(key)
		}
	}
	if of == nil {
		return
	}
	of.Value.Upstream += took
	switch {
	case status >= http.StatusInternalServerError:
		of.Value.Failed++
	case status >= http.StatusBadRequest:
		of.Value.Turned++
	}
}

// View returns what callers sent in a window that ends now.
func (c *Callers) View(w Window, now time.Time) View {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turnAll(now)
	var v View
	switch w {
	case Minute:
		v = merged(c.seconds.spans[:]...)
	case Hour:
		v = merged(append(c.minutes.spans[:], c.seconds.spans[0])...)
	default:
		v = merged(c.start, c.seconds.spans[0])
	}
	slices.SortFunc(v.Callers, func(a, b Caller) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Error, b.Error), strings.Compare(a.Key, b.Key))
	})
	return v
}

// merged returns what the callers of all spans sent.
func merged(spans ...*span) (v View) {
	at := make(map[string]int)
	for _, s := range spans {
		if s == nil {
			continue
		}
		for _, c := range s.keys.All() {
			i, ok := at[c.Key]
			if !ok {
				i = len(v.Callers)
				at[c.Key], v.Callers = i, append(v.Callers, Caller{Key: c.Key})
			}
			of := &v.Callers[i]
			of.N, of.Error = of.N+c.N, of.Error+c.Error
			of.add(&c.Value)
		}
		v.Requests += s.keys.Total()
		v.Denied, v.Upstream = v.Denied+s.denied, v.Upstream+s.upstream
	}
	return v
}
