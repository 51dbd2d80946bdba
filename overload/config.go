package overload

import (
	"fmt"
	"runtime"
	"time"
)

// Config configures a [Guard]. The zero value holds the documented defaults.
type Config struct {
	// Goal is how long a request may take while the service is full; 0: learnt. Too small refuses
	// requests that could be served in time; too large has every request wait for that long.
	Goal time.Duration

	// Most bounds the limit. 0 means 1<<20.
	Most int

	// Parts are the shares of the limit that Sheddable, Normal and Critical requests may fill, in this
	// order, each more than 0, at most 1, and no less than the one before. The zero value means .7, .9
	// and 1. Of a limit that was learnt, below Most, a part of less than 1 leaves up to eight places,
	// or half of the limit: all of these once a third of the requests are refused.
	Parts [3]float64

	// Share is the part of the places free for the class that a caller may hold, from where half of
	// the limit is used. More than 0, at most 1; 0 means a quarter. Smaller leaves more to other
	// callers, and more unused. A caller may always hold one, and three critical ones of a limit of
	// nine or more.
	Share float64

	// Now replaces the clock; nil means the Limiter's. It must be safe for concurrent use.
	Now func() time.Time
}

// check returns an error for a cfg that is out of its bounds.
func (cfg *Config) check() error {
	p := cfg.Parts
	switch {
	case cfg.Goal < 0:
		return fmt.Errorf("overload: the Goal %v is negative", cfg.Goal)
	case cfg.Most < 0:
		return fmt.Errorf("overload: the Most %d is negative", cfg.Most)
	case p != [3]float64{} && !(0 < p[0] && p[0] <= p[1] && p[1] <= p[2] && p[2] <= 1):
		return fmt.Errorf("overload: bad Parts %v, want 0 < sheddable <= normal <= critical <= 1", p)
	case cfg.Share != 0 && !(0 < cfg.Share && cfg.Share <= 1):
		return fmt.Errorf("overload: the Share %v is out of bounds, want more than 0 and at most 1",
			cfg.Share)
	}
	return nil
}

// withDefaults returns cfg with its defaults.
func (cfg Config) withDefaults() Config {
	if cfg.Most == 0 {
		cfg.Most = 1 << 20
	}
	if cfg.Parts == [3]float64{} {
		cfg.Parts = [3]float64{.7, .9, 1}
	}
	if cfg.Share == 0 {
		cfg.Share = .25
	}
	return cfg
}

// firstLimit returns the limit to start at, if that is no more than Most. From a smaller one a
// burst at the start of a service is refused for seconds.
func firstLimit() int { return max(100, 16*runtime.GOMAXPROCS(0)) }
