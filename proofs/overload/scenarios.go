package overload

import (
	"math"
	"math/rand/v2"
)

func constant(*rand.Rand) float64 { return 1 }

// lognormal has mean 1.
func lognormal(sigma float64) func(r *rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return math.Exp(sigma*r.NormFloat64() - sigma*sigma/2) }
}

// mixed takes times as long for a share of requests; the mean is 1.
func mixed(share, times float64) func(r *rand.Rand) float64 {
	quick := 1 / (1 - share + share*times)
	return func(r *rand.Rand) float64 {
		if r.Float64() < share {
			return quick * times
		}
		return quick
	}
}

// base is the service of most scenarios.
func base(name string) Scenario {
	return Scenario{Name: name, Workers: 32, Mean: .02, Delay: .005, Patience: 1, Load: .7,
		From: 60, To: 120, Length: 150}
}

func with(name string, change func(s *Scenario)) Scenario {
	s := base(name)
	change(&s)
	return s
}

func calm(name string, change func(s *Scenario)) Scenario {
	return with(name, func(s *Scenario) {
		s.From, s.To, s.Length = 10, 110, 120
		change(s)
	})
}

func slow(speed float64) func(float64) float64 { return func(float64) float64 { return speed } }

// every returns the instants at which what takes a part of each period begins and ends.
func every(period, part, length float64) (turns []float64) {
	for t := 0.; t < length; t += period {
		turns = append(turns, t, t+part)
	}
	return turns
}

func during(period, part, speed float64) func(t float64) float64 {
	return func(t float64) float64 {
		if math.Mod(t+1e-9, period) < part {
			return speed
		}
		return 1
	}
}

// Scenarios are those of the table. Bars that are lower than those of most are where the guard is
// weak: a service of two workers that slow each other down; clients that try again at once; and
// requests of which one in a hundred takes most of the time.
func Scenarios() []Scenario {
	return []Scenario{
		calm("calm", func(s *Scenario) { s.Bars = Bars{Refused: .005} }),
		calm("calm, heavy tail", func(s *Scenario) {
			s.Bars = Bars{Refused: .005}
			s.Work = lognormal(1.5)
		}),
		calm("pauses of 100 ms", func(s *Scenario) {
			s.Bars = Bars{Refused: .005}
			s.Speed, s.Turns = during(2, .1, 0), every(2, .1, 100)
		}),
		calm("calm, 1 of 100 takes 500 times", func(s *Scenario) {
			s.Bars = Bars{Refused: .02}
			s.Work = mixed(.01, 500)
		}),
		with("4x, constant", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Peak, s.Work = 2.8, constant
		}),
		with("4x, exponential", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Peak = 2.8
		}),
		with("4x, heavy tail", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Peak, s.Work = 2.8, lognormal(1.5)
		}),
		with("4x, shared CPU", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Peak, s.Shared, s.Contention = 2.8, true, .05
		}),
		with("pool at .1", func(s *Scenario) {
			s.Speed, s.To, s.Length = slow(.1), 90, 130
		}),
		with("dependency +180 ms", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Slower, s.To = .18, 90
		}),
		with("start, 200 workers", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Workers, s.Load, s.From, s.To, s.Length = 200, .9, 0, 30, 35
		}),
		with("2 workers, 4x", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Workers, s.Peak = 2, 2.8
		}),
		with("retries", func(s *Scenario) {
			s.Bars = Bars{Good: .9}
			s.Load, s.Retries, s.To, s.Until, s.Length = .8, 3, 70, 120, 150
			s.Speed = slow(.1)
		}),
		with("retries, budget", func(s *Scenario) {
			s.Load, s.Retries, s.Budget, s.To, s.Until, s.Length = .8, 3, .1, 70, 120, 150
			s.Speed = slow(.1)
		}),
		with("1.3x for 5 min", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Peak, s.To, s.Length = 1.3, 360, 400
		}),
		with("caller 10x", func(s *Scenario) {
			s.Bars = Bars{Others: .85, Critical: .95}
			s.Load, s.Loud = .9, 10
		}),
		with("caller 100x", func(s *Scenario) {
			s.Bars = Bars{Others: .85}
			s.Load, s.Loud = .9, 100
		}),
		with("1 of 10 takes 41 times, 4x", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Peak, s.Work = 2.8, mixed(.1, 41)
		}),
		with("workers at .2, 5 of 10 s", func(s *Scenario) {
			s.Speed, s.Turns = during(10, 5, .2), every(10, 5, 60)
		}),
		with("workers at .5", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Speed = slow(.5)
		}),
		with("2 workers of 5 ms, contention", func(s *Scenario) {
			s.Bars = Bars{Good: .75, Critical: .95}
			s.Workers, s.Mean, s.Shared, s.Contention, s.Peak = 2, .005, true, .1, 2.8
		}),
		with("2 workers of 5 ms, contention, 4x from the start", func(s *Scenario) {
			s.Bars = Bars{Good: .75, Critical: .9, Back: 5}
			s.Workers, s.Mean, s.Shared, s.Contention, s.Peak = 2, .005, true, .1, 2.8
			s.From, s.To, s.Length = 0, 60, 90
		}),
		with("512 workers of 50 ms", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Workers, s.Mean, s.Peak = 512, .05, 2.8
			s.From, s.To, s.Length = 30, 60, 80
		}),
		with("20x for 3 s", func(s *Scenario) { s.Peak, s.To, s.Length = 14, 63, 90 }),
		with("delay of 500 ms, 4x", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Delay, s.Peak = .5, 2.8
		}),
		with("+180 ms, load 1.4", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Slower, s.Peak = .18, 1.4
		}),
		with("8 workers of 5 s", func(s *Scenario) {
			s.Bars = Bars{Critical: .95}
			s.Workers, s.Mean, s.Patience, s.Peak = 8, 5, 60, 2.8
			s.From, s.To, s.Length = 300, 1500, 2500
		}),
		with("drift", func(s *Scenario) { s.Peak, s.To, s.Length = 1.01, 180, 210 }),
	}
}
