// Package fleet simulates fleets of instances that hold limits together: package fallback around
// the leases of package near, the code itself, around a Redis in memory, on a virtual clock without
// a network. RESULTS.md has its results, docs/machines.md the conclusions.
//
// Time is that of a testing/synctest bubble, which advances to the next event when every goroutine
// waits. So a minute of a fleet takes as long as its decisions do, and the clock of every part is
// the same.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"sync"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/near"
)

// Fleet configures a simulation. All fields must be set, but for those whose zero value is
// described.
type Fleet struct {
	Instances int
	Block     int           // what a lease takes at once; 0: no leases
	Denials   bool          // whether denials are cached
	Limit     uint64        // of each caller in each Window
	Window    time.Duration // a fixed one, unless Strategy is set
	Callers   int
	// the exponent of a Zipf distribution of requests over callers; 0: all ask alike
	Skew float64
	Rate float64 // requests a second, of all callers
	// the largest cost of a request, of which each from 1 is as likely; 0: all are 1
	Cost      uint64
	Length    time.Duration // of the run: whole Windows
	RoundTrip time.Duration // to Redis
	Service   time.Duration // of Redis for a command; the others wait in a queue. 0: none

	// Sample, if not 0, is how many requests of each octave of callers (the first, the next two, the
	// next four, and so on) are simulated at least. Counts of different keys do not affect each other,
	// but for the queue of Redis, so the others are taken to be like these. At least four callers of
	// an octave are simulated. Decisions, Commands and Hot are those of all, and Peak, Over and Unused
	// of the sample.
	Sample float64

	// Strategy makes what counts, in Redis and in each instance. nil: FixedWindow. With another one
	// Over, Unused and what is computed from them mean nothing.
	Strategy func(*weir.Limiter) weir.Counter

	// Redis refuses connections from OutageFrom to OutageTo, and keeps its counts. 0: there is no
	// outage.
	OutageFrom, OutageTo time.Duration

	// Configured is the number of instances that the configuration of each says. 0: Instances.
	Configured int

	// Churn is how often an instance leaves at once, with its leases, and a new one joins. 0: never.
	Churn time.Duration
}

// Outcome is the result of a run.
type Outcome struct {
	Decisions, Admitted uint64
	Local               uint64 // of Decisions, those that an instance made without Redis and leases
	Commands            uint64 // that Redis ran
	Peak                uint64 // of Commands in one second
	Hot                 uint64 // of Commands, those on the key with most of them

	// Over is by how much the admissions of one caller in one window exceeded Limit at most; OverAll
	// is the sum of that over all callers and windows.
	Over, OverAll uint64

	// Unused is the most of Limit that was not admitted in one window to a caller that was denied;
	// UnusedMean is the mean share of Limit of all these.
	Unused     uint64
	UnusedMean float64
	Exhausted  int // how many callers in a window asked for all of Limit

	// Early is the least share of Limit that one of these had been admitted when it was first denied.
	Early float64
}

// Bound returns what one caller can be admitted in one window at most, by the documentation of
// fallback.New. An instance that begins an outage with a lease admits from it beside its share.
// Instances that left in the window have had theirs.
func (f Fleet) Bound() uint64 {
	if f.OutageTo == 0 {
		return f.Limit
	}
	n := uint64(f.Instances)
	share := (f.Limit + n - 1) / n
	return f.Limit + (f.present()-1)*share + f.present()*f.block()
}

// MaxUnused returns how much of a Limit can be left over in a window without an outage: a block of
// each instance, and less than the cost of a request.
func (f Fleet) MaxUnused() uint64 { return f.present()*f.block() + max(1, f.Cost) - 1 }

// present returns how many instances there are in one window at most.
func (f Fleet) present() uint64 {
	n := uint64(f.Instances)
	if f.Churn > 0 {
		n += uint64(f.Window/f.Churn) + 1
	}
	return n
}

// block returns the largest block that near.Leases takes.
func (f Fleet) block() uint64 {
	if f.Block == 0 {
		return 0
	}
	return max(1, min(uint64(f.Block), f.Limit/(2*uint64(f.Instances))))
}

// instance is one process of the fleet.
type instance struct {
	*fallback.Fallback
	local *weir.Limiter
}

// window is a caller in one window.
type window struct {
	caller int
	ends   int64 // Unix ms
}

// run is a Fleet at work.
type run struct {
	Fleet
	server    *redis
	instances []*instance
	retired   []*instance
	callers   []string
	like      []float64 // of callers: how many each of them stands for
	weights   []float64 // of callers, each with the sum of those before it
	random    *rand.Rand

	mu       sync.Mutex
	admitted map[window]uint64 // guarded by mu, as all below
	asked    map[window]uint64
	denied   map[window]uint64 // admitted when it was first denied
	decided  []uint64          // by caller
	out      Outcome
}

// Run simulates f with random numbers from seed. It must be called in a testing/synctest bubble. It
// fails if a decision does, or if f cannot be.
func (f Fleet) Run(seed uint64) (Outcome, error) {
	if f.Length%f.Window != 0 || f.Instances < 1 || f.Callers < 1 {
		return Outcome{}, errors.New("fleet: the length is no number of windows, or there is nobody")
	}
	if f.Strategy == nil {
		f.Strategy = func(l *weir.Limiter) weir.Counter { return l.FixedWindow() }
	}
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		return Outcome{}, err
	}
	defer limiter.Close()
	counts := f.Strategy(limiter)
	r := &run{
		Fleet: f,
		server: &redis{strategy: counts, roundTrip: f.RoundTrip, service: f.Service,
			start:  time.Now(),
			perKey: make(map[string]uint64)},
		random:   rand.New(rand.NewPCG(seed, 0)),
		admitted: make(map[window]uint64),
		asked:    make(map[window]uint64),
		denied:   make(map[window]uint64),
	}
	r.server.about = counts.About().By(r.server)
	r.server.about.Reconciles = true
	defer r.close()
	for range f.Instances {
		if err := r.join(); err != nil {
			return Outcome{}, err
		}
	}
	r.draw()
	err = r.simulate()
	return r.result(), err
}

// draw draws the callers that are simulated, and lowers Rate to theirs.
func (r *run) draw() {
	total, sum := zipf(1, r.Callers+1, r.Skew), 0.0
	requests := r.Rate * r.Length.Seconds() / total // of a caller of weight 1
	for first := 1; first <= r.Callers; first *= 2 {
		size := min(first, r.Callers+1-first)
		n := size
		if r.Sample > 0 {
			mean := zipf(first, first+size, r.Skew) / float64(size) * requests
			n = min(size, max(4, int(math.Ceil(r.Sample/mean))))
		}
		for i := range n {
			rank := first + int((float64(i)+0.5)*float64(size)/float64(n))
			sum += math.Pow(float64(rank), -r.Skew)
			r.weights = append(r.weights, sum)
			r.callers = append(r.callers, fmt.Sprint("caller ", rank))
			r.like = append(r.like, float64(size)/float64(n))
		}
	}
	r.Rate *= sum / total
	r.decided = make([]uint64, len(r.callers))
}

// zipf returns the sum of the weights of the ranks from first to before end.
func zipf(first, end int, skew float64) (sum float64) {
	const exact = 1 << 16 // the rest is an integral, from a half rank below to a half above
	for ; first < min(end, exact); first++ {
		sum += math.Pow(float64(first), -skew)
	}
	if first >= end {
		return sum
	}
	from, to := float64(first)-0.5, float64(end)-0.5
	if skew == 1 {
		return sum + math.Log(to/from)
	}
	return sum + (math.Pow(to, 1-skew)-math.Pow(from, 1-skew))/(1-skew)
}

// join adds an instance.
func (r *run) join() error {
	local, err := weir.New(weir.Config{})
	if err != nil {
		return err
	}
	var primary weir.Strategy = r.server
	instances := cmp.Or(r.Configured, r.Instances)
	if r.Denials {
		primary = near.NewDenials(primary, near.DenialsConfig{})
	}
	if r.Block > 0 {
		primary = near.NewLeases(primary, near.LeaseConfig{Block: r.Block, Instances: instances})
	}
	f, err := fallback.New(primary, r.Strategy(local), fallback.Config{Instances: instances})
	r.instances = append(r.instances, &instance{f, local})
	return err
}

func (r *run) close() {
	for _, in := range append(r.instances, r.retired...) {
		in.local.Close()
	}
}

// tick is the time between two arrivals of requests, which is short beside a round trip.
const tick = 250 * time.Microsecond

// simulate lets time pass.
func (r *run) simulate() error {
	var requests sync.WaitGroup
	errs := make(chan error, 1)
	ask := func(in *instance, caller int, cost uint64) {
		requests.Go(func() {
			if err := r.ask(in, caller, cost); err != nil {
				select {
				case errs <- err:
				default:
				}
			}
		})
	}
	lastChurn := time.Duration(0)
	for at, due := time.Duration(0), 0.0; at < r.Length; at += tick {
		r.server.down.Store(at >= r.OutageFrom && at < r.OutageTo)
		if r.Churn > 0 && at-lastChurn >= r.Churn {
			lastChurn = at
			if err := r.replace(); err != nil {
				return err
			}
		}
		for due += r.Rate * tick.Seconds(); due >= 1; due-- {
			ask(r.instances[r.random.IntN(len(r.instances))], r.pick(), 1+r.random.Uint64N(max(1, r.Cost)))
		}
		time.Sleep(tick) // in a bubble
	}
	requests.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// replace has one instance leave and another join.
func (r *run) replace() error {
	i := r.random.IntN(len(r.instances))
	r.retired = append(r.retired, r.instances[i])
	r.instances = append(r.instances[:i], r.instances[i+1:]...)
	return r.join()
}

// pick draws a caller.
func (r *run) pick() int {
	return sort.SearchFloat64s(r.weights, r.random.Float64()*r.weights[len(r.weights)-1])
}

// ask has an instance decide on a request.
func (r *run) ask(in *instance, caller int, cost uint64) error {
	ends := time.Now().Truncate(r.Window).Add(r.Window)
	q := &weir.Request{Key: r.callers[caller], Limit: r.Limit, Duration: r.Window, Cost: cost}
	res, err := in.Run(context.Background(), q)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decided[caller]++
	w := window{caller, ends.UnixMilli()}
	r.asked[w] += cost
	if _, seen := r.denied[w]; !seen && !res.Allowed() {
		r.denied[w] = r.admitted[w]
	}
	if res.Allowed() {
		r.out.Admitted++
		r.admitted[window{caller, res.ExpiresAt.UnixMilli()}] += cost
	}
	return nil
}

// result sums up.
func (r *run) result() Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server.mu.Lock() // for blocks that nobody waits for any more
	defer r.server.mu.Unlock()
	out := r.out
	out.Early = 1
	for _, in := range append(r.instances, r.retired...) {
		out.Local += in.Stats().Local
	}
	var decisions, commands float64
	for i, key := range r.callers {
		decisions += float64(r.decided[i]) * r.like[i]
		commands += float64(r.server.perKey[key]) * r.like[i]
		out.Hot = max(out.Hot, r.server.perKey[key])
	}
	out.Decisions, out.Commands = uint64(math.Round(decisions)), uint64(math.Round(commands))
	for _, n := range r.server.perSecond {
		out.Peak = max(out.Peak, n)
	}
	for _, n := range r.admitted {
		over := n - min(n, r.Limit)
		out.Over = max(out.Over, over)
		out.OverAll += over
	}
	for w, asked := range r.asked {
		if asked < r.Limit+r.Limit/10 { // a few may have come at the edge, and count in the next window
			continue
		}
		unused := r.Limit - min(r.Limit, r.admitted[w])
		out.Exhausted++
		out.Unused = max(out.Unused, unused)
		out.Early = min(out.Early, float64(r.denied[w])/float64(r.Limit))
		out.UnusedMean += float64(unused) / float64(r.Limit)
	}
	out.UnusedMean /= float64(max(1, out.Exhausted))
	return out
}
