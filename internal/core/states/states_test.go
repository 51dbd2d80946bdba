package states

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/clock"
	"github.com/weirgo/weir/internal/core/room"
)

// newTable returns a table of logs on a clock that is set by hand, with its room.
func newTable(now *int64, buckets int64) (*Table[*algorithm.Log], *room.Room) {
	c := clock.New(func() time.Time { return time.Unix(0, *now) })
	t, r := new(Table[*algorithm.Log]), room.New(buckets, func() {})
	full := func(now int64) bool {
		budget := 1000
		return t.Reclaim(now, &budget) > 0
	}
	t.Init(&Limits{Clock: &c, Room: r, Full: full, FullBytes: full},
		func(Key) *algorithm.Log { return new(algorithm.Log) })
	return t, r
}

// hit counts a hit of a caller.
func hit(t *Table[*algorithm.Log], k Key) error {
	h, err := t.Lock(k, true, algorithm.End)
	if err != nil {
		return err
	}
	if !h.Reserve("") {
		h.MakeRoom()
		return room.ErrFull
	}
	h.State.Add(h.Now, 1, "")
	h.Unlock(Admitted)
	return nil
}

var someKey = Key{ID: "id", Scale: 10}

// A caller that finds an entry that is removed before it is locked searches again.
func TestRemovedEntryIsNotUsed(t *testing.T) {
	var now int64
	tab, r := newTable(&now, 10)
	require.NoError(t, hit(tab, someKey))
	old := tab.shard(someKey).find(someKey)
	require.NotNil(t, old)
	old.mu.Lock()
	got := make(chan *Entry[*algorithm.Log])
	go func() {
		h, err := tab.Lock(someKey, true, algorithm.End)
		assert.NoError(t, err)
		assert.Zero(t, h.State.Len())
		e := h.Entry
		h.Unlock(Seen)
		got <- e
	}()
	for !blockedIn("lock") { // it has found the entry
		runtime.Gosched()
	}
	tab.mark(old)
	old.mu.Unlock()
	e := <-got
	assert.NotSame(t, old, e)
	assert.Same(t, e, tab.shard(someKey).find(someKey))
	assert.EqualValues(t, 1, r.Used())
	h, err := tab.Lock(someKey, false, algorithm.End)
	require.NoError(t, err)
	h.Remove()
	assert.Zero(t, r.Used())
	assert.Zero(t, r.Bytes.Load())
}

// blockedIn reports whether a goroutine waits for a mutex in the given method of a Table.
func blockedIn(method string) bool {
	buf := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "[sync.Mutex.Lock") && strings.Contains(g, "states.(*Table[...])."+method) {
			return true
		}
	}
	return false
}

func TestEveryRemovalMarksTheEntry(t *testing.T) {
	for name, remove := range map[string]func(*Table[*algorithm.Log]){
		"Remove": func(tab *Table[*algorithm.Log]) {
			h, _ := tab.Lock(someKey, false, algorithm.End)
			h.Remove()
		},
		"Sweep":   func(tab *Table[*algorithm.Log]) { tab.Sweep(11e6, 1) },
		"Reclaim": func(tab *Table[*algorithm.Log]) { assert.NoError(t, hit(tab, Key{ID: "other"})) },
	} {
		t.Run(name, func(t *testing.T) {
			var now int64
			tab, _ := newTable(&now, 1)
			require.NoError(t, hit(tab, someKey))
			e := tab.shard(someKey).find(someKey)
			now = 11e6
			remove(tab)
			assert.True(t, e.removed())
			assert.Nil(t, tab.shard(someKey).find(someKey))
		})
	}
}

// A reclaim looks again while a state may have expired: Soonest is never after the first one's end.
func TestSoonestIsNotAfterTheFirstEnd(t *testing.T) {
	var now int64
	tab, _ := newTable(&now, 100)
	assert.Equal(t, algorithm.End, tab.Soonest())
	for i := range int64(50) { // in several shards
		require.NoError(t, hit(tab, Key{ID: fmt.Sprint(i), Scale: 1000 - i}))
		assert.LessOrEqual(t, tab.Soonest(), int64(time.Second)-i*int64(time.Millisecond))
	}
}

// lowerBound is implemented by expiry and by variants whose stores are in the wrong order.
type lowerBound interface {
	begin()
	note(end int64)
	finish(earliest int64)
	bound() int64
}

type rightOrder struct{ expiry }

func (e *rightOrder) bound() int64 { return e.earliest.Load() }

type noteWrong struct{ rightOrder }

func (e *noteWrong) note(end int64) {
	storeMin(&e.earliest, end)
	runtime.Gosched()
	storeMin(&e.noted, end)
}

type finishWrong struct{ rightOrder }

func (e *finishWrong) finish(earliest int64) {
	noted := e.noted.Load()
	runtime.Gosched()
	e.earliest.Store(min(earliest, noted))
}

// missed runs a sweep and a use of a state concurrently many times. It returns how often the bound
// was above the noted end.
func missed(e lowerBound, rounds int) (n int) {
	var turn, done atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 1; i <= rounds; i++ {
			for turn.Load() < int64(i) {
				runtime.Gosched()
			}
			e.note(5)
			done.Store(int64(i))
		}
	})
	for i := 1; i <= rounds; i++ {
		e.begin()
		turn.Store(int64(i))
		for range i % 8 {
			turn.Load()
		}
		if i%3 == 0 {
			runtime.Gosched()
		}
		e.finish(algorithm.End)
		for done.Load() < int64(i) {
			runtime.Gosched()
		}
		if e.bound() > 5 {
			n++
		}
	}
	wg.Wait()
	return n
}

func TestExpirySeesUsesDuringASweep(t *testing.T) {
	const rounds = 30_000
	assert.Zero(t, missed(new(rightOrder), rounds))
	rejected := func(make func() lowerBound) bool { // a busy machine may not interleave them at once
		for range 50 {
			if missed(make(), rounds) > 0 {
				return true
			}
		}
		return false
	}
	assert.True(t, rejected(func() lowerBound {
		return new(noteWrong)
	}), "control: earliest before noted")
	assert.True(t, rejected(func() lowerBound {
		return new(finishWrong)
	}), "control: noted before earliest")
}

// A reclaim leaves an entry that a call has made and not locked yet, for else that call would have
// to make it again, and another reclaim could remove it again. A sweep removes one that stays so.
func TestAnEntryUnderConstructionIsNotReclaimed(t *testing.T) {
	now := int64(time.Hour)
	tab, r := newTable(&now, 2) // of one shard
	require.NoError(t, hit(tab, Key{ID: "over", Scale: 1}))
	now += int64(time.Minute)
	made, err := tab.insert(tab.shard(someKey), someKey)
	require.NoError(t, err)
	budget := 1000
	assert.Equal(t, 1, tab.Reclaim(now, &budget), "the one that is over")
	assert.False(t, made.removed())
	assert.Same(t, made, tab.shard(someKey).find(someKey))
	assert.EqualValues(t, 1, r.Used())
	require.NoError(t, hit(tab, someKey))
	assert.Same(t, made, tab.shard(someKey).find(someKey))

	another := Key{ID: "another", Scale: 10}
	_, err = tab.insert(tab.shard(another), another)
	require.NoError(t, err)
	now += int64(time.Minute)
	assert.Equal(t, 2, tab.Sweep(now, 1))
	assert.Zero(t, r.Used())
}
