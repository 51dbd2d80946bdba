package browsertest

import (
	"os"
	"path/filepath"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// axeCore returns the script of axe-core, which make axe fetches into .tools.
func axeCore(t Tab) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		// The pattern is fine.
		found, _ := filepath.Glob(filepath.Join(dir, ".tools", "axe-core-*.min.js"))
		if len(found) > 0 {
			text, err := os.ReadFile(found[len(found)-1])
			require.NoError(t, err)
			return string(text)
		}
		up := filepath.Dir(dir)
		require.NotEqual(t, up, dir, "this test needs axe-core: make axe")
		dir = up
	}
}

// Axe returns what axe-core finds of the page: a line for each element and rule that it breaks, or
// may break, but for contrasts that axe-core cannot tell, as in a drawing or of what is scrolled
// out of sight.
func Axe(t Tab) []string {
	t.Helper()
	Eval[bool](t, axeCore(t)+";\ntrue")
	found, err := chromedp.Run(t.Context, chromedp.Evaluate[[]string](`axe.run(document).then((r) => {
		const unsure = r.incomplete.filter((rule) => rule.id !== "color-contrast");
		return [...r.violations, ...unsure].flatMap((rule) => rule.nodes.map((node) =>
			rule.id + ": " + node.target.join(" ") + ": " +
			[...node.any, ...node.all, ...node.none].map((check) => check.message).join("; ")));
	})`,
		chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	return found
}
