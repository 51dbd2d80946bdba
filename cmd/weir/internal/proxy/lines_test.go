package proxy

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLinesAreGatheredForAWhile(t *testing.T) {
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
			assert.Equal(t, i+1, passed("one\ntwo\n"), "and nobody had to ask")
		}
		fmt.Fprintln(l, "last")
		assert.NoError(t, l.Flush())
		assert.Equal(t, 1, passed("last\n"))
		time.Sleep(time.Hour)
		assert.Equal(t, 7, passed("\n"))
	})
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
