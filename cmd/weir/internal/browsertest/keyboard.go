package browsertest

import (
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// Keyboard is a page that is used by keys alone.
type Keyboard struct {
	Tab

	Pressed int // keys
}

// Focused returns what has the focus: its id, or the id of what is around it and its text. Empty:
// nothing has it.
func (k *Keyboard) Focused() string {
	return Eval[string](k.Tab, `(() => {
		const at = document.activeElement;
		if (at === document.body) return "";
		return at.id || (at.closest("[id]")?.id ?? "") + ": " + (at.ariaLabel || at.textContent);
	})()`)
}

// To presses Tab until something has the focus.
func (k *Keyboard) To(what string) {
	k.Helper()
	k.Until(what, func() bool { return k.Focused() == what })
}

// Until presses Tab until reached returns true, on the way to what.
func (k *Keyboard) Until(what string, reached func() bool) {
	k.Helper()
	var passed []string
	for range 100 {
		if reached() {
			return
		}
		k.Press(kb.Tab)
		passed = append(passed, k.Focused())
	}
	require.Fail(k, "no way to it by Tab", "%s, past %q", what, passed)
}

// Back presses Shift and Tab.
func (k *Keyboard) Back() {
	k.Helper()
	k.Pressed++
	k.Do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
}

// Press presses keys, one after the other.
func (k *Keyboard) Press(keys string) {
	k.Helper()
	k.Pressed += len([]rune(keys))
	k.Do(chromedp.KeyEvent(keys))
}
