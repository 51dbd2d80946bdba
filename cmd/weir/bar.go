package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

// bar is a progress bar on one line of a terminal. The zero bar shows nothing.
type bar struct {
	w     io.Writer // nil to show nothing
	total int64     // bytes to read
	start time.Time
	shown time.Time
}

// barEvery is the minimum time between two updates.
const barEvery = 100 * time.Millisecond

// newBar returns a bar for reading files. It shows nothing unless w is a terminal and all files are
// regular files.
func newBar(w io.Writer, files []string, quiet bool) *bar {
	if _, ok := screen.Of(w); quiet || !ok {
		return &bar{}
	}
	b := &bar{w: w, start: time.Now()}
	for _, name := range files {
		info, err := os.Stat(name)
		if name == replay.Stdin || err != nil || !info.Mode().IsRegular() {
			return &bar{}
		}
		b.total += info.Size()
	}
	return b
}

// show draws the bar, at most once per barEvery. It counts reading as 70 % of the work.
func (b *bar) show(p replay.Progress) {
	now := time.Now()
	if b.w == nil || b.total == 0 || now.Sub(b.shown) < barEvery {
		return
	}
	b.shown = now
	const width, reading = 30, 0.7
	done := reading * min(1, float64(p.Bytes)/float64(b.total))
	if p.Requests > 0 {
		done += (1 - reading) * float64(p.Decided) / float64(p.Requests)
	}
	full := int(done * width)
	took := now.Sub(b.start)
	fmt.Fprintf(b.w, "\r%3.0f %% [%s%s] %s, %s/s%s \x1b[K", done*100, strings.Repeat("=", full),
		strings.Repeat(" ", width-full), lines(float64(p.Lines)), lines(float64(p.Lines)/took.Seconds()),
		left(took, done))
}

// left says how long the rest takes if it goes on like what is done, once that is known well
// enough.
func left(took time.Duration, done float64) string {
	if took < 2*time.Second || done < 0.02 {
		return ""
	}
	rest := time.Duration(float64(took) * (1 - done) / done)
	return ", " + rest.Round(time.Second).String() + " left"
}

// lines formats a number of lines: in millions, if there is a tenth of one.
func lines(n float64) string {
	if n < 1e5 {
		return fmt.Sprintf("%.0f lines", n)
	}
	return fmt.Sprintf("%.1f M lines", n/1e6)
}

func (b *bar) clear() {
	if b.w != nil && !b.shown.IsZero() {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}
