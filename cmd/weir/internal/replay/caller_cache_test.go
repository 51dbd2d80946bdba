package replay

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/slow"
)

// TestShortTextsStayApart checks that different texts are different shortTexts, whatever follows
// them in the line.
func TestShortTextsStayApart(t *testing.T) {
	texts := []string{"", "1", "1.2.3.4", "1.2.3.4\x00", "1.2.3.40", "\x00", "\x00\x00", "12345678",
		"12345678\x00", "123456789",
		"255.255.255.255", "255.255.255.254", "2001:db8::1", "2001:DB8::1", "2001:db8::1:2:3",
		"a name that is too long"}
	seen := map[shortText]string{}
	for _, text := range texts {
		for _, after := range []string{"", "x", " - - [17/May/2015:10:05:03 +0000]"} {
			line := []byte(text + after)
			short := shortTextOf(line[:len(text)])
			require.Equal(t, len(text) == 0 || len(text) > maxShort, short == shortText{}, "%q", text)
			if short == (shortText{}) {
				continue
			}
			assert.Equal(t, text, string(short.append(nil)))
			known, is := seen[short]
			assert.True(t, !is || known == text, "%q and %q", known, text)
			seen[short] = text
		}
	}
	assert.Len(t, seen, len(texts)-2)
}

// TestCallersAreRightWithAFullCache checks that callers keep their numbers when there are more than
// the cache has places for: texts that were replaced are not found.
func TestCallersAreRightWithAFullCache(t *testing.T) {
	slow.Test(t)
	c := make(callerCache, 1<<cacheBits)
	const callers = 3 << cacheBits
	text := func(i int) shortText { return shortTextOf(fmt.Append(nil, i)) }
	for i := range callers {
		c.add([]unnumbered{{text: text(i), number: uint32(i)}, {number: 7}})
	}
	found := 0
	for i := range callers {
		if n := c.find(text(i)); n != 0 {
			require.EqualValues(t, i+1, n)
			found++
		}
	}
	assert.Greater(t, found, callers/5)
	assert.Zero(t, c.find(text(callers)))
}
