package screen

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Terminal is a terminal that can move its cursor.
type Terminal struct {
	Width  int  // in characters; 80 if it does not say so
	Height int  // in lines; 24 if it does not say so
	Colors bool // they are wanted: NO_COLOR is not set (https://no-color.org)
}

// Of returns the terminal that w is. ok is false if it is a file, a pipe or a dumb terminal.
func Of(w io.Writer) (t Terminal, ok bool) {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return Terminal{}, false
	}
	t = Terminal{Width: 80, Height: 24, Colors: os.Getenv("NO_COLOR") == ""}
	if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
		t.Width, t.Height = width, height
	}
	return t, true
}

// What Paint takes.
const (
	Bold   = "\x1b[1m"
	Red    = "\x1b[31m"
	Green  = "\x1b[32m"
	Yellow = "\x1b[33m"
)

// Paint returns text in a color or bold, if colors are wanted.
func (t Terminal) Paint(as, text string) string {
	if !t.Colors {
		return text
	}
	return as + text + "\x1b[0m"
}

var colors = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Fit returns the first lines of text that fit on the terminal, one of which is for the cursor. A
// line that is longer than the terminal is wide takes several of its lines. If some are left out, a
// last line says how many. Of escape sequences it knows those that set colors.
func (t Terminal) Fit(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	kept, rows := 0, 0 // of the lines that fit with one below that says how many do not
	for i, line := range lines {
		width := utf8.RuneCountInString(colors.ReplaceAllString(line, ""))
		rows += max(1, (width+t.Width-1)/t.Width)
		switch {
		case rows < t.Height-1:
			kept = i + 1
		case rows > t.Height-1:
			left := fmt.Sprintf("… lines left out: %d\n", len(lines)-kept)
			return strings.Join(append(lines[:kept], left), "\n")
		}
	}
	return text
}
