package screen_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/screen"
)

// NO_COLOR takes the colors of a terminal, and nothing else; files and dumb terminals are none.
func TestOf(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/file")
	require.NoError(t, err)
	defer file.Close()
	t.Setenv("TERM", "xterm")
	for _, w := range []interface{ Write([]byte) (int, error) }{new(bytes.Buffer), file} {
		_, ok := screen.Of(w)
		assert.False(t, ok)
	}
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if os.IsNotExist(err) {
		return // on Windows, for instance
	}
	require.NoError(t, err)
	defer tty.Close()
	for _, c := range []struct {
		noColor, name string
		colors, ok    bool
	}{{"", "xterm", true, true}, {"1", "xterm", false, true}, {"", "dumb", false, false}} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.name)
		got, ok := screen.Of(tty)
		assert.Equal(t, c.ok, ok, c)
		assert.Equal(t, c.colors, got.Colors, c)
		assert.Equal(t, c.ok, got.Width > 0, c)
	}
}
