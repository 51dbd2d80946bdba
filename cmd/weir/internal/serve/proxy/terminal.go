package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

// Terminal is a slog.Handler of the access log for people: a short line for each request. It is
// safe for concurrent use.
type Terminal struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
	on screen.Terminal
}

// NewTerminal returns a Terminal that writes to w, which shows on the terminal on.
func NewTerminal(w io.Writer, on screen.Terminal) *Terminal { return &Terminal{w: w, on: on} }

// Enabled implements slog.Handler.
func (t *Terminal) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler; the access log has none.
func (t *Terminal) WithAttrs([]slog.Attr) slog.Handler { return t }

// WithGroup implements slog.Handler; the access log has none.
func (t *Terminal) WithGroup(string) slog.Handler { return t }

// Handle implements slog.Handler.
func (t *Terminal) Handle(_ context.Context, r slog.Record) error {
	of := make(map[string]slog.Value, 24)
	r.Attrs(func(a slog.Attr) bool {
		if v := a.Value.Resolve(); v.Kind() == slog.KindGroup {
			for _, in := range v.Group() {
				of[in.Key] = in.Value
			}
		} else {
			of[a.Key] = v
		}
		return true
	})
	var b bytes.Buffer
	status, outcome := of["status"].Int64(), of["outcome"]
	fmt.Fprintf(&b, "%s %s %-4s %s  %s %.1f ms", r.Time.Format(time.TimeOnly),
		t.on.Paint(colorOf(status, outcome), fmt.Sprint(status)), of["method"].String(),
		of["path"].String(), of["client"].String(), of["ms"].Float64())
	if text := outcome.String(); of["outcome"].Kind() == slog.KindString && text != "admitted" {
		fmt.Fprintf(&b, "  %s", t.on.Paint(colorOf(status, outcome), text))
		if policy := of["policy"]; policy.Kind() == slog.KindString {
			fmt.Fprintf(&b, " by %s", screen.Printable(policy.String()))
		}
	}
	if key := of["key"]; key.Kind() == slog.KindString {
		fmt.Fprintf(&b, "  key %s", key.String())
	}
	b.WriteByte('\n')
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.w.Write(b.Bytes())
	return err
}

func colorOf(status int64, outcome slog.Value) string {
	switch text := outcome.String(); {
	case text == "denied" || text == "listed" || status >= 500:
		return screen.Red
	case status >= 400:
		return screen.Yellow
	}
	return screen.Green
}
