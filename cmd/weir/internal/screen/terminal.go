package screen

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Terminal is a terminal that can move its cursor.
type Terminal struct {
	Width  int  // in characters; 80 if it does not say so
	Colors bool // they are wanted: NO_COLOR is not set (https://no-color.org)
}

// Of returns the terminal that w is. ok is false if it is a file, a pipe or a dumb terminal.
func Of(w io.Writer) (t Terminal, ok bool) {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return Terminal{}, false
	}
	t = Terminal{Width: 80, Colors: os.Getenv("NO_COLOR") == ""}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		t.Width = width
	}
	return t, true
}
