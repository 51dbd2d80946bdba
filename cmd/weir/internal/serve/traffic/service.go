package traffic

import "time"

// State is how a fact about the service is to be taken.
type State string

// The states.
const (
	Unknown State = "" // there is nothing to judge by
	OK      State = "ok"
	Warn    State = "warn"
	Bad     State = "bad"
)

// Facts are what the service does now, and did a minute ago.
type Facts struct {
	Past

	Failed   uint64 // in the last ten seconds, of so many requests
	Requests uint64
	Denied   uint64 // in the last minute, of so many decisions
	Decided  uint64
	InFlight int64
	Most     int64 // that may be in flight; 0: without a bound
}

// The latencies from which a service is slow, and from which nobody waits for it, and the shares of
// its answers that may fail.
const (
	slow, slowest         = 500 * time.Millisecond, 2 * time.Second // the median
	slowTail, slowestTail = 2 * time.Second, 10 * time.Second       // the 99th percentile
	failing, failed       = .01, .05
	manyInFlight          = 100 // that are no crowd without a bound
	fewAnswers            = 20  // too few to judge by
)

// Latency judges how long the answers of the last ten seconds took, so that what helps is seen at
// once, or those of the last minute if they were few: from twice the minute before on it warns.
func (f *Facts) Latency() State {
	now, before := f.Minute, f.Before
	if f.Now.N >= fewAnswers {
		now = f.Now
	}
	switch {
	case now.N == 0:
		return Unknown
	case now.P50 >= slowest || now.P99 >= slowestTail:
		return Bad
	case now.P50 >= slow || now.P99 >= slowTail,
		before.N >= fewAnswers && now.P50 >= 2*before.P50 && now.P50 >= slow/5:
		return Warn
	}
	return OK
}

// Errors judges the answers of the last ten seconds that failed.
func (f *Facts) Errors() State {
	share := float64(f.Failed+f.Left) / float64(max(f.Requests, f.Failed+f.Left, 1))
	switch {
	case f.Requests+f.Failed+f.Left == 0:
		return Unknown
	case share >= failed:
		return Bad
	case share >= failing:
		return Warn
	}
	return OK
}

// Flight judges the requests in flight: those near the bound, or without one, twice as many as a
// minute ago and more.
func (f *Facts) Flight() State {
	switch ago := f.InFlightAgo(); {
	case f.Most > 0 && f.InFlight >= f.Most:
		return Bad
	case f.Most > 0 && 5*f.InFlight >= 4*f.Most:
		return Warn
	case f.Most == 0 && f.InFlight >= 10*manyInFlight:
		return Bad
	case f.Most == 0 && f.InFlight >= manyInFlight && f.InFlight >= 2*ago:
		return Warn
	}
	return OK
}

// InFlightAgo returns how many requests were in flight a minute ago; 0 if that was before the
// start.
func (f *Facts) InFlightAgo() int64 {
	if n := len(f.Past.InFlight); n > 60 {
		return f.Past.InFlight[n-61]
	}
	return 0
}

// Denials judges the share of the last minute's requests that were denied.
func (f *Facts) Denials() State {
	switch {
	case f.Decided == 0:
		return Unknown
	case 4*f.Denied >= f.Decided:
		return Warn
	}
	return OK
}
