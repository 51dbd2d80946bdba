package fallback_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
)

func TestReset(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{Failures: 1}, whole)
	i, r := f.instances[0], hundred
	most(t, i, r)
	assert.NoError(t, i.Reset(t.Context(), &r))
	assert.EqualValues(t, 100, most(t, i, r))
	f.server.fails(errDown)
	ask(t, i, r)
	assert.NoError(t, i.Reset(t.Context(), &r))
	for range 10 {
		ask(t, i, r)
	}
	f.server.fails(nil)
	f.clock.Advance(2 * time.Second)
	assert.EqualValues(t, 90, most(t, i, r), "primary was told to forget, and what was admitted since")
}

// Where the ledger has no room primary is told all the same, if it is there.
func TestResetWithoutRoom(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{Failures: 1, MaxCallers: 1}, whole)
	i, r := f.instances[0], hundred
	f.server.fails(errDown)
	for n := range 1000 { // a page each
		ask(t, i, weir.Request{Key: fmt.Sprint(n), Limit: 1, Duration: time.Hour})
	}
	assert.ErrorIs(t, i.Reset(t.Context(), &r), weir.ErrFull)
	f.server.fails(nil)
	f.clock.Advance(2 * time.Second)
	most(t, i, r)
	assert.NoError(t, i.Reset(t.Context(), &r))
	assert.EqualValues(t, 100, most(t, i, r))
}

// What is being told to primary when a caller is reset is forgotten with the rest, whether primary heard it or not.
func TestResetWhileDebtsArePaid(t *testing.T) {
	for name, lost := range map[string]bool{"heard": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := weir.New(weir.Config{})
				require.NoError(t, err)
				defer l.Close()
				p := &slowCharge{server: newServer(func() weir.Strategy { return l.FixedWindow() }), owes: "a"}
				f := newFallback(t, p, local(t), fallback.Config{})
				r := hundred
				p.fails(errDown)
				for range 30 {
					ask(t, f, r)
				}
				p.fails(nil)
				time.Sleep(2 * time.Second)
				ask(t, f, weir.Request{Key: "b", Limit: 100, Duration: time.Minute}) // closes the breaker
				require.Equal(t, fallback.Closed, f.Stats().State)
				if lost {
					p.fails(errDown)
				}
				done := make(chan struct{})
				go func() { defer close(done); ask(t, f, r) }() // pays
				time.Sleep(500 * time.Microsecond)
				require.NoError(t, f.Reset(t.Context(), &r))
				<-done
				p.fails(nil)
				res, by := ask(t, f, r)
				assert.Equal(t, fallback.FromPrimary, by)
				assert.LessOrEqual(t, res.TotalRequests, uint64(2), "this one and the one that paid")
			})
		})
	}
}

// An answer that was given before a Reset and arrives after it is not learnt; that another caller was reset is no matter.
func TestResetWhileAnAnswerIsUnderWay(t *testing.T) {
	for name, reset := range map[string]func(i *fallback.Fallback) error{
		"this caller": func(i *fallback.Fallback) error { r := hundred; return i.Reset(t.Context(), &r) },
		"others": func(i *fallback.Fallback) error {
			for n := range 500 { // on each page some
				if err := i.Reset(t.Context(), &weir.Request{Key: fmt.Sprint(n), Limit: 1, Duration: time.Minute}); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		f := newFleet(t, 1, fixedWindow, fallback.Config{Failures: 1}, whole)
		i := f.instances[0]
		for range 79 {
			ask(t, i, hundred)
		}
		f.server.then = func() {
			f.server.then = nil
			require.NoError(t, reset(i))
		}
		ask(t, i, hundred)
		f.server.fails(errDown)
		assert.EqualValues(t, map[string]int{"this caller": 100, "others": 20}[name], most(t, i, hundred), name)
	}
}

// Nor is a block of before given out after.
func TestResetWhileABlockIsUnderWay(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{Lease: 50}, whole)
	i := f.instances[0]
	f.server.then = func() {
		f.server.then = nil
		r := hundred
		require.NoError(t, i.Reset(t.Context(), &r))
	}
	res, by := ask(t, i, hundred)
	assert.True(t, res.Allowed() && by == fallback.FromPrimary)
	assert.EqualValues(t, 100, most(t, i, hundred), "since the Reset")
}

// And a denial of before is no answer to who comes after, though he waited for it.
func TestResetWhileADenialIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer l.Close()
		p := newServer(func() weir.Strategy { return l.FixedWindow() })
		f := newFallback(t, p, local(t), fallback.Config{Lease: 50})
		r := weir.Request{Key: "a", Limit: 1, Duration: time.Hour}
		ask(t, f, r)
		p.then = func() { p.then = nil; time.Sleep(10 * time.Millisecond) }
		done := make(chan struct{})
		go func() {
			defer close(done)
			res, _ := ask(t, f, r)
			assert.False(t, res.Allowed())
		}()
		time.Sleep(5 * time.Millisecond)
		require.NoError(t, f.Reset(t.Context(), &r))
		res, _ := ask(t, f, r)
		assert.True(t, res.Allowed())
		<-done
	})
}
