package verify

import (
	"slices"
	"time"

	"github.com/weirgo/weir"
)

// The reference models are the algorithms in their simplest form, for one caller, without
// concurrency, sweeping or optimizations. Times are in milliseconds. Models are immutable: ask
// returns the next one.

// ask is one request.
type ask struct {
	id           string
	scale, limit int64 // scale in milliseconds
	cost         int64
}

func (a ask) request() *weir.Request {
	return &weir.Request{
		Key: a.id, Limit: uint64(a.limit), Cost: uint64(a.cost),
		Duration: time.Duration(a.scale) * time.Millisecond,
	}
}

// answer is a Result as numbers.
type answer struct {
	allowed bool
	total   int64
	expires int64 // nanoseconds since the epoch; or never, or sought if soonest must find it
}

const (
	never  = -1 << 63
	sought = never + 1
)

// full represents ErrFull.
var full = answer{expires: never + 2}

func answerOf(r *weir.Result) answer {
	a := answer{r.Allowed(), int64(r.TotalRequests), never}
	if !r.ExpiresAt.IsZero() {
		a.expires = r.ExpiresAt.UnixNano()
	}
	return a
}

type model interface {
	// ask decides a at now, and returns the next model. It fails for times before that of an earlier
	// request, as far as the model depends on them.
	ask(now int64, a ask) (next model, res answer, ok bool)
}

// ceil returns a*b/c rounded up. The product fits.
func ceil(a, b, c int64) int64 { return -floor(-a*b, c) }

// gives reports whether m decides a at now with the given answer, and returns the next model.
func gives(m model, now int64, a ask, want answer) (next model, ok bool) {
	next, res, ok := m.ask(now, a)
	if res.expires == sought && res.total == want.total { // soonest is slow
		res.expires = soonest(m, now, a)
	}
	return next, ok && res == want
}

// soonest defines ExpiresAt of a denial: the first millisecond at which the same request is
// admitted.
func soonest(m model, now int64, a ask) int64 {
	for {
		now++
		if _, res, _ := m.ask(now, a); res.allowed {
			return now * msec
		}
	}
}

// fixed is the fixed window counter.
type fixed struct {
	begun         bool
	window, count int64
}

func (m fixed) ask(now int64, a ask) (model, answer, bool) {
	n := floor(now, a.scale)
	if m.begun && n < m.window {
		return m, answer{}, false
	}
	if !m.begun || n > m.window {
		m = fixed{true, n, 0}
	}
	end := (n + 1) * a.scale * msec
	switch {
	case a.cost > a.limit:
		return m, answer{false, m.count, never}, true
	case m.count+a.cost > a.limit:
		return m, answer{false, m.count, end}, true
	}
	m.count += a.cost
	return m, answer{true, m.count, end}, true
}

// sliding is the sliding window counter.
type sliding struct {
	begun             bool
	window, prev, cur int64
}

// A denial changes nothing: of two concurrent calls the one that is denied may have the later
// instant.
func (m sliding) ask(now int64, a ask) (model, answer, bool) {
	n, before := floor(now, a.scale), m
	switch {
	case !m.begun:
		m = sliding{begun: true, window: n}
	case n < m.window:
		return m, answer{}, false
	case n == m.window+1:
		m = sliding{true, n, m.cur, 0}
	case n > m.window:
		m = sliding{true, n, 0, 0}
	}
	end := (n + 1) * a.scale
	used := ceil(m.prev, end-now, a.scale) + m.cur
	switch {
	case a.cost > a.limit:
		return before, answer{false, used, never}, true
	case used+a.cost > a.limit:
		return before, answer{false, used, sought}, true
	}
	m.cur += a.cost
	return m, answer{true, used + a.cost, (end + a.scale) * msec}, true
}

// rolling is the sliding log.
type rolling struct{ hits []hit }

type hit struct{ at, cost int64 }

func (m rolling) ask(now int64, a ask) (model, answer, bool) {
	var used int64
	for _, h := range m.hits {
		if h.at > now {
			return m, answer{}, false
		}
		if now < h.at+a.scale {
			used += h.cost
		}
	}
	switch {
	case a.cost > a.limit:
		return m, answer{false, used, never}, true
	case used+a.cost > a.limit:
		return m, answer{false, used, sought}, true
	}
	m.hits = append(slices.Clone(m.hits), hit{now, a.cost})
	return m, answer{true, used + a.cost, (now + a.scale) * msec}, true
}

// anchored is the counter whose period begins with the first hit, and the list.
type anchored struct {
	begun        bool
	start, count int64
}

func (m anchored) ask(now int64, a ask) (model, answer, bool) {
	if m.begun && now < m.start {
		return m, answer{}, false
	}
	next := m
	if !m.begun || now >= m.start+a.scale {
		next = anchored{true, now, 0}
	}
	end := (next.start + a.scale) * msec
	switch {
	case a.cost > a.limit:
		return m, answer{false, next.count, never}, true
	case next.count+a.cost > a.limit:
		return m, answer{false, next.count, end}, true
	}
	next.count += a.cost
	return next, answer{true, next.count, end}, true
}

// bucket is the token bucket: it refills evenly, and full is when it is full.
type bucket struct {
	begun bool
	full  int64 // nanoseconds
	burst int64 // 0 means the limit
}

func (m bucket) ask(now int64, a ask) (model, answer, bool) {
	ns := now * msec
	full := ns
	if m.begun {
		full = max(m.full, ns)
	}
	burst := m.burst
	if burst == 0 {
		burst = a.limit
	}
	token := ceil(a.scale, msec, a.limit) // nanoseconds
	missing := ceil(full-ns, 1, token)
	after := full + a.cost*token
	switch {
	case a.cost > burst:
		return m, answer{false, missing, never}, true
	case after-ns > burst*token:
		return m, answer{false, missing, after - burst*token}, true
	}
	return bucket{true, after, m.burst}, answer{true, ceil(after-ns, 1, token), after}, true
}

// leaky is the leaky bucket without a queue.
type leaky struct {
	begun        bool
	latest, next int64 // nanoseconds
}

func (m leaky) ask(now int64, a ask) (model, answer, bool) {
	ns := now * msec
	if !m.begun {
		m = leaky{true, ns, ns}
	}
	if ns < m.latest {
		return m, answer{}, false
	}
	each := ceil(a.scale, msec, a.limit)
	switch level := ceil(max(0, m.next-ns), 1, each); {
	case a.cost > a.limit:
		return m, answer{false, level, never}, true
	case m.next > ns:
		return m, answer{false, level, m.next}, true
	}
	m = leaky{true, ns, ns + a.cost*each}
	return m, answer{true, a.cost, m.next}, true
}

// tiers is several limits on one log of slices.
type tiers struct {
	of   []weir.Tier
	hits []hit // at is the slice
}

func (m tiers) slice() int64 {
	for g := m.of[0].Duration.Milliseconds(); ; g-- {
		if !slices.ContainsFunc(m.of, func(t weir.Tier) bool {
			return t.Duration.Milliseconds()%g != 0
		}) {
			return g
		}
	}
}

// used returns the count of tier t at now.
func (m tiers) used(t weir.Tier, now int64) (used int64) {
	for _, h := range m.hits {
		if now < h.at+t.Duration.Milliseconds()/m.slice() {
			used += h.cost
		}
	}
	return used
}

func (m tiers) ask(ms int64, a ask) (model, answer, bool) {
	g := m.slice()
	now := floor(ms, g)
	if len(m.hits) > 0 && now < m.hits[len(m.hits)-1].at {
		return m, answer{}, false
	}
	var least, latest int64
	var admitted answer
	var denied *answer
	for _, t := range m.of {
		if a.cost > int64(t.Limit) {
			return m, answer{false, m.used(t, now), never}, true
		}
	}
	for i, t := range m.of {
		used, limit := m.used(t, now), int64(t.Limit)
		left := limit - used - a.cost
		if i == 0 || left < least {
			least = left
			admitted = answer{true, used + a.cost, (now + t.Duration.Milliseconds()/g) * g * msec}
		}
		if left < 0 {
			room := now
			for m.used(t, room)+a.cost > limit {
				room++
			}
			if denied == nil || room > latest {
				latest, denied = room, &answer{false, used, room * g * msec}
			}
		}
	}
	if denied != nil {
		return m, *denied, true
	}
	m.hits = append(slices.Clone(m.hits), hit{now, a.cost})
	return m, admitted, true
}
