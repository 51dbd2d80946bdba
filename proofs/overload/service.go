// Package overload simulates a service that is full, in virtual time: the guard of package
// overload, the code itself, and rivals beside it. RESULTS.md has its results.
package overload

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Scenario is a service and its load. Times are seconds.
type Scenario struct {
	Name string

	Workers    int
	Mean       float64                    // of the work of a request
	Work       func(r *rand.Rand) float64 // in multiples of Mean; nil: exponential
	Delay      float64                    // before a request reaches the workers
	Shared     bool                       // the workers are cores that all requests share
	Contention float64                    // of Shared: what each further request for a core costs all
	Patience   float64                    // of a client; the work goes on when it leaves

	Load     float64                 // in multiples of the capacity, but in the trouble
	Peak     float64                 // in the trouble; 0: Load
	Loud     float64                 // caller 0 sends so much more in the trouble; 0: no more
	Slower   float64                 // what is added to the delay in the trouble
	Speed    func(t float64) float64 // of the workers, by the time since From; nil: 1
	Turns    []float64               // when Speed changes, since From
	Retries  int                     // of a client, at once
	Budget   float64                 // of retries, as a share of requests; 0: none
	From, To float64                 // of the trouble
	Until    float64                 // what is measured ends; 0: To
	Length   float64                 // of the run

	Bars Bars
}

// Bars are the bounds of an Outcome; 0 means what [Scenario.Fill] sets, or none.
type Bars struct {
	Good     float64 // at least
	Critical float64 // at least; where critical requests alone fit
	Others   float64 // at least; where one caller is loud
	Refused  float64 // at most; where nothing need be refused
	Back     float64 // at most, seconds
}

// Limiter decides which requests are admitted.
type Limiter interface {
	Enter(now float64, r *Request) bool
	Leave(now float64, r *Request, took float64)
}

// Request is an attempt of a client.
type Request struct {
	Caller   int
	Class    int // 0, 1 and 2: sheddable, normal, critical
	Arrived  float64
	Token    any // of the Limiter
	admitted bool
	answered bool
	first    *want
	left     int // retries
}

// want is what a client wants, over all attempts.
type want struct {
	at     float64
	class  int
	caller int
	served bool
}

const callers = 20

// Outcome is what a run says.
type Outcome struct {
	Good     float64 // served in time, of what could be
	Critical float64 // of their demand
	Others   float64 // of the demand of all callers but 0
	Refused  float64 // of those that were offered
	Back     float64 // seconds after the trouble
	P99      float64 // of the served, ms
}

type simulation struct {
	Scenario
	limiter Limiter
	random  *rand.Rand
	now     float64
	order   uint64
	timed   events
	pool    events // by work
	work    float64
	queue   []*Request
	tokens  float64 // of the budget of retries

	wants            []*want
	offered, refused int
	latencies        []float64
}

// Run simulates s.
func Run(s Scenario, l Limiter, seed uint64) Outcome {
	s = s.Fill()
	sim := &simulation{Scenario: s, limiter: l, random: rand.New(rand.NewPCG(seed, 1))}
	sim.at(sim.nextArrival(), arrives, nil)
	for _, t := range s.Turns {
		sim.at(s.From+t, changes, nil)
	}
	for sim.step() {
	}
	return sim.outcome()
}

// Fill returns s with what follows from its other fields.
func (s Scenario) Fill() Scenario {
	if s.Work == nil {
		s.Work = (*rand.Rand).ExpFloat64
	}
	s.Peak, s.Until = cmp.Or(s.Peak, s.Load), cmp.Or(s.Until, s.To)
	back := 2.
	if s.Speed != nil {
		back = 10
	}
	s.Bars.Good, s.Bars.Back = cmp.Or(s.Bars.Good, .9), cmp.Or(s.Bars.Back, back)
	return s
}

// slowest returns the speed in the trouble, if the workers do not stop.
func (s *Scenario) slowest() float64 {
	if s.Speed == nil || s.Speed(0) == 0 {
		return 1
	}
	return s.Speed(0)
}

// Right returns about the best fixed limit.
func (s *Scenario) Right() float64 {
	n := float64(s.Workers) * (1 + (s.Delay+s.Slower)*s.slowest()/s.Mean)
	if s.Shared {
		return math.Ceil(n + 2)
	}
	return math.Ceil(1.2*n + 2 + math.Sqrt(n))
}

// SetBars sets the bars of a scenario that was drawn, by the outcome of the right fixed limit: as
// those of Scenarios, but less by what is lost until a change is seen.
func (s *Scenario) SetBars(right Outcome) {
	good := .9
	if s.Right() < 10 {
		good = .75
	}
	seen := 1 + 8*(s.Mean/s.slowest()+s.Delay+s.Slower)
	lost := min(.4, seen/(s.To-s.From))
	f := s.Fill()
	s.Bars.Good = (good - lost) * min(1, right.Good)
	s.Bars.Back = max(f.Bars.Back, seen, right.Back)
	load := f.Peak * float64(1+s.Retries)
	switch {
	case s.Speed != nil && s.Speed(0) == 0: // nothing is served while the workers stand still
	case s.Loud > 0:
		s.Bars.Others = .85 * min(1, right.Good)
	case .2*load < .7*s.slowest():
		s.Bars.Critical = (good + .05 - lost) * min(1, right.Good)
	}
}

func (s *simulation) at(t float64, do step, r *Request) {
	s.order++
	s.timed.push(event{t, s.order, do, r})
}

func (s *simulation) trouble(t float64) bool { return s.From <= t && t < s.To }

// load returns the offered load at t, as a share of the capacity.
func (s *simulation) load(t float64) float64 {
	if !s.trouble(t) {
		return s.Load
	}
	return s.Peak * (callers - 1 + max(1, s.Loud)) / callers
}

func (s *simulation) speed(t float64) float64 {
	if s.Speed == nil || !s.trouble(t) {
		return 1
	}
	return s.Speed(t - s.From)
}

// nextArrival draws it.
func (s *simulation) nextArrival() float64 {
	capacity, t := float64(s.Workers)/s.Mean, s.now
	for _, edge := range []float64{s.From, s.To, math.Inf(1)} {
		if t >= edge {
			continue
		}
		if next := t + s.random.ExpFloat64()/(s.load(t)*capacity); next < edge {
			return next
		}
		t = edge
	}
	return t
}

// rate returns how fast the work of each request in the pool is done.
func (s *simulation) rate() float64 {
	rate, n, c := s.speed(s.now), float64(len(s.pool)), float64(s.Workers)
	if s.Shared && n > c {
		rate *= c / n / (1 + s.Contention*(n-c)/c)
	}
	return rate
}

func (s *simulation) step() bool {
	done, rate := math.Inf(1), s.rate()
	if len(s.pool) > 0 && rate > 0 {
		done = s.now + max(0, s.pool[0].at-s.work)/rate
	}
	if next := s.timed[0].at; next < done {
		if next >= s.Length {
			return false
		}
		s.work += (next - s.now) * rate
		s.now = next
		s.do(s.timed.pop())
		return true
	}
	s.now = done
	e := s.pool.pop()
	s.work = e.at
	s.finish(e.of)
	return s.now < s.Length
}

func (s *simulation) do(e event) {
	switch e.step {
	case arrives:
		s.arrive()
		s.at(s.nextArrival(), arrives, nil)
	case reaches:
		if !s.Shared && len(s.pool) >= s.Workers {
			s.queue = append(s.queue, e.of)
			return
		}
		s.begin(e.of)
	case retries:
		s.ask(e.of)
	case givesUp:
		if !e.of.answered && e.of.admitted {
			s.again(e.of)
		}
	}
}

func (s *simulation) arrive() {
	w := &want{at: s.now}
	switch u := s.random.Float64(); {
	case u < .2:
		w.class = 0
	case u < .8:
		w.class = 1
	default:
		w.class = 2
	}
	loud := 1.
	if s.trouble(s.now) {
		loud = max(1, s.Loud)
	}
	if u := s.random.Float64() * (callers - 1 + loud); u >= loud {
		w.caller = 1 + int(u-loud)
	}
	s.wants = append(s.wants, w)
	s.tokens += s.Budget
	s.ask(&Request{Caller: w.caller, Class: w.class, first: w, left: s.Retries})
}

func (s *simulation) ask(r *Request) {
	r.Arrived = s.now
	measured := s.From <= s.now && s.now < s.Until
	if measured {
		s.offered++
	}
	r.admitted = s.limiter.Enter(s.now, r)
	if !r.admitted {
		if measured {
			s.refused++
		}
		s.again(r)
		return
	}
	s.at(s.now+s.Delay+s.slower(), reaches, r)
	if s.Retries > 0 {
		s.at(s.now+s.Patience, givesUp, r)
	}
}

func (s *simulation) slower() float64 {
	if s.trouble(s.now) {
		return s.Slower
	}
	return 0
}

// again has the client of r ask once more, if it may.
func (s *simulation) again(r *Request) {
	if r.left == 0 || s.Budget > 0 && s.tokens < 1 {
		return
	}
	s.tokens--
	again := &Request{Caller: r.Caller, Class: r.Class, first: r.first, left: r.left - 1}
	s.at(s.now+.001, retries, again)
}

func (s *simulation) begin(r *Request) {
	s.order++
	s.pool.push(event{s.work + s.Mean*s.Work(s.random), s.order, ends, r})
}

func (s *simulation) finish(r *Request) {
	r.answered = true
	took := s.now - r.Arrived
	s.limiter.Leave(s.now, r, took)
	if took <= s.Patience {
		r.first.served = true
	}
	if s.From <= r.Arrived && r.Arrived < s.Until {
		s.latencies = append(s.latencies, took)
	}
	if len(s.queue) > 0 {
		s.begin(s.queue[0])
		s.queue = s.queue[1:]
	}
}

// outcome adds up the run.
func (s *simulation) outcome() (o Outcome) {
	var good, critical, criticals, others, othersAll float64
	for _, w := range s.wants {
		if w.at < s.From || w.at >= s.Until {
			continue
		}
		served := 0.
		if w.served {
			served = 1
		}
		good += served
		if w.class == 2 {
			critical, criticals = critical+served, criticals+1
		}
		if w.caller > 0 {
			others, othersAll = others+served, othersAll+1
		}
	}
	o.Good = good / s.possible()
	o.Critical, o.Others = critical/criticals, others/othersAll
	o.Refused = float64(s.refused) / float64(s.offered)
	o.Back = s.back()
	slices.Sort(s.latencies)
	if n := len(s.latencies); n > 0 {
		o.P99 = 1000 * s.latencies[n*99/100]
	}
	return o
}

// possible returns how many requests could be served.
func (s *simulation) possible() (n float64) {
	const each = .01
	for t := s.From; t < s.Until-each/2; t += each {
		n += each * min(s.load(t+each/2), s.speed(t+each/2)) * float64(s.Workers) / s.Mean
	}
	return n
}

// back returns how long after the trouble 90 % were served again, in four spans in a row, each of
// half a second or of 200 requests. Later dips are what calm scenarios show: a service of two
// workers at .7 of its capacity has some with any fixed limit.
func (s *simulation) back() (back float64) {
	const settled = 4
	span := max(.5, 200*s.Mean/float64(s.Workers)/s.Load)
	n := max(0, int((s.Length-s.Patience-s.To)/span))
	offered, served := make([]int, n+1), make([]int, n+1)
	for _, w := range s.wants {
		if i := int(math.Floor((w.at - s.To) / span)); i >= 0 && i < n {
			offered[i]++
			if w.served {
				served[i]++
			}
		}
	}
	for i, good := 0, 0; i < n && good < settled; i++ {
		good++
		if float64(served[i]) < .9*float64(offered[i]) {
			good, back = 0, float64(i+1)*span
		}
	}
	return back
}
