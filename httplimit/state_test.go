package httplimit

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

// A request gets its own client's key, even if the previous request had another.
func TestFillNeverReusesAnotherKey(t *testing.T) {
	s := state{policy: &policy{prefix: appendPart(nil, "p")}, ask: new(limits.Attempt)}
	want := string(s.prefix) + sharedPart + string(appendPart(nil, "203.0.113.7"))
	for range 2 {
		s.setKey([]byte("k"))
		assert.Equal(t, weir.JoinKey("p", "k"), s.ask.Op.Request.Key)
		s.setSharedKey([]byte("203.0.113.7"))
		assert.Equal(t, want, s.ask.Op.Request.Key)
		s.setKey([]byte("7"))
		assert.Equal(t, weir.JoinKey("p", "7"), s.ask.Op.Request.Key, "it ends as the shared key does")
		s.setKey([]byte("17"))
		assert.Equal(t, weir.JoinKey("p", "17"), s.ask.Op.Request.Key)
	}
}
