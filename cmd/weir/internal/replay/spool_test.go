package replay

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWholeSecondsAreSpreadAlikeByPath checks that a comparison, which numbers callers and paths,
// spreads a caller's requests of a second as other replays do.
func TestWholeSecondsAreSpreadAlikeByPath(t *testing.T) {
	file := write(t, "a.log", traffic(9, 1500), request.common)
	cfg := config(t, []string{file}, "2/1500ms:log", "2/700ms:token")
	plain := ran(t, cfg)
	cfg.Compare = true
	got := ran(t, cfg)
	require.NotZero(t, got.Rules[0].Denied)
	require.Equal(t, plain.Rules, got.Rules)
}
