package screen

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"
)

// eraseLine clears the line of the cursor and moves it to the beginning.
const eraseLine = "\r\x1b[K"

// Foot keeps one line of text below what is written to a terminal. All that is written there goes
// through writers of Above. It is safe for concurrent use.
type Foot struct {
	mu    sync.Mutex
	w     io.Writer // guarded by mu, as are the others
	text  string    // empty: there is none
	drawn bool      // it is the last line
	mid   bool      // a line above has no end yet
}

// NewFoot returns a Foot without text on the terminal w.
func NewFoot(w io.Writer) *Foot { return &Foot{w: w} }

// Above returns a writer of lines above f. w is the terminal, by any of its names.
func (f *Foot) Above(w io.Writer) io.Writer { return &above{w, f} }

// above writes lines above a Foot.
type above struct {
	w    io.Writer
	foot *Foot
}

// Write implements io.Writer.
func (a *above) Write(p []byte) (int, error) {
	a.foot.mu.Lock()
	defer a.foot.mu.Unlock()
	return len(p), a.foot.write(a.w, p)
}

// write writes p above the text, and the text after it unless p leaves a line without its end.
func (f *Foot) write(w io.Writer, p []byte) error {
	var b bytes.Buffer
	if f.drawn {
		b.WriteString(eraseLine)
	}
	b.Write(p)
	if len(p) > 0 {
		f.mid = p[len(p)-1] != '\n'
	}
	f.drawn = !f.mid && f.text != ""
	if f.drawn {
		b.WriteString(f.text)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Set changes the text, which fits on a line. An empty one is none.
func (f *Foot) Set(text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if text == f.text {
		return nil
	}
	f.text = text
	return f.write(f.w, nil)
}

// Keep sets the text to that of sum, cut to the width of the terminal, every so often until ctx
// ends. Then there is none. An error of the terminal ends it early.
func (f *Foot) Keep(ctx context.Context, every time.Duration, sum func() string) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return f.Set("")
		case <-ticker.C:
		}
		on, _ := Of(f.w)
		text := []rune(Printable(sum()))
		if n := on.Width - 1; n > 0 && len(text) > n {
			text = append(text[:n-1], '…')
		}
		if err := f.Set(on.Paint(Bold, string(text))); err != nil {
			return err
		}
	}
}
