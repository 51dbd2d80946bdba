package replay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

func TestStopEndsTheReading(t *testing.T) {
	const line = `192.0.2.1 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	long, next := filepath.Join(t.TempDir(), "long.log"), filepath.Join(t.TempDir(), "next.log")
	all := 100 * maxBlock / len(line)
	require.NoError(t, os.WriteFile(long, []byte(strings.Repeat(line, all)), 0o600))
	require.NoError(t, os.WriteFile(next, []byte(line), 0o600))
	r, err := rule.Parse("5/1m", rule.Defaults{Strategy: rule.Default})
	require.NoError(t, err)
	stop := make(chan struct{})
	cfg := Config{Files: []string{next, long, next}, Rules: []rule.Rule{r}, By: ByIP, MaxBuckets: 100,
		Force: true, Stop: stop}
	cfg.Progress = func(p Progress) {
		if p.Lines > 1 && stop != nil {
			close(stop)
			stop = nil
		}
	}
	result, err := Run(cfg)
	require.NoError(t, err)
	assert.Greater(t, result.Requests, uint64(1))
	assert.Less(t, result.Requests, uint64(all))
	assert.Equal(t, result.Requests, result.Rules[0].Matched, "all that was read is decided on")
	require.Len(t, result.Failed, 2)
	assert.Equal(t, Failure{long, ErrInterrupted, true}, result.Failed[0])
	assert.Equal(t, Failure{next, ErrInterrupted, false}, result.Failed[1])

	closed := make(chan struct{})
	close(closed)
	cfg.Stop, cfg.Progress = closed, nil
	_, err = Run(cfg)
	assert.ErrorIs(t, err, ErrInterrupted, "nothing was read")
}
