package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/browsertest"
	"github.com/weirgo/weir/httplimit"
)

// On a phone nothing is wider than the window, what to press is in sight, and a table that scrolls
// says so.
func TestThePageOnAPhone(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.Trust = loopback
	s := serve(t, cfg)
	for i := range 40 {
		status(t, "GET", s.front.URL, "X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i%10))
	}
	require.NoError(t, s.denied.Add(httplimit.DenyEntry{Key: strings.Repeat("long", 50)}))
	page := &browsertest.Keyboard{Tab: browsertest.Open(t)}
	for _, width := range []int64{360, 390} {
		page.Do(chromedp.EmulateViewport(width, 800), chromedp.Navigate(s.back.URL+"/-/"))
		page.Sees(`document.querySelector("#busiest tbody tr") && document.querySelector("#near tbody tr") && document.querySelector("#list tbody tr")`)
		assert.Equal(t, width, browsertest.Eval[int64](page.Tab, `document.documentElement.scrollWidth`))
		page.Sees(`document.querySelector("#busiest").closest(".scroll").matches(".more")`)
		assert.Empty(t, browsertest.Eval[string](page.Tab, `[...document.querySelectorAll("#busiest button, #near button, #worst button, #list button")]
			.filter((b) => b.getBoundingClientRect().right > innerWidth).map((b) => b.title).join(", ")`))
	}
	page.Press(kb.Tab)
	assert.Equal(t, "why-what", page.Focused(), "the first stop is the search")

	// The focus goes back to the button after Undo.
	page.To("busiest: deny")
	was := browsertest.Eval[string](page.Tab, `document.activeElement.title`)
	page.Press(kb.Enter)
	page.To("ask-yes")
	page.Press(kb.Enter)
	page.Sees(`document.querySelectorAll("#list tbody tr").length === 2`)
	page.To("undo-do")
	page.Press(kb.Enter)
	page.Sees(`document.querySelectorAll("#list tbody tr:not(.gone)").length === 1`)
	assert.Equal(t, was, browsertest.Eval[string](page.Tab, `document.activeElement.title`))
}
