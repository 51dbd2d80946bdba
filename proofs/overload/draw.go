package overload

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// kind draws what happens to a service.
type kind struct {
	name string
	draw func(s *Scenario, r *rand.Rand)
}

var kinds = []kind{
	{"calm", drawCalm}, {"load", drawLoad}, {"pool", drawPool}, {"dependency", drawDependency},
	{"dependency and load", drawBoth}, {"loud caller", drawLoud}, {"stop", drawStop},
	{"burst", drawBurst}, {"drift", drawDrift}, {"retries", drawRetries},
}

// log returns a number from low to high, each order of magnitude alike.
func log(r *rand.Rand, low, high float64) float64 {
	return low * math.Pow(high/low, r.Float64())
}

func linear(r *rand.Rand, low, high float64) float64 { return low + (high-low)*r.Float64() }

// works are how the work of requests is spread.
var works = []struct {
	name string
	work func(r *rand.Rand) float64
}{
	{"exponential", nil}, {"constant", constant}, {"lognormal 1", lognormal(1)},
	{"lognormal 1.5", lognormal(1.5)}, {"1 of 10 takes 10 times", mixed(.1, 10)},
}

// Draw returns a scenario at random. Its bars are none: see [Scenario.SetBars].
func Draw(seed uint64) Scenario {
	r := rand.New(rand.NewPCG(seed, 2))
	s := Scenario{Workers: int(math.Round(log(r, 1, 200))), Mean: log(r, .001, 1),
		Load: linear(r, .3, .8), From: 30, Patience: 1}
	if r.IntN(20) == 0 {
		s.Mean = log(r, 1, 5)
	}
	s.Mean = max(s.Mean, float64(s.Workers)/1500) // a run takes less than a second
	if r.IntN(2) == 0 {
		s.Delay = s.Mean * log(r, .05, 5)
	}
	work := works[r.IntN(len(works))]
	s.Work = work.work
	if r.IntN(4) == 0 {
		s.Shared, s.Contention = true, r.Float64()*.05
	}
	kind := kinds[r.IntN(len(kinds))]
	least := max(1, 300*s.Mean/float64(s.Workers), 10*(s.Mean+s.Delay)) // for a change to be seen
	s.To = s.From + max(log(r, 5, 200), 2*least)
	kind.draw(&s, r)
	s.Patience = max(s.Patience, 20*s.Mean/s.slowest()+2*(s.Delay+s.Slower))
	later := max(s.From, 10*least) - s.From
	s.From, s.To = s.From+later, s.To+later
	s.Until = max(s.To, s.Until+later)
	s.Length = s.Until + max(20, 10*least) + s.Patience
	s.Name = fmt.Sprintf("%d: %s, %.0f s, %d workers of %.0f ms, %s, shared %v, "+
		"delay %.0f and %.0f ms, load %.2f and %.2f, speed %.2f, loud %.0f, %d retries",
		seed, kind.name, s.To-s.From, s.Workers, s.Mean*1000, work.name, s.Shared,
		s.Delay*1000, s.Slower*1000, s.Load, s.Peak, s.slowest(), s.Loud, s.Retries)
	return s
}

func drawCalm(s *Scenario, r *rand.Rand) {
	s.Load = linear(r, .3, .75)
	s.To = s.From + 60
	s.Bars.Refused = .005
}

func drawLoad(s *Scenario, r *rand.Rand) { s.Peak = log(r, 1.1, 10) }

func drawPool(s *Scenario, r *rand.Rand) {
	s.Speed = slow(log(r, .05, .7))
}

func drawDependency(s *Scenario, r *rand.Rand) {
	s.Slower = log(r, .02, 2)
}

func drawBoth(s *Scenario, r *rand.Rand) {
	s.Slower = log(r, .02, 2)
	s.Peak = log(r, 1.1, 4)
}

func drawLoud(s *Scenario, r *rand.Rand) {
	s.Load = .9
	s.Loud = log(r, 3, 200)
}

func drawStop(s *Scenario, r *rand.Rand) {
	lasts := log(r, 1, 20)
	s.Until = s.To + lasts
	s.Speed, s.Turns = func(t float64) float64 {
		if t < lasts {
			return 0
		}
		return 1
	}, []float64{lasts}
	s.To = s.Until
}

func drawBurst(s *Scenario, r *rand.Rand) {
	s.Load = .001
	s.Peak = log(r, .5, 10)
}

func drawDrift(s *Scenario, r *rand.Rand) {
	s.Peak = linear(r, .95, 1.1)
	s.To = s.From + max(s.To-s.From, 60)
}

func drawRetries(s *Scenario, r *rand.Rand) {
	s.Retries = 1 + r.IntN(3)
	s.Speed = slow(log(r, .05, .7))
	s.Until = s.To + 20
}
