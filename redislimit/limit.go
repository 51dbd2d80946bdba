package redislimit

import (
	"time"

	"github.com/weirgo/weir"
)

// Limit returns the limit of n in d by s: a value that counts under keys which begin with its name
// or, without one, with its numbers, such as "100/1m". Processes that make equal limits count
// together. It panics where [weir.NewLimit] fails, which is for numbers of a configuration, and for
// a token bucket that takes too long to fill.
func (s *Strategy) Limit(n uint64, d time.Duration) *weir.Limit { return limit(s, s, n, d) }

// Limit returns the limit of n in d by l, as [Strategy.Limit] does.
func (l *Log) Limit(n uint64, d time.Duration) *weir.Limit { return limit(l, &l.Strategy, n, d) }

// Limit returns the limit of n in each window, as [Strategy.Limit] does.
func (c *Calendar) Limit(n uint64) *weir.Limit { return limit(c, &c.Strategy, n, c.Window()) }

// Limit returns the limit of n at one time, as [Strategy.Limit] does, with leases of a minute.
func (f *InFlight) Limit(n uint64) *weir.Limit { return limit(f, &f.Strategy, n, time.Minute) }

// Limit returns the limit by t, as [Strategy.Limit] does.
func (t *Tiers) Limit() *weir.Limit { return limit(t, &t.Strategy, 0, 0) }

// limit is weir.NewLimit of s, which is own or has it embedded, for numbers of a program.
func limit(s weir.Strategy, own *Strategy, n uint64, d time.Duration) *weir.Limit {
	m, err := weir.NewLimit(s, n, d)
	if err == nil {
		_, _, _, err = own.prepare(opPeek, &weir.Request{Key: "any", Limit: n, Duration: d}, 1)
	}
	if err != nil {
		panic(err.Error())
	}
	return m
}
