package redislimit_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// wrapped is a client that hides its options.
type wrapped struct{ redis.UniversalClient }

func TestNewRefusesUnsafeClients(t *testing.T) {
	safe := redislimit.Options("127.0.0.1:1")
	single := func(change func(o *redis.Options)) redis.UniversalClient {
		o := redislimit.Options("127.0.0.1:1")
		change(o)
		return redis.NewClient(o)
	}
	cluster := &redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, MaxRetries: -1,
		ContextTimeoutEnabled: true,
		DialerRetries:         1, DialTimeout: safe.DialTimeout}
	ring := &redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, MaxRetries: -1,
		ContextTimeoutEnabled: true, DialerRetries: 1, DialTimeout: safe.DialTimeout}
	for _, tt := range []struct {
		name   string
		client redis.UniversalClient
		faults []string // parts of the message
	}{
		{"the package's options", redis.NewClient(safe), nil},
		{"the library's defaults", redis.NewClient(&redis.Options{}),
			[]string{"ContextTimeoutEnabled", "MaxRetries is 3", "DialerRetries is 5", "DialTimeout is 5s"}},
		{"a cluster of safe settings", redis.NewClusterClient(cluster), nil},
		{"a cluster of defaults", redis.NewClusterClient(&redis.ClusterOptions{}),
			[]string{"ContextTimeoutEnabled", "DialerRetries is 5", "DialTimeout is 5s"}},
		{"a ring of safe settings", redis.NewRing(ring), nil},
		{"a ring of defaults", redis.NewRing(&redis.RingOptions{}),
			[]string{"ContextTimeoutEnabled", "MaxRetries is 3", "DialerRetries", "DialTimeout"}},
		{"contexts ignored", single(func(o *redis.Options) { o.ContextTimeoutEnabled = false }),
			[]string{"ContextTimeoutEnabled"}},
		{"retries", single(func(o *redis.Options) { o.MaxRetries = 1 }), []string{"MaxRetries is 1"}},
		{"dial retries", single(func(o *redis.Options) {
			o.DialerRetries = 2
		}), []string{"DialerRetries is 2"}},
		{"slow dials", single(func(o *redis.Options) { o.DialTimeout = 2 * time.Second }),
			[]string{"DialTimeout is 2s"}},
		{"short reads, with the default of Config.Timeout",
			single(func(o *redis.Options) { o.ReadTimeout = redislimit.DefaultTimeout - 1 }),
			[]string{"ReadTimeout is 49.999999ms: Config.Timeout, 50ms"}},
		{"options hidden", wrapped{redis.NewClient(safe)}, []string{"does not show"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer tt.client.Close()
			_, err := redislimit.New(tt.client, redislimit.Config{})
			if tt.faults == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, redislimit.ErrUnsafeClient)
			for _, f := range tt.faults {
				assert.ErrorContains(t, err, f)
			}
			_, err = redislimit.New(tt.client, redislimit.Config{AllowUnsafeClient: true})
			assert.NoError(t, err)
		})
	}
}

func TestNewRefusesBadConfig(t *testing.T) {
	c := dial(t, redislimit.Options("127.0.0.1:1"))
	for name, cfg := range map[string]redislimit.Config{
		"an opening brace in the prefix": {Prefix: "a{"},
		"a closing brace in the prefix":  {Prefix: "}a"},
		"a negative timeout":             {Timeout: -1},
	} {
		_, err := redislimit.New(c, cfg)
		assert.ErrorIs(t, err, redislimit.ErrConfig, name)
	}
	_, err := redislimit.New(nil, redislimit.Config{})
	assert.ErrorIs(t, err, redislimit.ErrConfig)
}

// Only Config.Timeout bounds a call, also if it exceeds its default.
func TestTimeoutAboveTheDefault(t *testing.T) {
	slow.Test(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	proxy.Latency(3 * redislimit.DefaultTimeout)
	_, err := open(t, proxy.Addr, redislimit.Config{Timeout: generous}).FixedWindow().Run(t.Context(),
		daily)
	assert.NoError(t, err)
}

// An expired context is classified as Caller, and an expired Timeout as Down.
func TestClassOfDeadlines(t *testing.T) {
	slow.Test(t)
	b := newBench(t)
	s := b.store.FixedWindow()
	mustRun(t, s, daily)
	b.server.Freeze()
	defer b.server.Thaw()

	_, err := s.Run(context.Background(), daily)
	assert.ErrorIs(t, err, redislimit.ErrTimeout)
	assert.NotErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, redislimit.Down, redislimit.Classify(err))

	var took []time.Duration
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		start := time.Now()
		_, err = s.Run(ctx, daily)
		took = append(took, time.Since(start))
		cancel()
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, redislimit.Caller, redislimit.Classify(err), "%v", err)
	}
	slices.Sort(took)
	// a single call may have waited for a processor
	assert.Less(t, took[len(took)/2], 40*time.Millisecond)

	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(5*time.Millisecond, cancel)
	_, err = s.Run(ctx, daily)
	assert.Contains(t, []redislimit.Class{redislimit.Caller, redislimit.Down},
		redislimit.Classify(err), "a read ends with the timeout, not with its context")
	_, err = s.Run(ctx, daily)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, redislimit.Caller, redislimit.Classify(err))
	assert.ErrorIs(t, ops.Reset(ctx, s, daily), context.Canceled)
}

func TestClassify(t *testing.T) {
	message := func(m string) error { return redis.Error(reply(m)) }
	for _, tt := range []struct {
		err  error
		want redislimit.Class
	}{
		{nil, redislimit.None},
		{errors.New("a network error"), redislimit.Down},
		{redis.ErrPoolTimeout, redislimit.Down},
		{message("LOADING Redis is loading the dataset in memory"), redislimit.Down},
		{message("MISCONF Redis is configured to save RDB snapshots"), redislimit.Down},
		{message("ERR max number of clients reached"), redislimit.Down},
		{message("CLUSTERDOWN The cluster is down"), redislimit.Down},
		{message("ERR Error running script (call to f_0): @user_script:12: " +
			"-OOM command not allowed when used memory > 'maxmemory'."), redislimit.Down},
		{message("NOAUTH Authentication required."), redislimit.Misconfigured},
		{message("WRONGPASS invalid username-password pair or user is disabled."),
			redislimit.Misconfigured},
		{message("NOPERM this user has no permissions to run the 'evalsha' command"),
			redislimit.Misconfigured},
		{redis.ErrClosed, redislimit.Misconfigured},
		{message("WRONGTYPE Operation against a key holding the wrong kind of value"), redislimit.Bug},
		{message("CROSSSLOT Keys in request don't hash to the same slot"), redislimit.Bug},
		{redislimit.ErrReply, redislimit.Bug},
		{context.Canceled, redislimit.Caller},
		{context.DeadlineExceeded, redislimit.Caller},
	} {
		assert.Equal(t, tt.want, redislimit.Classify(tt.err), "%v", tt.err)
	}
}

// reply is an error reply of a server.
type reply string

func (s reply) Error() string { return string(s) }
func (reply) RedisError()     {}

// A wrong password, a forbidden command and a key of another type are classified on a real server.
func TestClassifyRealRefusals(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	s := b.store.FixedWindow()
	b.server.Do("set", "weir:fixed:86400000:{a}", "a string", "PX", 60_000)
	_, err := s.Run(ctx, daily)
	assert.Equal(t, redislimit.Bug, redislimit.Classify(err), "%v", err)

	b.server.Do("acl", "setuser", "nobody", "on", ">secret", "+hello", "+client", "~*")
	for password, want := range map[string]redislimit.Class{"secret": redislimit.Misconfigured,
		"wrong": redislimit.Misconfigured} {
		o := redislimit.Options(b.server.Addr)
		o.Username, o.Password = "nobody", password
		s := storeOn(t, dial(t, o), redislimit.Config{Timeout: generous}).FixedWindow()
		_, err := s.Run(ctx, daily)
		assert.Equal(t, want, redislimit.Classify(err), "%s: %v", password, err)
	}
	c := dial(t, redislimit.Options(b.server.Addr))
	store := storeOn(t, c, redislimit.Config{})
	_ = c.Close()
	_, err = store.FixedWindow().Run(ctx, daily)
	assert.Equal(t, redislimit.Misconfigured, redislimit.Classify(err), "%v", err)
}
