package overload

import "math"

// window adds up the requests that have ended since an instant.
type window struct {
	begin   int64   // requests that end before are not counted
	changed int64   // the latencies are of requests that entered from here on
	end     int64   // of the window before
	old     float64 // in flight since before the change
	last    int64   // when a request ended last
	held    float64 // seconds in which later ones were in flight, added up
	refused uint64  // before the window
	ended   float64 // requests
	peak    float64 // in flight

	n, sum, squares float64 // of latencies
	left            float64 // how many of n are of requests that were abandoned
}

// sums are of a window that is over. Durations are seconds.
type sums struct{ throughput, latency, length, n, left, refused, peak float64 }

// latency returns how long the requests take that entered since the change. Soon after it their
// mean is too small if they take different times, since quick ones end first. Then the latency is
// how long they were in flight for each that ended, within what their deviation makes likely.
func (w *window) latency(now int64) float64 {
	const alike, settled, likely = .3, 5, 4
	mean := w.sum / w.n
	deviation := math.Sqrt(max(0, w.squares/w.n-mean*mean))
	if deviation < alike*mean || float64(now-w.changed)/1e9 > mean+settled*deviation {
		return mean
	}
	return min(max(mean, w.held/w.n), mean+likely*deviation)
}

// leave counts one less in flight.
func (w *window) leave(entered int64) {
	if entered < w.changed {
		w.old--
	}
}

// add counts a request that ends beside others in flight.
func (w *window) add(now, entered int64, inFlight float64) {
	w.ended++
	w.peak = max(w.peak, inFlight)
	w.held += float64(now-w.last) / 1e9 * max(0, inFlight-w.old)
	w.last = now
	if entered < w.changed {
		return
	}
	latency := float64(max(1, now-entered)) / 1e9
	w.n++
	w.sum += latency
	w.squares += latency * latency
}

// over reports whether the window has ended: after .1 s and 20 requests, once their mean is known
// to 15 %, or after 5 s and 10 requests. The first lasts .25 s, since quick ones end first; in a
// longer one a small service may be full already, and its latency be taken for calm.
func (w *window) over(now int64, first bool) bool {
	length := w.length(now)
	switch {
	case w.n < 10 || length < .1:
		return false
	case first:
		return length >= .25
	case length >= 5:
		return true
	}
	return w.n >= 20 && w.n*w.squares/(w.sum*w.sum)-1 < w.n/44
}

func (w *window) length(now int64) float64 { return float64(now-w.begin) / 1e9 }

// sums returns the sums of the window, which ends now; so many requests were refused until then.
func (w *window) sums(now int64, refused uint64) sums {
	length := w.length(now)
	return sums{throughput: w.ended / length, latency: w.latency(now), length: length, n: w.n,
		left:    w.left,
		refused: float64(refused-w.refused) / (float64(now-w.end) / 1e9), peak: w.peak}
}

func (s sums) offered() float64 { return s.throughput + s.refused }

// tooLate reports whether most requests were abandoned after the goal. How long others take is not
// known then, but that it is too long.
func (s sums) tooLate() bool { return s.left > s.n/2 }
