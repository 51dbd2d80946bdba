package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCheckCut(t *testing.T) {
	for _, row := range []struct {
		name      string
		had, has  int
		old, text string
		cut       bool
	}{
		{"nothing left", 23, 0, "", "# the li", true},
		{"the only one", 1, 0, "", "", true},
		{"less than half", 23, 11, "", "a\n", true},
		{"half", 22, 11, "", "a\n", false},
		{"more", 3, 4, "", "a\n", false},
		{"less than half, and whole", 23, 0, "", "# none\n# end\n", false},
		{"whole without a line's end", 23, 0, "", "# end", false},
		{"an end that is not the last line", 23, 0, "", "# end\n# none\n", true},
		{"an end within a line", 23, 0, "", "the # end\n", true},
		{"not whole any more, one less", 23, 22, "a\n# end\n", "b\n", true},
		{"not whole any more, and as many", 23, 23, "a\n# end\n", "b\n", true},
		{"a line after the end", 23, 24, "a\n# end\n", "a\n# end\nb\n", false},
		{"the old one up to the middle of a line", 23, 23, "a\n10.0.0.0/16\n", "a\n10.0.0.0/1", true},
		{"the old one without its last line", 23, 22, "a\nb\n", "a\n", false},
		{"the same", 23, 23, "a", "a", false},
	} {
		err := CheckCut("f", "entries", row.had, row.has, row.old, row.text)
		if row.cut {
			assert.ErrorIs(t, err, ErrCut, row.name)
		} else {
			assert.NoError(t, err, row.name)
		}
	}
	assert.EqualError(t, CheckCut("f", "entries", 23, 2, "", ""),
		`f has 2 entries, and 23 before: the file may have been cut; if it is whole, end it with the line "# end"`)
}
