package verify

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

// checker is the method that these tests call.
type checker interface {
	CheckRate(id string, scaleMs, limit int64) (weir.Result, error)
}

func newLimiter(t testing.TB, cfg weir.Config) *weir.Limiter {
	t.Helper()
	l, err := weir.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// still is the SweepEvery of tests that advance the clock without a lock, as the janitor would read
// it concurrently.
const still = 24 * time.Hour

const msec = int64(time.Millisecond)

func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// yield lets other goroutines run, also on machines with few cores.
func yield() {
	for range 8 {
		runtime.Gosched()
	}
}

// floor returns a/b rounded down, for b > 0.
func floor(a, b int64) int64 { return (a - (a%b+b)%b) / b }
