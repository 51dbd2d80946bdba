package accesslog

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlainIPv4IsItsOwnKey(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	plain := 0
	for range 20_000 {
		text := fmt.Sprintf("%d.%d.%d.%d", rnd.IntN(300), rnd.IntN(300), rnd.IntN(300), rnd.IntN(300))
		b := []byte(text)
		if rnd.IntN(2) == 0 {
			b[rnd.IntN(len(b))] = "0123456789. :x"[rnd.IntN(14)]
		}
		addr, err := netip.ParseAddr(string(b))
		require.Equal(t, err == nil && addr.Is4(), plainIPv4(b), "%s", b)
		if err == nil {
			require.Equal(t, addr.String(), string(b))
			plain++
		}
	}
	require.NotZero(t, plain)
}
