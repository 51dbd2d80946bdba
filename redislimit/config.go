package redislimit

import (
	"errors"
	"time"
)

// The defaults of Config.
const (
	DefaultPrefix  = "weir:"
	DefaultTimeout = 50 * time.Millisecond
	DefaultGrace   = time.Second

	// DefaultClockGrace is the Grace when Now is set.
	DefaultClockGrace = time.Minute
)

// ErrConfig: a field of Config is out of its range.
var ErrConfig = errors.New("redislimit: bad config")

// Config bounds a Store. The zero value of a field is its default.
type Config struct {
	// Prefix begins every key. Default DefaultPrefix. No braces: they would move the hash tag.
	// Stores with one Prefix on one server share their counts.
	Prefix string

	// Timeout bounds one decision, the wait for a connection included; the caller's context may end
	// it sooner, and it may end up to a 32nd early. Default DefaultTimeout. Too small turns every
	// garbage collection and every slow network into an error; too large makes callers wait for a
	// server that does not answer.
	Timeout time.Duration

	// Now replaces the server's clock: for tests and simulations, and for fleets whose clocks are
	// better than their server's. All processes must then agree on the time: windows are cut by it.
	Now func() time.Time

	// Grace is how much longer than its period a key lives. Default DefaultGrace. With Now set it
	// is DefaultClockGrace, for keys die by the server's clock: it must be longer than the two can
	// differ. Larger only costs memory. Negative: none.
	Grace time.Duration

	// OnCall is called after each call of the server but Warm's, with how long it took and its
	// error, which Classify reads. It must be fast, and safe for concurrent use. nil: none.
	OnCall func(took time.Duration, err error)

	// AllowUnsafeClient lets New accept a client that breaks a promise of this package; see Options
	// and ErrUnsafeClient.
	AllowUnsafeClient bool
}
