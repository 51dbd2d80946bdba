package envoy

import (
	"context"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/cmd/weir/internal/browsertest"
)

// TestThePageInARealBrowser shows the page of a server, which is that of the proxy without what a
// server has not.
func TestThePageInARealBrowser(t *testing.T) {
	s := start(t, "domain: d\ndescriptors: [{key: one, rate_limit: {unit: year, requests_per_unit: 1}}]\n", nil)
	for range 3 {
		s.ask(t, descriptor("one", "x"))
	}
	s.meter.Tick()
	page := browsertest.Open(t)
	page.Do(chromedp.Func(func(ctx context.Context, to *chromedp.Target) error {
		_, err := cdp.Call(ctx, to, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{
			Headers: network.Headers{"Authorization": "Bearer " + token},
		})
		return err
	}), chromedp.Navigate("http://"+s.Addresses().Admin))
	page.Sees(`document.title === "weir serve" && document.getElementById("program").textContent === "weir serve"`)
	page.Sees(`document.getElementById("totals").textContent === "1 admitted and 2 denied since the start"`)
	page.Sees(`document.querySelectorAll("#chart rect.d").length === 1`)
	page.Sees(`document.querySelector("#rules tbody tr").textContent.startsWith("d: one1 per yearfixed window23")`)
	for _, id := range []string{"list-card", "limits-card", "in-flight-card", "buckets-card", "try-card", "why-by",
		"latency-card", "errors-card", "lost", "slow"} {
		page.Sees(`document.getElementById("` + id + `").checkVisibility() === false`)
	}
	assert.Equal(t, []string{"Worst", "Rules"}, browsertest.Eval[[]string](page,
		`[...document.querySelectorAll("nav a")].filter((a) => a.checkVisibility()).map((a) => a.textContent)`))
	page.Sees(`document.querySelector("#worst tbody td").textContent === "d: one=x"`)
	page.Do(chromedp.Click("#worst tbody button"))
	page.Sees(`/^is denied by one, and passes in .*; denials since the start: 2\.$/.test(document.getElementById("because-said").textContent)`)
	page.Sees(`document.getElementById("because-steps").textContent.includes("one=x")`)
	page.Do(chromedp.SetValue("#why-what", "one=y"), chromedp.Click("#why button"))
	page.Sees(`document.getElementById("because-said").textContent === "passes."`)
	for _, width := range []int64{1200, 390} {
		for _, scheme := range []string{"light", "dark"} {
			page.Appear(width, scheme)
			assert.Equal(t, width, browsertest.Eval[int64](page, `document.documentElement.scrollWidth`))
			assert.Empty(t, browsertest.Axe(page), "%d, %s", width, scheme)
		}
	}
}

// What is used of a token bucket is used of its burst.
func TestExplainOfABurst(t *testing.T) {
	s := start(t, "domain: d\ndescriptors: [{key: one, rate_limit: {unit: year, requests_per_unit: 2}, "+
		"metadata: {weir: {algorithm: token_bucket, burst: 5}}}]\n", nil)
	s.ask(t, descriptor("one", "x"))
	_, text := s.http(t, "GET", "http://"+s.Addresses().Admin+"/-/explain?descriptor=one%3Dx", "")
	assert.Contains(t, text, `"counting":"token_bucket","at_once":5,"used":1,"left":4,"when":"now"}`)
}
