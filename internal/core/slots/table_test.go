package slots

import (
	"math"
	"math/rand/v2"
	"testing"

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
