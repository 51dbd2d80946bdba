package screen_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
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
		assert.Equal(t, c.ok, got.Height > 0, c)
	}
}

func TestFit(t *testing.T) {
	to := screen.Terminal{Width: 5, Height: 4}
	for _, c := range []struct{ says, text, want string }{
		{"no line", "", ""},
		{"three lines and the cursor", "a\nb\nc\n", "a\nb\nc\n"},
		{"a fourth line", "a\nb\nc\nd\n", "a\nb\n… lines left out: 2\n"},
		{"a full line is one", "a\nb\n12345\n", "a\nb\n12345\n"},
		{"a longer line is two", "a\nb\n123456\n", "a\nb\n… lines left out: 1\n"},
		{"a longer line in front", "123456\nb\nc\n", "123456\n… lines left out: 2\n"},
		{"colors have no width", "a\nb\n\x1b[31m12345\x1b[0m\n", "a\nb\n\x1b[31m12345\x1b[0m\n"},
		{"characters, not bytes", "a\nb\n█░█░█\n", "a\nb\n█░█░█\n"},
	} {
		assert.Equal(t, c.want, to.Fit(c.text), c.says)
	}
	assert.Equal(t, "… lines left out: 2\n", screen.Terminal{Width: 5, Height: 2}.Fit("a\nb\n"), "only that one fits")
}
