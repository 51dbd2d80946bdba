package slots

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/room"
)

func TestShardsOfATable(t *testing.T) {
	for _, c := range []struct {
		max    int64
		shards int
	}{
		{1, 1}, {shardSlots, 1}, {shardSlots + 1, 2}, {1 << 20, 64}, {5_000_000, 256},
		{math.MaxInt64, maxShards},
	} {
		tab := NewTable(&room.Room{Max: c.max}, nil, counts{}, false)
		require.Len(t, tab.Shards(), c.shards, "MaxBuckets %d", c.max)
		for _, hash := range []uint64{0, rand.Uint64(), math.MaxUint64} { // every hash has a shard
			require.Less(t, tab.ShardNumber(hash), c.shards)
		}
		require.Equal(t, c.shards-1, tab.ShardNumber(math.MaxUint64), "MaxBuckets %d", c.max)
		require.Zero(t, tab.ShardNumber(math.MaxUint32), "the low half is for the index")
	}
}

// newTable returns a table for so many buckets, which removes none when it is full.
func newTable(buckets int64) *Table {
	return NewTable(room.New(buckets, func() {}), func(int64) bool { return false }, counts{}, false)
}

func TestShardsFillEvenly(t *testing.T) {
	tab := newTable(1 << 20)
	const each = 100
	for i := range each * len(tab.shards) {
		p, at := PeriodOf(0, 1000, 0), NewReading(0)
		id := strconv.Itoa(i)
		c, err := tab.Lock(tab.Pack(id), id, &p, &at, true)
		require.NoError(t, err)
		c.Insert(Content{})
		c.Unlock()
	}
	for i := range tab.shards {
		assert.InDelta(t, each, tab.shards[i].buckets, 6*math.Sqrt(each))
	}
}

// A window must not begin at a reading of the clock from before the latest removal. A later reading
// is used, even if the clock has stepped back.
func TestInsertionNeedsAReadingSinceTheLatestRemoval(t *testing.T) {
	tab := newTable(100)
	p := PeriodOf(0, 10, 0)
	k := tab.Pack("id")
	sh := &tab.shards[tab.ShardNumber(k.Hash)]
	lock := func(at *Reading) error {
		c, err := tab.Lock(k, "id", &p, at, true)
		if err == nil {
			require.Nil(t, c.Slot)
			c.Insert(Content{})
			c.NoteEnd(0)
			c.Remove()
		}
		return err
	}
	horizon := &sh.Horizon
	at := NewReading(5)
	require.NoError(t, lock(&at), "nothing was removed")
	*horizon = 5
	require.NoError(t, lock(&at), "read at that instant")
	*horizon = 10
	require.ErrorIs(t, lock(&at), ErrEarlier)
	require.EqualValues(t, 10, at.Horizon)
	*horizon = 20
	at.Now = 12
	require.ErrorIs(t, lock(&at), ErrEarlier, "removed since the clock was read again")
	at.Now = 15
	require.NoError(t, lock(&at), "the clock went back")
	n, err := sh.Check()
	require.NoError(t, err)
	require.Zero(t, n, "no slot remains in use")
	_, err = tab.Lock(k, "id", &p, new(Reading), false)
	require.ErrorIs(t, err, ErrEarlier, "a lookup at a reading before the removal")
}
