package screen_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"plain /päth": "plain /päth", "\x1b[2J": `\x1b[2J`, "a\x00\x7f\u0085": `a\x00\x7f\u0085`,
		"\xff\xc3":     `\xff\xc3`,
		"\u202e\u200b": `\u202e\u200b`, "tab\tnew\n": `tab\x09new\x0a`, "\ufffd": "\ufffd",
	} {
		assert.Equal(t, want, screen.Printable(s))
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("\x1b[2J\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := screen.Printable(s)
		for _, r := range got {
			if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
				t.Fatalf("%q became %q", s, got)
			}
		}
		if screen.Printable(got) != got {
			t.Fatalf("%q is not stable", got)
		}
	})
}

func TestLines(t *testing.T) {
	assert.Equal(t, "a\\x09b\nc\n", screen.Lines("a\tb\nc\n"))
}
