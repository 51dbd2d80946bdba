// Package browsertest opens pages in a real browser.
package browsertest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// Open starts Chromium, which must be installed. Errors of scripts and violations of the
// Content-Security-Policy fail the test.
func Open(t *testing.T) Tab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	require.NoError(t, err, "this test needs chromium: apt-get install chromium")
	options := append([]chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 1250),
		chromedp.NoFirstRun, chromedp.NoSandbox, chromedp.Headless, chromedp.DisableGPU,
	}, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancelTab := chromedp.NewContext(allocator)
	t.Cleanup(cancelTab)
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page's script failed: %v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			if e.Entry.Source == log.EntrySourceSecurity {
				t.Errorf("the page's policy refused something: %s", e.Entry.Text)
			}
		case *runtime.EventConsoleAPICalled:
			t.Errorf("the page says: %s", e.Args[0].Value)
		}
	}))
	bounded, cancelTime := context.WithTimeout(ctx, 4*time.Minute)
	t.Cleanup(cancelTime)
	return Tab{t, bounded}
}

// Tab is a page in a browser.
type Tab struct {
	testing.TB
	Context context.Context
}

// Do runs actions.
func (t Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	require.NoError(t, chromedp.Do(t.Context, actions...))
}

// Eval returns the value of a script.
func Eval[T any](t Tab, script string) T {
	t.Helper()
	value, err := chromedp.Run(t.Context, chromedp.Evaluate[T](script))
	require.NoError(t, err, script)
	return value
}

// Sees waits until the value of the script is true. chromedp's own Poll evaluates text as code in
// the page, which the page's policy forbids.
func (t Tab) Sees(script string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return Eval[bool](t, "!!("+script+")")
	}, 20*time.Second, 20*time.Millisecond, script)
}

// Appear shows the page in a window of some width, and in the colours of a scheme: light or dark.
func (t Tab) Appear(width int64, scheme string) {
	t.Helper()
	colours := func(ctx context.Context, to *chromedp.Target) error {
		_, err := cdp.Call(ctx, to, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}
	t.Do(chromedp.EmulateViewport(width, 900), chromedp.Func(colours))
}

// Shoot writes a picture of the whole page to a file.
func (t Tab) Shoot(file string) {
	t.Helper()
	picture, err := chromedp.Run(t.Context, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, picture, 0o600))
}
