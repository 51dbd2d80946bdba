package proxy

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRecentCallers(t *testing.T) {
	r, now := newRecent(), time.Unix(1_800_000_000, 0)
	addr := func(i int) netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	}
	half := func(_ string, addr netip.Addr) bool { return addr.As4()[3]%2 == 0 }
	counts := func() string {
		stopped, all := r.count(now, half)
		return fmt.Sprint(stopped, " of ", all)
	}
	assert.Equal(t, "0 of 0", counts())
	for range 3 {
		for i := range 100 {
			r.see(fmt.Sprint(i), addr(i), now)
			now = now.Add(100 * time.Millisecond)
		}
	}
	assert.Equal(t, "50 of 100", counts(), "a caller is one however often it comes")
	now = now.Add(30 * time.Second)
	assert.Equal(t, "50 of 100", counts(), "the callers of the last minute")
	r.see("0", addr(1), now)
	assert.Equal(t, "49 of 100", counts(), "the last address counts")
	now = now.Add(time.Minute)
	assert.Equal(t, "0 of 1", counts(), "the others were here more than a minute ago")
	now = now.Add(time.Hour)
	assert.Equal(t, "0 of 0", counts())

	// Many callers are sampled, whatever share of the requests they send, and few afterwards are not.
	for i := range 200_000 {
		r.see(fmt.Sprint(i), addr(i), now)
		r.see("1", addr(1), now)
	}
	stopped, all := r.count(now, half)
	assert.InEpsilon(t, 200_000, all, 0.15)
	assert.InEpsilon(t, 100_000, stopped, 0.15)
	for _, s := range r.spans {
		assert.LessOrEqual(t, len(s.addrs), maxSampled)
	}
	now = now.Add(2 * time.Minute)
	r.see("a", addr(2), now)
	assert.Equal(t, "1 of 1", counts())
}
