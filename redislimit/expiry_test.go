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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// childEnv holds what a child process does, and the server's address.
const childEnv = "REDISLIMIT_TEST_CHILD"

// children are what child processes do until they are killed, after they have said "ready".
var children = map[string]func(addr string){"hammer": hammer, "hold": holdUntilKilled}

const (
	mortalPeriod = time.Hour // longer than the test takes on the slowest machine
	mortalGrace  = 2 * time.Second
)

// TestMain runs the clients of TestEveryKeyExpires and of
// TestPlacesOfAKilledProcessComeBackAfterOneLease in child processes.
func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // go-redis logs each failed connection
	if what, addr, ok := strings.Cut(os.Getenv(childEnv), " "); ok {
		children[what](addr)
	}
	os.Exit(m.Run())
}

// startChild starts a child process, and waits until it is ready.
func startChild(what, addr string) (*exec.Cmd, error) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+what+" "+addr)
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && line != "ready\n" {
		err = fmt.Errorf("the process says %q", line)
	}
	return child, err
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// hammer makes decisions and charges on new and existing keys until the process is killed.
func hammer(addr string) {
	store, err := redislimit.New(redis.NewClient(redislimit.Options(addr)),
		redislimit.Config{Grace: mortalGrace, Timeout: generous})
	if err != nil {
		panic(err)
	}
	all := everyStrategy(&testing.T{}, store, &weir.Request{Limit: 10, Duration: mortalPeriod})
	var ready sync.Once
	for range 4 {
		go func() {
			for i := rand.IntN(1 << 30); ; i++ {
				for _, s := range all {
					r := &weir.Request{Key: strconv.Itoa(i % 100_000), Limit: 10, Duration: mortalPeriod}
					_, _ = s.Run(context.Background(), r)
					ready.Do(func() { fmt.Println("ready") }) // there is a key
					_ = ops.Charge(context.Background(), s, r)
				}
			}
		}()
	}
	select {}
}

// kill starts a process that runs hammer, and kills it within 10 ms.
func kill(addr string) error {
	child, err := startChild("hammer", addr)
	if child == nil {
		return err
	}
	time.Sleep(rand.N(10 * time.Millisecond)) // it is killed at any point of its work
	err = errors.Join(err, child.Process.Kill())
	_ = child.Wait()
	return err
}

// Every key has a time to live, even if its writer is killed.
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
	// The sliding window and the tier of twice the duration keep keys for one more period.
	assert.LessOrEqual(t, longest, 2*mortalPeriod+mortalGrace)
}

// lives checks that every key has a time to live, and returns the number of keys and the longest
// time to live.
func lives(t *testing.T, server *redistest.Server) (keys int, longest time.Duration) {
	t.Helper()
	ctx, c := context.Background(), server.Client()
	for it := c.Scan(ctx, 0, "*", 1000).Iterator(); it.Next(ctx); keys++ {
		ttl := pttl(t, c, it.Val())
		if ttl == -1 {
			assert.Fail(t, "key without a time to live", it.Val())
		}
		longest = max(longest, ttl)
	}
	return keys, longest
}

// The next call on a key without a time to live sets it again, whatever the call is and decides.
func TestLostExpiryIsRestored(t *testing.T) {
	server := redistest.Start(t)
	ctx := context.Background()
	for name, s := range everyStrategy(t, open(t, server.Addr, redislimit.Config{Grace: mortalGrace}),
		&weir.Request{Limit: 100, Duration: mortalPeriod}) {
		t.Run(name, func(t *testing.T) {
			r := &weir.Request{Key: name, Limit: 100, Duration: mortalPeriod}
			tooMuch := &weir.Request{Key: name, Limit: 100, Duration: mortalPeriod, Cost: 99}
			taken := mustRun(t, s, r)
			require.NoError(t, ops.Charge(ctx, s, &weir.Request{Key: name, Limit: 100, Duration: mortalPeriod,
				Cost: 90}))
			keys := server.Do("keys", "*{"+name+"}").([]any)
			require.Len(t, keys, 1)
			for what, call := range map[string]func() error{
				"an admission": func() error { _, err := s.Run(ctx, r); return err },
				"a denial": func() error {
					res, err := s.Run(ctx, tooMuch)
					assert.False(t, res != nil && res.Allowed())
					return err
				},
				"a charge": func() error { return ops.Charge(ctx, s, r) },
				"a refund": func() error { return ops.Refund(ctx, s, r, taken) },
				"a seed":   func() error { return ops.Seed(ctx, s, r, taken) },
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
