package report

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/browsertest"
)

// layout describes the page as a browser shows it.
type layout struct {
	Page       int      // width in pixels
	Outside    []string // cells and labels outside the page
	SmallTexts []string // axis labels shown smaller than 11 pixels
	Overlaps   []string // axis labels that overlap others
	Labels     int      // number of axis labels
}

// layoutScript returns a layout from the page.
const layoutScript = `(() => {
  const out = {Page: document.documentElement.scrollWidth, Outside: [], SmallTexts: [], Overlaps: [], Labels: 0};
  const shown = e => e.getClientRects().length > 0;
  for (const e of [...document.querySelectorAll('td, th, .plot span, code, h2')].filter(shown)) {
    const r = e.getBoundingClientRect();
    if (r.left < 0 || r.right > innerWidth + .5) out.Outside.push(e.textContent);
  }
  for (const axis of document.querySelectorAll('.plot .x, .plot .y')) {
    const labels = [...axis.children].filter(shown).map(e => ({text: e.textContent, r: e.getBoundingClientRect()}));
    out.Labels += labels.length;
    labels.forEach((a, i) => {
      if (a.r.height < 11) out.SmallTexts.push(a.text);
      for (const b of labels.slice(i + 1))
        if (a.r.left < b.r.right && b.r.left < a.r.right &&
            a.r.top < b.r.bottom && b.r.top < a.r.bottom)
          out.Overlaps.push(a.text + ' and ' + b.text);
    });
  }
  return out;
})()`

// TestPageFitsTheScreen checks that the page is readable on a large screen and on a telephone:
// nothing is off screen, no label is too small or hidden, and axe-core finds nothing.
func TestPageFitsTheScreen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.html")
	page := browsertest.Open(t)
	for i, width := range []int64{1200, 1200, 800, 800, 400, 400, 320, 320} {
		form := []string{"report.html", "load report.html"}[i%2]
		require.NoError(t, os.WriteFile(file, []byte(render(t, form)), 0o600))
		page.Do(chromedp.EmulateViewport(width, 900), chromedp.Navigate("file://"+file))
		got := browsertest.Eval[layout](page, layoutScript)
		assert.EqualValues(t, width, got.Page, "the page does not scroll sideways")
		assert.Empty(t, got.Outside, "%d", width)
		assert.Empty(t, got.SmallTexts, "%d", width)
		assert.Empty(t, got.Overlaps, "%d", width)
		assert.Greater(t, got.Labels, []int{30, 10}[i%2])
		if width != 1200 && width != 400 {
			continue
		}
		for _, scheme := range []string{"light", "dark"} {
			page.Appear(width, scheme)
			assert.Empty(t, browsertest.Axe(page), "%d, %s", width, scheme)
		}
	}
}

// TestTablesAreSortedAndCommandsCopied presses the head of a column twice, and the button of a
// command.
func TestTablesAreSortedAndCommandsCopied(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, []byte(render(t, "report.html")), 0o600))
	page := browsertest.Open(t)
	page.Do(chromedp.Navigate("file://" + file))
	sort := func() []float64 {
		return browsertest.Eval[[]float64](page, `(() => {
			const table = [...document.querySelectorAll(".rules table")].find((t) => t.tBodies[0].rows.length > 5);
			table.querySelectorAll("th button")[1].click();
			return [...table.tBodies[0].rows].map((row) => parseFloat(row.cells[1].textContent.replace(/,/g, "")));
		})()`)
	}
	down := sort()
	require.Greater(t, len(down), 5)
	assert.True(t, slices.IsSortedFunc(down, func(a, b float64) int { return cmp.Compare(b, a) }), down)
	up := sort()
	slices.Reverse(up)
	assert.Equal(t, down, up)
	assert.Equal(t, "ascending", browsertest.Eval[string](page,
		`document.querySelector("th[aria-sort]").getAttribute("aria-sort")`))
	copied := browsertest.Eval[string](page, `(() => {
		let copied = "";
		navigator.clipboard.writeText = async (text) => { copied = text; };
		document.querySelector(".next code + button").click();
		return copied;
	})()`)
	assert.Contains(t, copied, "weir ")
	assert.NotContains(t, copied, "copy")
}

// TestTheSliderReadsTheCurve moves the slider of a curve to each of its points.
func TestTheSliderReadsTheCurve(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, []byte(render(t, "report.html")), 0o600))
	page := browsertest.Open(t)
	page.Do(chromedp.Navigate("file://" + file))
	page.Sees(`document.querySelectorAll(".curve .slide:not([hidden])").length === 3`)
	s := example().Suggestions[1]
	move := func(i int) (said, command string) {
		said = browsertest.Eval[string](page, fmt.Sprintf(`(() => {
			const curve = document.querySelectorAll(".curve")[1], slider = curve.querySelector("input");
			slider.value = %d;
			slider.dispatchEvent(new Event("input"));
			return curve.querySelector("output").textContent;
		})()`, i))
		return said, browsertest.Eval[string](page, `document.querySelectorAll(".curve code")[1].textContent`)
	}
	for i, p := range s.Curve {
		said, command := move(i)
		assert.Contains(t, said, fmt.Sprintf("%d/1h denies a request to %s of 1,234 callers (", p.Limit, count(p.Denied)))
		assert.Contains(t, command, fmt.Sprintf("--limit %d/1h:fixed", p.Limit))
	}
}

// TestACallerOpensByKeyboard follows the link of a caller in the table, and closes and opens the
// caller below it, by the Enter key.
func TestACallerOpensByKeyboard(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, []byte(render(t, "report.html")), 0o600))
	page := browsertest.Open(t)
	page.Do(chromedp.Navigate("file://" + file))
	opened := func() []int {
		return browsertest.Eval[[]int](page,
			`[...document.querySelectorAll("details.caller")].flatMap((d, i) => d.open ? [i] : [])`)
	}
	require.Empty(t, opened())
	enter := func(selector string) {
		page.Sees(`(() => { const e = document.querySelector("` + selector + `"); e.focus(); return e === document.activeElement; })()`)
		page.Do(chromedp.KeyEvent(kb.Enter))
	}
	enter(`a[href='#limit-1-caller-2']`)
	page.Sees(`document.querySelectorAll("details.caller")[2].open`)
	assert.Equal(t, []int{2}, opened(), "only this one")
	text := browsertest.Eval[string](page, `document.querySelectorAll("details.caller")[2].innerText`)
	for _, want := range []string{"up to 75 in 1m, 3.75 times the limit", "2026-11-20 11:53:00", "<script>", "73.3 %"} {
		assert.Contains(t, text, want)
	}
	enter("details.caller:has(#limit-1-caller-4) summary")
	assert.Equal(t, []int{2, 4}, opened())
	page.Do(chromedp.KeyEvent(kb.Enter))
	assert.Equal(t, []int{2}, opened())
	for _, width := range []int64{1200, 390} {
		page.Do(chromedp.EmulateViewport(width, 900))
		got := browsertest.Eval[layout](page, layoutScript)
		assert.EqualValues(t, width, got.Page, "the page does not scroll sideways")
		assert.Empty(t, slices.Concat(got.Outside, got.SmallTexts, got.Overlaps), "%d", width)
	}
}
