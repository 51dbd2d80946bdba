package redislimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// childEnv is the address of the server for the process that is to be killed.
const childEnv = "REDISLIMIT_TEST_CHILD"

const (
	mortalPeriod = 10 * time.Minute // longer than the slowest machine takes for the test
	mortalGrace  = 2 * time.Second
)

// TestMain turns the test binary into the client process of TestEveryKeyExpires.
func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // It tells of each failed connection, and these tests are about nothing else.
	if addr := os.Getenv(childEnv); addr != "" {
		hammer(addr)
	}
	os.Exit(m.Run())
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// hammer decides and charges on new keys and old, until it is killed.
func hammer(addr string) {
	store, err := redislimit.New(redis.NewClient(redislimit.Options(addr)), redislimit.Config{Grace: mortalGrace, Timeout: generous})
	if err != nil {
		panic(err)
	}
	all := everyone(&testing.T{}, store, &weir.Request{Limit: 10, Duration: mortalPeriod})
	for range 4 {
		go func() {
			for i := rand.IntN(1 << 30); ; i++ {
				for _, s := range all {
					r := &weir.Request{Key: strconv.Itoa(i % 100_000), Limit: 10, Duration: mortalPeriod}
					_, _ = s.Run(context.Background(), r)
					_ = s.Charge(context.Background(), r)
				}
			}
		}()
	}
	fmt.Println("ready")
	select {}
}

// kill starts a process that hammers, and kills it at some moment of the next 10 ms.
func kill(addr string) error {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+addr)
	out, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && line != "ready\n" {
		err = fmt.Errorf("the process says %q", line)
	}
	time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Millisecond))))
	err = errors.Join(err, child.Process.Kill())
	_ = child.Wait()
	return err
}

// No key lives for ever, wherever its writer died.
func TestEveryKeyExpires(t *testing.T) {
	slow.Test(t)
	server := redistest.Start(t)
	const workers, deaths = 4, 80
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range deaths / workers {
				if err := kill(server.Addr); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	all.Wait()
	keys, longest := lives(t, server)
	t.Logf("%d clients killed, %d keys, longest life %v", deaths, keys, longest)
	assert.Greater(t, keys, 40)
	// Two of the kinds look back on one more period: the sliding window, and a tier of twice the
	// length.
	assert.LessOrEqual(t, longest, 2*mortalPeriod+mortalGrace)
}

// lives checks that every key has a time to live, and returns how many there are and the longest.
func lives(t *testing.T, server *redistest.Server) (keys int, longest time.Duration) {
	t.Helper()
	ctx, c := context.Background(), server.Client()
	for it := c.Scan(ctx, 0, "*", 1000).Iterator(); it.Next(ctx); keys++ {
		ttl, err := c.PTTL(ctx, it.Val()).Result()
		require.NoError(t, err)
		if ttl == -1 {
			assert.Fail(t, "a key that lives for ever", it.Val())
		}
		longest = max(longest, ttl)
	}
	return keys, longest
}

// A key that has lost its time to live gets one with the next call, whatever that call is and
// decides.
func TestLostExpiryIsRestored(t *testing.T) {
	server := redistest.Start(t)
	ctx := context.Background()
	for name, s := range everyone(t, open(t, server.Addr, redislimit.Config{Grace: mortalGrace}), &weir.Request{Limit: 100, Duration: mortalPeriod}) {
		t.Run(name, func(t *testing.T) {
			r := &weir.Request{Key: name, Limit: 100, Duration: mortalPeriod}
			tooMuch := &weir.Request{Key: name, Limit: 100, Duration: mortalPeriod, Cost: 99}
			taken, err := s.Run(ctx, r)
			require.NoError(t, err)
			require.NoError(t, s.Charge(ctx, &weir.Request{Key: name, Limit: 100, Duration: mortalPeriod, Cost: 90}))
			keys := server.Do("keys", "*{"+name+"}").([]any)
			require.Len(t, keys, 1)
			for what, call := range map[string]func() error{
				"an admission": func() error { _, err := s.Run(ctx, r); return err },
				"a denial": func() error {
					res, err := s.Run(ctx, tooMuch)
					assert.False(t, res != nil && res.Allowed())
					return err
				},
				"a charge": func() error { return s.Charge(ctx, r) },
				"a refund": func() error { return s.Refund(ctx, r, taken) },
				"a seed":   func() error { return s.Seed(ctx, r, taken) },
			} {
				require.Equal(t, int64(1), server.Do("persist", keys[0]), what)
				require.NoError(t, call(), what)
				ttl := time.Duration(server.Do("pttl", keys[0]).(int64)) * time.Millisecond
				assert.Greater(t, ttl, time.Duration(0), what)
				assert.LessOrEqual(t, ttl, 2*mortalPeriod+mortalGrace, what)
			}
		})
	}
}
