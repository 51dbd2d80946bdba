package overload

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// learner learns the limit. Durations are seconds.
type learner struct {
	mu     sync.Mutex // guards all but refusedShare
	window window

	limit, most float64 // fewest, or most if that is less, <= limit <= most
	given       float64 // Config.Goal; 0: none
	goal        float64 // 0: the first window has not ended
	least       float64 // the goal, as if nothing were slow
	calm        float64 // how long requests take while nothing is refused
	slow        float64 // how long where fewer in flight did not make them quicker; 0: nowhere

	// Of a fall, which lasts as long as requests are refused and take longer than the goal:
	since float64 // for how long; 0: there is none
	from  point   // where it began, or was last found to help; peak 0: nothing was changed yet

	probed point // where the first fall began, if that was early; peak 0: nowhere

	age                 float64 // of all windows
	throughput, latency float64 // of the last window
	state               state

	refusedShare atomic.Uint64 // of the last window: the bits of a float64
}

// point is a limit with the most that was in flight at it, how long requests took, and how many
// ended a second.
type point struct{ limit, peak, latency, throughput float64 }

// state is the finding of the last window.
type state int8

const (
	learning state = iota
	room
	quickEnough
	tooSlow
	noHelp
	probing
)

func (s state) String() string {
	return [...]string{"learning", "room", "full, quick enough", "full, too slow: fewer",
		"less did not help", "full from the start: trying few"}[s]
}

const (
	early      = 5    // seconds from the start: the service may have been full while calm was learnt
	patience   = .25  // a fall begins to count after this: a garbage collection is no overload
	fewer      = .6   // of a point's peak: so few in flight show whether that helps
	stale      = 1.25 // of a point's latency: its queue was not long yet
	calmFalls  = 5    // in how many seconds calm and slow follow down
	calmFor    = 1000
	slowFor    = 100 // and after how many requests
	calmRises  = 300 // calm follows up
	slowLasts  = 60  // slow is forgotten
	slower     = 1.5 // of slow: the goal
	afterPause = 1.25
	fewest     = 4 // in flight: a limit of less leaves workers idle
)

// start begins to learn at an instant.
func (f *learner) start(cfg Config, now int64) {
	f.given, f.most = cfg.Goal.Seconds(), float64(cfg.Most)
	f.limit = min(float64(firstLimit()), f.most)
	f.window = window{begin: now, end: now, last: now, changed: now}
}

// learn moves the limit after a window.
func (f *learner) learn(s sums) {
	f.age += s.length
	f.throughput, f.latency = s.throughput, s.latency
	if f.state == probing {
		f.endProbe(s)
		return
	}
	f.setGoal(s)
	f.state = room
	if s.refused > 0 {
		f.state = quickEnough
	}
	switch {
	case s.tooLate():
		f.fall(s)
		f.bound()
		return
	case s.refused == 0 && f.since > 0 && f.from.peak == 0:
		f.limit *= afterPause // the queue has passed by itself: it need not have been refused
	case s.refused == 0 && s.peak > f.limit/2 && s.latency < f.goal:
		f.limit *= 1.1
	case s.refused > 0 && s.latency <= f.goal:
		f.limit = max(f.limit, f.more(s))
	case s.refused > 0:
		f.fall(s)
		f.bound()
		return
	}
	f.since, f.from = 0, point{}
	f.bound()
}

func (f *learner) bound() { f.limit = min(max(fewest, f.limit), f.most) }

// more returns the limit to go to if requests are refused that would be quick enough: at most
// halfway to where they take the goal, or all the way if they were found not to wait for each
// other. A short window of few requests may be quick by chance, as those that follow it show: then
// it is a smaller part of the way.
func (f *learner) more(s sums) float64 {
	const (
		each   = 1. / 200 // of the way for each request
		second = 2        // times all of it for each that passes until the next window
	)
	to := min(f.fits(s), 2*f.limit)
	if f.goal > slower*f.slow {
		return f.limit + (to-f.limit)*min(.5, max(each*s.n, second*(s.length+s.latency)))
	}
	return to
}

// fits returns the limit at which requests take the goal. Refusals at parts and shares keep the
// requests in flight below the limit, so the limit is scaled by how long requests take: throughput
// times goal alone would never grant room to those refused below the limit. The result is at most
// twice that, so that no refusals of bursts make the limit grow forever.
func (f *learner) fits(s sums) float64 {
	return min(f.limit*f.goal/s.latency, 2*s.throughput*f.goal)
}

// fall lowers the limit, or raises it again if less did not help.
func (f *learner) fall(s sums) {
	f.since += s.length
	if f.since < patience {
		return
	}
	f.state = tooSlow
	here := point{f.limit, s.peak, s.latency, s.throughput}
	if f.age < early && f.given == 0 && f.probed.peak == 0 {
		f.state, f.probed, f.limit = probing, here, fewest
		return
	}
	less := here.peak / f.from.peak
	// Where requests do not wait for each other, fewer at a time are fewer a second. If clients leave,
	// those who have left may be served yet.
	idle := s.left == 0 && here.throughput < math.Sqrt(less)*f.from.throughput
	switch {
	case s.tooLate(): // all clients leave at one time: how long others take is not known
	case f.from.peak == 0, less > 1, here.latency > stale*f.from.latency && !idle:
		f.from = here
	case f.limit <= fewest, less < fewer && here.latency > math.Sqrt(less)*f.from.latency:
		// Where requests wait for each other the latency falls as their number does; here it fell
		// by less than the mean of that and of nothing. Slow is the mean of both windows: the twenty
		// requests of one say too little, and a goal that is too small leaves workers idle.
		f.state = noHelp
		f.slow, f.limit = (s.latency+f.from.latency)/2, f.from.limit
		f.since, f.from = 0, point{}
		return
	case less < fewer:
		f.from = here
	}
	// Twenty requests lead half of the way. The fewer of a slow service say less, unless they take far
	// too long.
	f.limit += (f.fits(s) - f.limit) * min(.5, max(s.n/40, s.latency/f.goal/4))
}

// probeFails reports whether the window of the fewest in flight may end early: not half as many are
// served as before.
func (f *learner) probeFails(now int64) bool {
	w := &f.window
	length := w.length(now)
	return f.state == probing && w.n > 0 && length >= .1 && w.ended < f.probed.throughput*length/2
}

// endProbe ends the window of the fewest in flight. If as many were served as of more, those only
// waited: the service was full from its start, and this is its calm.
func (f *learner) endProbe(s sums) {
	f.state = tooSlow
	if s.throughput >= f.probed.throughput {
		f.calm = min(f.calm, s.latency)
	} else {
		f.limit = f.probed.limit
	}
	f.since = 0
}

// setGoal learns calm and slow, and sets the goal.
func (f *learner) setGoal(s sums) {
	switch {
	case f.calm == 0:
		f.calm = s.latency
	case s.latency < f.calm:
		f.calm += (s.latency - f.calm) * min(1, s.length/calmFalls, s.n/calmFor)
	case s.refused == 0 && s.peak < f.limit/2 && !s.tooLate(): // else a queue may have made it slower
		f.calm += (s.latency - f.calm) * min(1, s.length/min(max(10, f.age), calmRises))
	}
	if s.latency < f.slow {
		f.slow += (s.latency - f.slow) * min(1, s.length/calmFalls, s.n/slowFor)
	}
	f.slow *= math.Exp(-s.length / slowLasts)
	f.goal = f.given
	if f.given == 0 {
		f.goal = 1.5*f.calm + min(f.calm/2, .05)
	}
	f.least = f.goal
	f.goal = max(f.goal, slower*f.slow)
}

// exceeds reports whether a request that took so many ns took longer than the goal. Slow does
// not count: clients may leave before that.
func (f *learner) exceeds(took int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.least > 0 && float64(took)/1e9 > f.least
}

// retryAfter returns when a refused request may try again.
func (f *learner) retryAfter() time.Duration {
	share := math.Float64frombits(f.refusedShare.Load())
	return time.Second + time.Duration(rand.Float64()*share*float64(30*time.Second))
}
