package replay

import "time"

// Minute is what a Follower saw in the last minute: by the log's times, and as much later as no
// line was written since.
type Minute struct {
	To       time.Time `json:"to"`
	Requests uint64    `json:"requests"`
	Callers  int       `json:"callers"`
	Denied   uint64    `json:"denied"`       // by any limit, or by the rules together
	Failed   uint64    `json:"answered_5xx"` // by the server
	Busiest  []Recent  `json:"busiest"`      // the Config.Top callers with the most requests
}

// Recent is one caller's part of a Minute.
type Recent struct {
	Name     string `json:"caller"`
	Requests uint64 `json:"requests"`
	Denied   uint64 `json:"denied"`
	Failed   uint64 `json:"answered_5xx"`
}

// seconds is how many a lately has.
const seconds = 60

// lately counts the requests of each second of the last minute.
type lately [seconds]second

// second counts the requests of a second, in Unix time.
type second struct {
	at      int64
	callers map[uint32]Recent // without names
}

// add counts a request of a caller. No later call may have an earlier second.
func (l *lately) add(ns int64, caller uint32, denied bool, m marks) {
	at := time.Unix(0, ns).Unix()
	s := &l[((at%seconds)+seconds)%seconds]
	if s.at != at || s.callers == nil {
		*s = second{at, make(map[uint32]Recent)}
	}
	one := s.callers[caller]
	one.Requests++
	if denied {
		one.Denied++
	}
	if m&failed != 0 {
		one.Failed++
	}
	s.callers[caller] = one
}

// until returns the sums of the callers of the minute that ends with a second.
func (l *lately) until(second int64) map[uint32]Recent {
	sums := make(map[uint32]Recent)
	for _, s := range l {
		if s.at <= second-seconds || s.at > second {
			continue
		}
		for caller, n := range s.callers {
			sum := sums[caller]
			sum.Requests, sum.Denied, sum.Failed = sum.Requests+n.Requests, sum.Denied+n.Denied,
				sum.Failed+n.Failed
			sums[caller] = sum
		}
	}
	return sums
}
