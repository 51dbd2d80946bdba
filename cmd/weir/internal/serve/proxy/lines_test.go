package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLinesAreBuffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := NewLines(&b)
		passed := func(text string) int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return strings.Count(b.String(), text)
		}
		for i := range 3 {
			fmt.Fprintln(l, "one")
			fmt.Fprintln(l, "two")
			time.Sleep(flushEvery - time.Nanosecond)
			synctest.Wait()
			assert.Equal(t, i, passed("one\ntwo\n"), "not yet")
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			assert.Equal(t, i+1, passed("one\ntwo\n"), "flushed without a call")
		}
		fmt.Fprintln(l, "last")
		assert.NoError(t, l.Flush())
		assert.Equal(t, 1, passed("last\n"))
		time.Sleep(time.Hour)
		assert.Equal(t, 7, passed("\n"))
	})
}

// full is a disk that is full for some time.
type full struct {
	bytes.Buffer
	err error
}

func (f *full) Write(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return f.Buffer.Write(p)
}

func TestLinesContinueAfterAFullDisk(t *testing.T) {
	disk := &full{err: errors.New("no space left on device")}
	l := NewLines(disk)
	fmt.Fprintln(l, "lost")
	assert.ErrorIs(t, l.Flush(), disk.err)
	_, err := l.Write(make([]byte, 1<<20))
	assert.ErrorIs(t, err, disk.err)
	disk.err = nil
	fmt.Fprintln(l, "kept")
	assert.NoError(t, l.Flush())
	assert.Equal(t, "kept\n", disk.String())
}

func TestLinesStayWhole(t *testing.T) {
	var b bytes.Buffer
	l := NewLines(&b)
	line := strings.Repeat("x", 999) + "\n"
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				_, err := l.Write([]byte(line))
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	assert.NoError(t, l.Flush())
	assert.Equal(t, strings.Repeat(line, 800), b.String())
}
