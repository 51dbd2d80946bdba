package verbtest

import (
	"maps"
	"slices"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
)

// tiers are those of the strategy "tiers".
var tiers = []weir.Tier{{Limit: 6, Duration: 1e9}, {Limit: 12, Duration: 3e9}}

// hour is the length of the windows of the strategy "calendar".
const hour = 3600e9

// model is what several limits admit, all or nothing, one request after another: each caller's hits
// are kept for ever, and counted anew for each decision.
type model struct {
	callers map[caller]counted
	begins  bool // a request that is denied may begin the period of a counter or a list
}

type caller struct {
	kind, key string
	duration  int64 // ns
}

// counted is immutable.
type counted struct {
	hits  []hit
	begin int64 // of the period of a counter or a list
	full  int64 // when a token bucket is full, if a token flows in every each
	each  int64
}

type hit struct{ at, cost int64 }

// used returns what counts of c at now, in ns, where limit are admitted in d.
func (c counted) used(kind string, limit, d, now int64) (used int64) {
	var before int64
	for _, h := range c.hits {
		switch {
		case kind == "fixed window" || kind == "calendar" || kind == "sliding window":
			switch now/d - h.at/d {
			case 0:
				used += h.cost
			case 1:
				before += h.cost
			}
		case (kind == "sliding log" || kind == "in flight") && h.at > now-d,
			kind == "tiers" && h.at/1e9 > now/1e9-d/1e9,
			(kind == "counter" || kind == "list") && h.at >= c.begin && now < c.begin+d:
			used += h.cost
		}
	}
	switch {
	case kind == "sliding window":
		const ms = 1e6
		return used + (before*(d/ms-now%d/ms)+d/ms-1)/(d/ms)
	case kind == "token bucket" && limit > 0:
		return (max(0, c.full-now) + c.each - 1) / c.each
	}
	return used
}

// spaced returns a token bucket in which as many tokens are missing at now, and limit flow in in d.
func (c counted) spaced(limit, d, now int64) counted {
	each := (d + limit - 1) / limit
	if c.full > now && c.each != each {
		c.full = respaced(c.full, c.each, each, now)
	}
	c.each = each
	return c
}

// admit returns c with a hit.
func (c counted) admit(kind string, limit, d, now, cost int64) counted {
	if (kind == "counter" || kind == "list") && (c.begin == 0 || now >= c.begin+d) {
		c.begin = now
	}
	if kind == "token bucket" {
		c.full = max(c.full, now) + cost*c.each
	}
	c.hits = append(slices.Clip(c.hits), hit{now, cost})
	return c
}

// decide returns whether all asks are admitted at now, and for each of them whether it would be,
// and its count.
func (m *model) decide(now int64, asks []weir.Ask) (allowed bool, each []bool, totals []int64) {
	next, kept := maps.Clone(m.callers), map[caller]counted{} // kept: spacings, also after a denial
	allowed = true
	for _, a := range asks {
		kind, r := ops.Name(a.Strategy), a.Request
		of, limit, cost := caller{kind, r.Key, int64(r.Duration)}, int64(r.Limit), max(1, int64(r.Cost))
		limits := []weir.Tier{{Limit: r.Limit, Duration: r.Duration}}
		switch kind {
		case "tiers":
			of.duration, limits = 0, tiers
		case "calendar":
			of.duration, limits[0].Duration = 0, hour
		}
		tokens, was := kind == "token bucket" && limit > 0, next[of]
		if tokens {
			next[of] = was.spaced(limit, int64(r.Duration), now)
		}
		fits := true
		for _, t := range limits {
			fits = fits && next[of].used(kind, int64(t.Limit), int64(t.Duration), now)+cost <= int64(t.Limit)
		}
		each, totals = append(each, fits),
			append(totals, next[of].used(kind, limit, int64(limits[0].Duration), now))
		switch respaced := next[of]; {
		case tokens && cost > limit:
			next[of] = was
		case tokens && (m.begins || !fits):
			kept[of] = respaced
		}
		allowed = allowed && fits
		if fits {
			next[of] = next[of].admit(kind, limit, int64(r.Duration), now, cost)
		}
	}
	if allowed {
		m.callers = next
	} else {
		maps.Copy(m.callers, kept)
	}
	for of, c := range next {
		if m.begins && c.begin > m.callers[of].begin {
			was := m.callers[of]
			was.begin = c.begin
			m.callers[of] = was
		}
	}
	return allowed, each, totals
}
