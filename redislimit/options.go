package redislimit

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// maxDial is the longest dial timeout New accepts. A dial outlives the call that started it and
// holds its place in the pool: with the client's default of 5 s, a server that came back is not
// noticed for that long.
const maxDial = time.Second

// ioTimeout is how long the client of Options waits for a reply or a connection. Config.Timeout
// ends each call sooner: it is no bound of this package, but one for other uses of the client.
const ioTimeout = 10 * time.Second

// ErrUnsafeClient: the client's settings break a promise of this package. The message names each of
// them.
var ErrUnsafeClient = errors.New("redislimit: unsafe client settings")

// Options returns settings for redis.NewClient with which every promise of this package holds.
// Change whatever is of no concern to them: credentials, TLS, the database, the pool's size. For
// Cluster, Sentinel and Ring, set the same fields, with [Dialer]. [ParseURL] takes a URL.
//
// The client's own defaults hold a caller for 2 s when the server is gone and for 5 s when it is
// frozen, whatever the context says, and count a hit twice when a reply is lost.
func Options(addr string) *redis.Options {
	o := &redis.Options{Addr: addr}
	secure(o)
	return o
}

// secure sets the options that Options promises.
func secure(o *redis.Options) {
	o.MaxRetries = -1 // A lost reply is not a lost request: a second try counts twice.
	o.ContextTimeoutEnabled = true
	o.DialerRetries = 1 // Five, 100 ms apart, is the default.
	o.DialerRetryTimeout = time.Millisecond
	o.DialTimeout = 500 * time.Millisecond
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = ioTimeout, ioTimeout, ioTimeout
	// Each of these is one round trip less for a new connection.
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.Dialer = Dialer(o)
}

// settings are those that matter, of whichever client.
type settings struct {
	retries, dials          int
	dial, read, write, pool time.Duration
	contexts                bool
}

// read finds the settings of a client: go-redis' own three, or one that embeds one of them.
func read(c redis.UniversalClient) (settings, bool) {
	switch c := c.(type) {
	case interface{ Options() *redis.Options }:
		o := c.Options()
		return settings{o.MaxRetries, o.DialerRetries, o.DialTimeout, o.ReadTimeout, o.WriteTimeout,
			o.PoolTimeout, o.ContextTimeoutEnabled}, true
	case interface{ Options() *redis.ClusterOptions }:
		o := c.Options()
		return settings{o.MaxRetries, o.DialerRetries, o.DialTimeout, o.ReadTimeout, o.WriteTimeout,
			o.PoolTimeout, o.ContextTimeoutEnabled}, true
	case interface{ Options() *redis.RingOptions }:
		o := c.Options()
		return settings{o.MaxRetries, o.DialerRetries, o.DialTimeout, o.ReadTimeout, o.WriteTimeout,
			o.PoolTimeout, o.ContextTimeoutEnabled}, true
	}
	return settings{}, false
}

// checkClient returns the faults of a client's settings, each with its consequence.
func checkClient(c redis.UniversalClient, timeout time.Duration) error {
	o, ok := read(c)
	if !ok {
		return fmt.Errorf("%w: %T does not show its Options", ErrUnsafeClient, c)
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !o.contexts {
		fault("ContextTimeoutEnabled is false: a frozen server holds callers beyond their deadline")
	}
	if o.retries > 0 {
		fault("MaxRetries is %d, not -1: a retry after a lost reply counts a hit twice", o.retries)
	}
	// A Ring leaves its zeros to the clients of its shards, which put the defaults in their place.
	if o.dials != 1 {
		fault("DialerRetries is %d, not 1: a dead server costs the whole timeout instead of nothing",
			o.dials)
	}
	if o.dial <= 0 || o.dial > maxDial {
		fault("DialTimeout is %v, not at most %v: dials to a dead server hold the pool after its return",
			o.dial, maxDial)
	}
	for name, d := range map[string]time.Duration{"ReadTimeout": o.read, "WriteTimeout": o.write,
		"PoolTimeout": o.pool} {
		if d > 0 && d < timeout {
			fault("%s is %v: Config.Timeout, %v, has no effect", name, d, timeout)
		}
	}
	if faults == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnsafeClient, errors.Join(faults...))
}
