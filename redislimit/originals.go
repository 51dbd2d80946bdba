package redislimit

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir"
)

// The three below are drop-in replacements for the strategies of a Go limiter over Redis, "Rate
// limiting HTTP requests in Go using Redis" (2021), and for the list of the Redis documentation's
// INCR page. They count as the originals do, and: concurrent calls never admit more than the limit,
// every key has a time to live, and a denied hit leaves nothing behind. Their keys are their own: a
// process that still runs an original does not share its counts.
//
// Deliberately different from the originals are:
//   - the counter's period starts with the first hit and ends a Duration later; the original sets
//     EXPIRE again with the second hit, so that its period starts there;
//   - a hit counts in the sorted set for exactly one Duration, its first instant included and its
//     last not; the original removes by whole milliseconds, so that the edge depends on rounding;
//   - the ExpiresAt of a denial is the instant at which the request would pass; the original gives
//     the end of the period from now on;
//   - a limit of 0 denies everything; the original admits the first hit.
//
// They take any client, so they cannot refuse one; its commands are still never retried, and each
// decision has half a second, which a *redis.Client keeps to whatever its settings are. For the
// deadlines of the rest of the package, take Options, New and the constructors of Store. now is the
// clock that periods are reckoned by; nil is the server's.

// originalTimeout is longer than DefaultTimeout: the originals had none, and nothing is there to
// decide in their place.
const originalTimeout = 500 * time.Millisecond

// NewCounterStrategy returns a Strategy that counts in a period of the request's Duration that
// starts with the first hit. Within one minute and with a limit of 100, the 101st call is a Deny
// with TotalRequests 100. See Store.Counter. [NewSortedSetCounterStrategy] and [NewListStrategy]
// are the other two originals.
func NewCounterStrategy(c redis.UniversalClient, now func() time.Time) weir.Strategy {
	return original(c, now).Counter()
}

// NewSortedSetCounterStrategy returns a Strategy that keeps one member of a sorted set for each
// admitted request of the last Duration: a rolling window. Store.SlidingLog decides alike in less
// time.
func NewSortedSetCounterStrategy(c redis.UniversalClient, now func() time.Time) weir.Strategy {
	return original(c, now).sortedSet()
}

// NewListStrategy returns a Strategy that keeps the admitted requests of a period with their Meta,
// and lists them with Entries. See Store.List.
func NewListStrategy(c redis.UniversalClient, now func() time.Time) *Log {
	return original(c, now).List()
}

// original is a Store with the keys' lives of the originals: as long as the period, no longer.
func original(c redis.UniversalClient, now func() time.Time) *Store {
	return originalWithin(c, now, originalTimeout)
}

func originalWithin(c redis.UniversalClient, now func() time.Time, timeout time.Duration) *Store {
	if single, ok := c.(*redis.Client); ok && !single.Options().ContextTimeoutEnabled {
		c = single.WithTimeout(timeout)
	}
	return newStore(c, Config{Now: now, Grace: -1, Timeout: timeout})
}
