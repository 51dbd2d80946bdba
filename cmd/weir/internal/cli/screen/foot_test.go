package screen

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// fakeTerminal has what a terminal shows that obeys what a Foot writes.
type fakeTerminal struct {
	mu    sync.Mutex
	lines []string // the last has the cursor at its end
}

func (t *fakeTerminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == nil {
		t.lines = []string{""}
	}
	for rest := string(p); rest != ""; {
		last := &t.lines[len(t.lines)-1]
		if after, ok := strings.CutPrefix(rest, eraseLine); ok {
			*last, rest = "", after
			continue
		}
		if rest[0] == '\n' {
			t.lines = append(t.lines, "")
		} else {
			*last += rest[:1]
		}
		rest = rest[1:]
	}
	return len(p), nil
}

func TestAFootStaysBelow(t *testing.T) {
	var screen fakeTerminal
	f := NewFoot(&screen)
	out, errs := f.Above(&screen), f.Above(&screen)
	step := func(write func() error, want ...string) {
		t.Helper()
		require.NoError(t, write())
		assert.Equal(t, want, screen.lines)
	}
	put := func(w interface{ Write([]byte) (int, error) }, text string) func() error {
		return func() error {
			n, err := w.Write([]byte(text))
			assert.Equal(t, len(text), n)
			return err
		}
	}
	set := func(text string) func() error { return func() error { return f.Set(text) } }
	step(put(out, "a\n"), "a", "")
	step(set("1 request"), "a", "1 request")
	step(put(out, "b\nc\n"), "a", "b", "c", "1 request")
	step(put(errs, "an error\n"), "a", "b", "c", "an error", "1 request")
	step(set("3 requests"), "a", "b", "c", "an error", "3 requests")
	step(put(out, "d, of which"), "a", "b", "c", "an error", "d, of which")
	step(set("4 requests"), "a", "b", "c", "an error", "d, of which")
	step(put(out, " the end comes later\n"), "a", "b", "c", "an error", "d, of which the end comes later", "4 requests")
	step(set(""), "a", "b", "c", "an error", "d, of which the end comes later", "")
	step(put(out, "e\n"), "a", "b", "c", "an error", "d, of which the end comes later", "e", "")
}

func TestAFootIsSafeForConcurrentUse(t *testing.T) {
	var screen fakeTerminal
	f := NewFoot(&screen)
	var all errgroup.Group
	for g := range 4 {
		w := f.Above(&screen)
		all.Go(func() error {
			for i := range 200 {
				if _, err := fmt.Fprintf(w, "line %d of %d\n", i, g); err != nil {
					return err
				}
				if err := f.Set(fmt.Sprint("sum ", g, i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	require.Len(t, screen.lines, 801)
	for _, line := range screen.lines[:800] {
		assert.Regexp(t, `^line \d+ of \d$`, line)
	}
	assert.Regexp(t, `^sum \d+ \d+$`, screen.lines[800])
}

func TestAFootIsKeptUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen fakeTerminal
		f := NewFoot(&screen)
		ctx, stop := context.WithCancel(t.Context())
		n := 0
		ended := make(chan error)
		go func() {
			ended <- f.Keep(ctx, time.Second, func() string { n++; return fmt.Sprintf("%d requests\x1b", n) })
		}()
		time.Sleep(2500 * time.Millisecond) // in a bubble
		synctest.Wait()
		assert.Equal(t, []string{`2 requests\x1b`}, screen.lines)
		stop()
		require.NoError(t, <-ended)
		assert.Equal(t, []string{""}, screen.lines)
	})
}
