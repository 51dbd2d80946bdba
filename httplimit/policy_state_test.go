package httplimit

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir"
)

// A request gets its own client's key, even if the previous request had another.
func TestFillNeverReusesAnotherKey(t *testing.T) {
	s := policyState{policy: &policy{prefix: appendPart(nil, "p")}}
	shared := appendPart([]byte(sharedPart), "203.0.113.7")
	want := string(s.prefix) + string(shared)
	for range 2 {
		s.fill(nil, []byte("k"), nil, 1)
		assert.Equal(t, weir.JoinKey("p", "k"), s.req.Key)
		s.fill(nil, []byte("k"), shared, 1)
		assert.Equal(t, want, s.req.Key)
		s.fill(nil, []byte("7"), nil, 1)
		assert.Equal(t, weir.JoinKey("p", "7"), s.req.Key, "it ends as the shared key does")
		s.fill(nil, []byte("17"), nil, 1)
		assert.Equal(t, weir.JoinKey("p", "17"), s.req.Key)
	}
}
