package proxy

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/browsertest"
)

// axe-core finds nothing wrong with the page, whatever it shows, on a screen and on a phone, in
// light and in dark colours.
func TestAxeFindsNothingOnThePage(t *testing.T) {
	cfg := config(t, "9/1d", "daily=100/2d")
	cfg.Trust = loopback
	cfg.MaxInFlight = 100
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/login":
			w.WriteHeader(401)
		case "/broken":
			w.WriteHeader(503)
		}
	})
	s := serve(t, cfg)
	for i := range 60 {
		status(t, "GET", s.front.URL+[]string{"/", "/login", "/broken"}[i%3], "X-Forwarded-For",
			fmt.Sprintf("192.0.2.%d", i%6), "User-Agent", fmt.Sprint("agent ", i))
		if i%20 == 0 {
			s.meter.Tick()
		}
	}
	require.Equal(t, 400, status(t, "GET", s.front.URL, "X-Forwarded-For", "nobody"))
	page := browsertest.Open(t)
	page.Do(chromedp.Navigate(s.back.URL + "/-/"))
	for _, row := range []struct {
		state string
		reach func()
	}{
		{"as it is", func() {
			page.Sees(`document.getElementById("state").textContent === "the upstream is failing"`)
			page.Sees(`document.querySelector("#busiest tbody tr") && document.querySelector("#near tbody tr") && document.querySelector("#worst tbody tr")`)
		}},
		{"with an explanation", func() {
			page.Do(chromedp.SendKeys("#why-what", "192.0.2.1"+kb.Enter))
			page.Sees(`document.querySelector("#lately tbody tr") && document.querySelector("#admitted tbody tr")`)
		}},
		{"with a question", func() {
			page.Do(chromedp.Click("#worst tbody button"))
			page.Sees(`document.getElementById("ask").open`)
		}},
		{"with what can be undone", func() {
			page.Do(chromedp.Click("#ask-yes"))
			page.Sees(`!document.getElementById("undo").hidden && document.querySelector("#list tbody tr")`)
			browsertest.Eval[bool](page, `clearTimeout(offered), true`)
		}},
		{"with a doubt", func() {
			page.Do(chromedp.SendKeys("#deny-what", "0.0.0.0/0"+kb.Enter))
			page.Sees(`!document.getElementById("confirm").hidden`)
		}},
		{"with an error", func() {
			page.Do(chromedp.SetValue("#why-what", "300.0.0.1"), chromedp.Click("#why button"))
			page.Sees(`!document.getElementById("why-error").hidden`)
		}},
		{"with rows that are gone, paused", func() {
			page.Do(chromedp.Click("#pause"))
			browsertest.Eval[bool](page, `document.querySelectorAll("#busiest tr, #worst tr").forEach((row) => row.classList.add("gone")), true`)
		}},
	} {
		page.Appear(1200, "light")
		row.reach()
		for _, width := range []int64{1200, 390} {
			for _, scheme := range []string{"light", "dark"} {
				page.Appear(width, scheme)
				assert.Empty(t, browsertest.Axe(page), "%s, %d, %s", row.state, width, scheme)
			}
		}
	}
}
