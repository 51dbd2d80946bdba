package replay

import (
	"encoding/json"
	"math"
	"time"
)

// Overload asks for a Load, not for what limits would have denied.
type Overload struct {
	Goal         time.Duration // of the guard; 0: it is learnt
	RefuseAtMost float64       // the fraction of requests that Load.Least may refuse
}

// Seconds is a duration whose JSON is a number of seconds.
type Seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(s).Seconds())
}

// Load is what was in flight, and what an overload.Guard would have refused of it, if each request
// came when it did, and took as long as it did, also where others are refused.
type Load struct {
	Untimed   uint64    `json:"untimed"`         // requests without a duration; left out
	Upgraded  uint64    `json:"upgraded"`        // requests answered with 101; left out, as they hold no place
	Whole     bool      `json:"whole_durations"` // all durations are whole seconds
	Long      uint64    `json:"long"`            // requests over a minute
	LongShare float64   `json:"long_share"`      // of the time in flight, from 0 to 1
	Average   float64   `json:"average"`         // in flight
	Peak      uint64    `json:"peak"`
	PeakAt    time.Time `json:"peak_at"`
	Took      Took      `json:"took_seconds"`
	Curve     *Curve    `json:"-"`

	Busiest []CallerLoad `json:"busiest"` // the Config.Top callers that took most time
	Refused []CallerLoad `json:"refused_most"`
	Guard   GuardLoad    `json:"guard"`

	// Throughput is the most requests that were served in a second, on average over rateWindow: not
	// those answered with 408, 429, 499 or 5xx.
	Throughput float64 `json:"throughput"`

	Fits  *Fixed `json:"fits,omitempty"` // Throughput times Guard.Goal; nil if that is unknown
	Least *Fixed `json:"least"`          // the least that refuses at most Overload.RefuseAtMost
}

// Took is how long requests took, to 1 %.
type Took struct {
	P50 Seconds `json:"p50"`
	P90 Seconds `json:"p90"`
	P99 Seconds `json:"p99"`
	Max Seconds `json:"max"`
}

// CallerLoad is one caller's part of a Load.
type CallerLoad struct {
	Name     string  `json:"caller"`
	Requests uint64  `json:"requests"`
	Time     Seconds `json:"seconds"` // in flight, of all requests
	Share    float64 `json:"share"`   // of that of all callers, from 0 to 1
	Most     uint64  `json:"most"`    // in flight at the same time
	GuardRefusals
}

// GuardRefusals are the requests that a guard refuses.
type GuardRefusals struct {
	Full      uint64 `json:"refused_full"`  // since the class may fill no more of the limit
	ShareUsed uint64 `json:"refused_share"` // since the caller holds its share
}

// Refused returns the number of all.
func (g GuardRefusals) Refused() uint64 { return g.Full + g.ShareUsed }

// GuardLoad is what a guard would have done, to which all requests are normal.
type GuardLoad struct {
	GuardRefusals
	Met    int     `json:"callers_refused"`
	Goal   Seconds `json:"goal_seconds"` // for a quarter of the time at most; 0: nothing was learnt
	Lowest uint64  `json:"lowest_limit"`
	Last   uint64  `json:"last_limit"`
	State  string  `json:"state"` // at the end
}

// Fixed is a fixed number of requests in flight, and how many it would have refused.
type Fixed struct {
	Most    uint64 `json:"most"`
	Refused uint64 `json:"refused"`
}

// The rows of a Curve.
const (
	curveRequests = iota // that arrive
	CurveRefused         // of these by the guard
	curveHeld            // microseconds in flight, of all requests
	curveRows
)

// Curve is what was in flight over time.
type Curve struct {
	*Timeline
	Peaks []uint64 // in flight, by bin
}

// Average returns what was in flight in bin i, on average.
func (c *Curve) Average(i int) float64 {
	return float64(c.Rows[curveHeld][i]) / float64(c.Width.Microseconds())
}

// Coarser returns the same in at most n bins, which must be at least 2.
func (c *Curve) Coarser(n int) *Curve {
	out := &Curve{Timeline: c.Timeline.Coarser(n)}
	out.Peaks = make([]uint64, out.Bins())
	for i, peak := range c.Peaks {
		to := &out.Peaks[c.At(i).Sub(out.Start)/out.Width]
		*to = max(*to, peak)
	}
	return out
}

// durations counts durations by their size, to 1 %.
type durations struct {
	counts [1 << 16]uint64 // by the upper bits of a float32
	n      uint64
	max    int64
	parts  bool // some are not whole seconds
}

func (d *durations) add(ns int64) {
	d.counts[math.Float32bits(float32(ns))>>16]++
	d.n++
	d.max = max(d.max, ns)
	d.parts = d.parts || ns%int64(time.Second) != 0
}

// took returns the quantiles.
func (d *durations) took() Took {
	at := func(share float64) Seconds {
		rank, seen := uint64(math.Ceil(share*float64(d.n))), uint64(0)
		for i, n := range d.counts {
			seen += n
			if seen >= rank {
				middle := math.Float32frombits(uint32(i)<<16 | 1<<15)
				if i == 0 {
					middle = 0
				}
				return Seconds(min(int64(middle), d.max))
			}
		}
		return Seconds(d.max)
	}
	return Took{at(.5), at(.9), at(.99), Seconds(d.max)}
}
