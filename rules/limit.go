package rules

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Unit is the unit of time of a limit. The values are those of Envoy's protocol.
type Unit int32

// The units. A month is 30 days and a year 365.
const (
	UnknownUnit Unit = iota
	Second
	Minute
	Hour
	Day
	Month
	Year
	Week
)

var units = [...]struct {
	name   string
	length time.Duration
}{
	UnknownUnit: {"unknown", 0},
	Second:      {"second", time.Second},
	Minute:      {"minute", time.Minute},
	Hour:        {"hour", time.Hour},
	Day:         {"day", 24 * time.Hour},
	Month:       {"month", 30 * 24 * time.Hour},
	Year:        {"year", 365 * 24 * time.Hour},
	Week:        {"week", 7 * 24 * time.Hour},
}

// unitNames are the units that a rule may have, shortest first.
var unitNames = []string{"second", "minute", "hour", "day", "week", "month", "year", inFlightUnit}

// unitOf returns the unit with that name, in any letter case, or UnknownUnit if there is none.
func unitOf(name string) Unit {
	for u := Second; u.valid(); u++ {
		if strings.EqualFold(name, u.String()) {
			return u
		}
	}
	return UnknownUnit
}

func (u Unit) valid() bool { return u > UnknownUnit && int(u) < len(units) }

// String returns the name in lower case, as in a rules file.
func (u Unit) String() string {
	if u < 0 || int(u) >= len(units) {
		return "unit " + strconv.Itoa(int(u))
	}
	return units[u].name
}

// Duration returns the length of one unit, or 0 for UnknownUnit and invalid values.
func (u Unit) Duration() time.Duration {
	if !u.valid() {
		return 0
	}
	return units[u].length
}

// Algorithm is the strategy that counts for a rule.
type Algorithm uint8

// The algorithms, named after the strategies of package weir.
const (
	FixedWindow Algorithm = iota
	SlidingWindow
	SlidingLog
	TokenBucket
	InFlight // of the unit in_flight, which has no other
)

// algorithmNames are those that a rule may name.
var algorithmNames = []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket"}

// String returns the name as in a rules file.
func (a Algorithm) String() string {
	switch {
	case a == InFlight:
		return inFlightUnit
	case int(a) >= len(algorithmNames):
		return "algorithm " + strconv.Itoa(int(a))
	}
	return algorithmNames[a]
}

// Limit is a rule's rate_limit.
type Limit struct {
	Requests   uint32 // in one period, or InFlight at one time; 0 denies everything
	Unit       Unit   // UnknownUnit for InFlight
	Multiplier uint32 // units in a period; at least 1 in a loaded rule
	Unlimited  bool   // not counted; Requests and Unit have no effect
	Name       string // the name in the file; may be empty
	Algorithm  Algorithm
	Burst      uint64   // capacity of a TokenBucket, 0 means Requests; 0 for other algorithms
	Calendar   Calendar // whose windows a FixedWindow counts in; the zero value: windows of a Period
	Afterwards bool     // costs are known afterwards: hits are counted in full, see Engine

	Lease time.Duration // after which the places of a process that died are free; 0 unless InFlight
}

// Period returns the length of time that Requests is for: Multiplier units, or the maximum Duration
// if that overflows. For InFlight it is the Lease.
func (l *Limit) Period() time.Duration {
	if l.Algorithm == InFlight {
		return l.Lease
	}
	unit, n := l.Unit.Duration(), time.Duration(max(1, l.Multiplier))
	if unit > 0 && n > math.MaxInt64/unit {
		return math.MaxInt64
	}
	return unit * n
}

// capacity is the highest count that is not over the limit.
func (l *Limit) capacity() uint64 {
	if l.Algorithm == TokenBucket && l.Burst > 0 {
		return l.Burst
	}
	return uint64(l.Requests)
}

// AtOnce returns how many requests pass within a moment, at most: of windows of fixed ends it is
// those of the two that meet there.
func (l *Limit) AtOnce() uint64 {
	if l.Algorithm == FixedWindow {
		return 2 * uint64(l.Requests)
	}
	return l.capacity()
}

// String describes the limit, such as "10 per minute" or "100 per 5 minutes by token_bucket, burst
// 20".
func (l *Limit) String() string {
	if l.Unlimited {
		return "unlimited"
	}
	if l.Algorithm == InFlight {
		return fmt.Sprintf("%d in flight, lease %v", l.Requests, l.Lease)
	}
	s := strconv.FormatUint(uint64(l.Requests), 10) + " per "
	switch {
	case l.Calendar != (Calendar{}):
		s += l.Calendar.String()
	case l.Multiplier > 1:
		s += fmt.Sprintf("%d %ss", l.Multiplier, l.Unit)
	default:
		s += l.Unit.String()
	}
	if l.Algorithm != FixedWindow {
		s += " by " + l.Algorithm.String()
	}
	if l.Burst > 0 {
		s += ", burst " + strconv.FormatUint(l.Burst, 10)
	}
	if l.Afterwards {
		s += ", costs afterwards"
	}
	return s
}
