package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// axe-core finds what is wrong with a page, in the colours in which it is shown, and nothing of one
// that is right.
func TestAxe(t *testing.T) {
	body := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!DOCTYPE html><html lang="en"><title>a page</title><style>
			@media (prefers-color-scheme: dark) { p { color: #333; background: #222; } }
			</style><main><h1>a page</h1>%s</main></html>`, body)
	}))
	defer s.Close()
	page := Open(t)
	page.Do(chromedp.Navigate(s.URL))
	page.Appear(800, "light")
	assert.Empty(t, Axe(page))
	for _, row := range []struct{ body, scheme, finds string }{
		{`<p>read me`, "light", ""},
		{`<p>read me`, "dark", "color-contrast: p: "},
		{`<button></button>`, "light", "button-name: button: "},
		{`<table><tr><th></th><td>1</table>`, "light", "empty-table-header: th: "},
	} {
		body = row.body
		page.Do(chromedp.Navigate(s.URL))
		page.Appear(800, row.scheme)
		found := Axe(page)
		if row.finds == "" {
			assert.Empty(t, found, row.body)
			continue
		}
		require.Len(t, found, 1, row.body)
		assert.Contains(t, found[0], row.finds)
	}
}
