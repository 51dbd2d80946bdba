package clientaddr

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestAKeyIsForgottenWhenItsBucketsAreOver(t *testing.T) {
	k := NewKeys(2)
	k.Lives(time.Minute)
	client := []byte("203.0.113.7")
	admit := func(key string, at time.Duration) bool {
		return k.Admit(client, []byte(key), noon.Add(at))
	}
	assert.True(t, admit("a", 0))
	assert.True(t, admit("b", 0))
	assert.False(t, admit("c", 0))
	assert.False(t, admit("c", 59*time.Second))
	assert.True(t, admit("a", 61*time.Second), "moves to the second generation")
	assert.False(t, admit("c", 62*time.Second), "b may have a bucket still")
	assert.True(t, admit("c", 122*time.Second), "b has none")
	assert.False(t, admit("b", 122*time.Second))
	assert.True(t, admit("b", time.Hour))
	k.Lives(time.Second)
	assert.Equal(t, time.Minute, k.Life(), "a life only grows")
}

// Never more than the bound in use by one client within a life, whatever it does; and the memory is
// bounded.
func TestKeysNeverExceedTheBound(t *testing.T) {
	const most, life = 10, 100
	k := NewKeys(most)
	k.Lives(life)
	used := make(map[int]int) // when each key was last admitted
	for now := range 5000 {
		key := (now * 7919) % 97
		if k.Admit([]byte("c"), []byte{byte(key)}, noon.Add(time.Duration(now))) {
			used[key] = now
		}
		live := 0
		for _, last := range used {
			if now-last < life {
				live++
			}
		}
		require.LessOrEqual(t, live, most, now)
	}
	full := NewKeys(1)
	full.maxShard = 100
	full.Lives(time.Hour)
	for i := range 3 * keyShards * full.maxShard {
		full.Admit(fmt.Append(nil, i), []byte("k"), noon)
	}
	for i := range full.shards {
		assert.Len(t, full.shards[i].cur.keys, full.maxShard)
	}
}
