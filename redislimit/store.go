package redislimit

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/weirgo/weir/internal/stores/guarded"
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

// Store makes the strategies that count in one Redis. It holds no counts, and is safe for
// concurrent use. Strategies of different kinds never share a count; those of one kind, prefix and
// server do, from whichever process.
type Store struct {
	deadlines guarded.Deadlines
	client    redis.UniversalClient
	prefix    string
	grace     any              // ms, ready to be an argument
	now       func() time.Time // nil: the server's clock
	clocks    clocks
	prompt    bool // no call outlasts the deadline of its context
	onCall    func(took time.Duration, err error)
}

// New returns a Store on c. It sends nothing to the server: it works, and the Store will, while the
// server is down. It fails with ErrUnsafeClient when the settings of c would break a promise,
// unless cfg.AllowUnsafeClient is set, and with ErrConfig. The client stays the caller's to close.
//
// Whatever the client's settings are, this package's commands are never sent twice by go-redis:
// they are marked as not to be retried.
func New(c redis.UniversalClient, cfg Config) (*Store, error) {
	switch {
	case c == nil:
		return nil, fmt.Errorf("%w: no client", ErrConfig)
	case strings.ContainsAny(cfg.Prefix, "{}"):
		return nil, fmt.Errorf("%w: braces in prefix %q", ErrConfig, cfg.Prefix)
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("%w: the timeout %v is negative", ErrConfig, cfg.Timeout)
	}
	err := checkClient(c, cmp.Or(cfg.Timeout, DefaultTimeout))
	if err != nil && !cfg.AllowUnsafeClient {
		return nil, err
	}
	s := newStore(c, cfg)
	s.prompt = err == nil
	return s, nil
}

func newStore(c redis.UniversalClient, cfg Config) *Store {
	grace := DefaultGrace
	if cfg.Now != nil {
		grace = DefaultClockGrace
	}
	s := &Store{client: c, prefix: cmp.Or(cfg.Prefix, DefaultPrefix), now: cfg.Now,
		onCall: cfg.OnCall, grace: max(0, cmp.Or(cfg.Grace, grace)).Milliseconds()}
	s.deadlines.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	s.clocks.start(time.Now)
	return s
}
