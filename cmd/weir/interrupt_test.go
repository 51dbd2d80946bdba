//go:build unix

package main

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
)

// endless is a log without an end, whose reader is interrupted after so many lines.
type endless struct {
	t     *testing.T
	after int
}

func (e *endless) Read(to []byte) (int, error) {
	const line = `192.0.2.1 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	if e.after -= len(to) / len(line); e.after < 0 {
		assert.NoError(e.t, syscall.Kill(os.Getpid(), syscall.SIGINT))
		e.after = 1 << 40
	}
	return copy(to, strings.Repeat(line, max(1, len(to)/len(line)))), nil
}

// What was read before Ctrl-C is reported.
func TestAnInterruptedReplayReports(t *testing.T) {
	var out, errs bytes.Buffer
	code := run([]string{"replay", "--limit", "5/1m", "--force", "-"}, &endless{t, 50_000}, &out, &errs)
	require.Equal(t, cli.ExitInterrupted, code, errs.String())
	assert.Contains(t, errs.String(), "weir: interrupted\n")
	assert.NotContains(t, errs.String(), "Try")
	assert.Contains(t, out.String(), " requests by 1 caller\n")
	text := strings.Join(strings.Fields(out.String()), " ")
	assert.Contains(t, text, "could not be read to its end, and only the requests before that count: "+
		"interrupted")
}
