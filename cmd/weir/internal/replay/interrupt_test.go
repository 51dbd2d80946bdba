package replay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStopEndsTheReading(t *testing.T) {
	const line = `192.0.2.1 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	all := 100 * maxBlock / len(line)
	long, next := writeText(t, "long.log", strings.Repeat(line, all)), writeText(t, "next.log", line)
	stop := make(chan struct{})
	cfg := config(t, []string{next, long, next}, "5/1m")
	cfg.Force, cfg.Stop = true, stop
	cfg.Progress = func(p Progress) {
		if p.Lines > 1 && stop != nil {
			close(stop)
			stop = nil
		}
	}
	result := ran(t, cfg)
	assert.Greater(t, result.Requests, uint64(1))
	assert.Less(t, result.Requests, uint64(all))
	assert.Equal(t, result.Requests, result.Rules[0].Matched, "all that was read is decided on")
	require.Len(t, result.Failed, 2)
	assert.Equal(t, Failure{long, ErrInterrupted, true}, result.Failed[0])
	assert.Equal(t, Failure{next, ErrInterrupted, false}, result.Failed[1])

	closed := make(chan struct{})
	close(closed)
	cfg.Stop, cfg.Progress = closed, nil
	_, err := Run(cfg)
	assert.ErrorIs(t, err, ErrInterrupted, "nothing was read")
}
