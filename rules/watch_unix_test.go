//go:build unix

package rules_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/rules"
)

// TestWatchOfSlowReads watches a named pipe, from which each read takes 300 ms. As on a busy
// machine that is not the watcher's own work, so it does not look less often for it: the second
// look is after 800 ms.
func TestWatchOfSlowReads(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, syscall.Mkfifo(name, 0o600))
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var writer sync.WaitGroup
	writer.Go(func() {
		for ctx.Err() == nil {
			f, err := os.OpenFile(name, os.O_WRONLY, 0) // waits for a reader
			if !assert.NoError(t, err) {
				return
			}
			time.Sleep(300 * time.Millisecond) // longer than a look
			_, _ = f.WriteString(generation(0))
			assert.NoError(t, f.Close())
			time.Sleep(50 * time.Millisecond) // the reader ends
		}
	})
	found := false
	rules.Watch(ctx, []string{name}, func(_ *rules.Set, err error) {
		found = err == nil
		stop()
	})
	assert.True(t, found)
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // the writer may wait for one
	require.NoError(t, err)
	writer.Wait()
	assert.NoError(t, f.Close())
}
