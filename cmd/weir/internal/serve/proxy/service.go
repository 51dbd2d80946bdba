package proxy

import (
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/cmd/weir/internal/serve/traffic"
	"github.com/weirgo/weir/httplimit"
)

// service is how the service does: the first thing that the page shows. Latencies are in ms, and 0
// while they are unknown.
type service struct {
	P50       float64 `json:"p50_ms"` // of the upstream's answers, in the last minute
	P99       float64 `json:"p99_ms"`
	P50Now    float64 `json:"p50_now_ms"` // in the last ten seconds
	P99Now    float64 `json:"p99_now_ms"`
	P50Before float64 `json:"p50_before_ms"` // in the minute before
	P99Before float64 `json:"p99_before_ms"`

	Errors  float64 `json:"errors_per_second"`  // 5xx or no answer, over the last ten seconds
	GaveUp  float64 `json:"gave_up_per_second"` // clients that left before the answer
	Most    int64   `json:"most_in_flight"`     // 0: without a bound
	Learnt  bool    `json:"learnt"`             // Most is the guard's, and changes
	Ago     int64   `json:"in_flight_ago"`      // a minute ago
	Rate    uint64  `json:"per_second"`         // requests in the last second
	Denied  float64 `json:"denied"`             // the share of the last minute's requests
	Seconds seconds `json:"seconds"`

	State states `json:"state"`
}

// states judges the facts of a service.
type states struct {
	Latency traffic.State `json:"latency"`
	Errors  traffic.State `json:"errors"`
	Flight  traffic.State `json:"in_flight"`
	Denied  traffic.State `json:"denied"`
}

// seconds are the facts of each second, the oldest first.
type seconds struct {
	P50      []float64 `json:"p50_ms"`
	P99      []float64 `json:"p99_ms"`
	InFlight []int64   `json:"in_flight"`
	GaveUp   []uint64  `json:"gave_up"`
}

// mostInFlight returns how many requests may be in flight: as many as the guard of an upstream has
// learnt, or the given bound, whichever is less. 0: without one.
func mostInFlight(p *Proxy) (most int64, learnt bool) {
	most = int64(p.cfg.MaxInFlight)
	if p.full == nil {
		return most, false
	}
	if n := int64(p.full.Stats().Limit); most == 0 || n < most {
		return n, true
	}
	return most, false
}

// serviceOf returns how the service does.
func serviceOf(p *Proxy) *service {
	f := traffic.Facts{Past: p.served.Past(), InFlight: p.open.Load()}
	s := new(service)
	f.Most, s.Learnt = mostInFlight(p)
	past := p.meter.Past()
	for i, x := range past {
		all := x.Admitted + x.Denied + x.Failed
		if i >= len(past)-10 {
			f.Failed, f.Requests = f.Failed+x.Errors, f.Requests+x.Admitted
		}
		if i >= len(past)-60 {
			f.Denied, f.Decided = f.Denied+x.Denied, f.Decided+all
		}
		s.Rate = all
	}
	over := float64(max(1, min(10, len(past))))
	s.Errors, s.GaveUp = float64(f.Failed)/over, float64(f.Left)/over
	s.Denied = float64(f.Denied) / float64(max(1, f.Decided))
	s.Most, s.Ago = f.Most, f.InFlightAgo()
	s.P50, s.P99 = ms(f.Minute.P50), ms(f.Minute.P99)
	s.P50Now, s.P99Now = ms(f.Now.P50), ms(f.Now.P99)
	s.P50Before, s.P99Before = ms(f.Before.P50), ms(f.Before.P99)
	s.Seconds.InFlight, s.Seconds.GaveUp = f.Past.InFlight, f.Past.Gone
	for i := range f.Past.P50 {
		s.Seconds.P50 = append(s.Seconds.P50, ms(f.Past.P50[i]))
		s.Seconds.P99 = append(s.Seconds.P99, ms(f.Past.P99[i]))
	}
	s.State = states{f.Latency(), f.Errors(), f.Flight(), f.Denials()}
	return s
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// sender is one of the callers with the largest stakes in a window.
type sender struct {
	live.Caller

	Denied   float64 `json:"denied"`   // the share of its requests, as are the next two
	Turned   float64 `json:"turned"`   // the upstream answered with 4xx
	Failed   float64 `json:"failed"`   // with 5xx, or not
	Upstream float64 `json:"upstream"` // the share of all time of the upstream
	Agents   int     `json:"agents"`   // different ones, about
	Paths    int     `json:"paths"`
}

// sendersShown is how many of the busiest callers the page shows.
const sendersShown = 20

// busiestOf returns the callers with the largest stakes of a view.
func busiestOf(p *Proxy, v *traffic.View) []sender {
	callers := v.Foremost(sendersShown)
	all := make([]sender, len(callers))
	for i := range callers {
		all[i] = senderOf(p, &callers[i], v)
	}
	return all
}

func senderOf(p *Proxy, c *traffic.Caller, v *traffic.View) sender {
	own := float64(max(1, c.N-c.Error)) // the counts are of these
	s := sender{Caller: live.CallerOf(c, v, p.cfg.By.shown), Denied: float64(c.Denied) / own,
		Turned: float64(c.Turned) / own, Failed: float64(c.Failed) / own,
		Agents: c.Agents.Count(), Paths: c.Paths.Count()}
	if v.Upstream > 0 {
		s.Upstream = min(1, float64(c.Upstream)/float64(v.Upstream))
	}
	_, s.Listed = listingOf(p, c.Key)
	return s
}

// group is callers of a view that stand near each other.
type group struct {
	sender
	Callers int `json:"callers"`
	Quiet   int `json:"quiet"` // those that send less than a quarter of what the others send
}

// groupsShown is how many groups the page shows: those with a stake of a hundredth.
const groupsShown = 10

func groupsOf(p *Proxy, v *traffic.View) []group {
	all := []group{}
	for _, g := range v.Groups() {
		if len(all) == groupsShown || v.Stake(g.N, &g.Counts) < .01 {
			break
		}
		one := traffic.Caller{Key: g.Prefix.String(), N: g.N, Counts: g.Counts}
		shown := group{senderOf(p, &one, v), g.Callers, g.Quiet}
		shown.Name = one.Key
		e, ok := p.denied.Lookup("", g.Prefix.Addr())
		shown.Listed = ok && e.Prefix.Bits() <= g.Prefix.Bits()
		all = append(all, shown)
	}
	return all
}

// sentBy returns what a caller sent in the last minute, and nil if that is nothing.
func sentBy(p *Proxy, key string, now time.Time) *cli.Sent {
	v := p.callers.View(traffic.Minute, now)
	c := v.Of(key)
	if c.N == 0 {
		return nil
	}
	s := senderOf(p, &c, &v)
	sent := &cli.Sent{N: c.N - c.Error, Share: s.Share, Denied: s.Denied, Turned: s.Turned,
		Failed: s.Failed, Upstream: s.Upstream, Agents: s.Agents, Paths: s.Paths}
	for _, one := range p.lately.Of(key) {
		sent.Admitted = append(sent.Admitted, cli.Admitted{At: one.At.UnixMilli(),
			Of: screen.Printable(one.Of), Agent: screen.Printable(one.Agent)})
	}
	return sent
}

// listingOf returns the entry of the deny list that refuses a caller, by its key or its last
// address.
func listingOf(p *Proxy, key string) (httplimit.DenyEntry, bool) {
	return p.denied.Lookup(key, addrOf(p, key))
}
