package cli

import (
	"errors"
	"os"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/rules"
)

// Problem returns a problem of rules as FILE:LINE:COLUMN: MESSAGE and, below it, the line of the
// file with a caret at the column, if the file can be read.
func Problem(p *rules.Problem) string {
	text := screen.Printable(p.Error())
	file, err := os.ReadFile(p.File)
	if lines := strings.Split(string(file), "\n"); err == nil && 0 < p.Line && p.Line <= len(lines) {
		text += excerpt(lines[p.Line-1], max(p.Column, 1))
	}
	return text
}

const (
	indent     = "\n    "
	maxExcerpt = 90 // columns of a line, of which more than a half stands before the caret
)

// excerpt returns a line and a caret below a column of it.
func excerpt(line string, column int) string {
	r := []rune(strings.ReplaceAll(strings.TrimRight(line, "\r"), "\t", " "))
	column = min(column, len(r)+1)
	from := 0
	if len(r) > maxExcerpt {
		from = max(0, min(column-maxExcerpt*2/3, len(r)-maxExcerpt))
		r = r[from : from+maxExcerpt]
	}
	before := screen.Printable(string(r[:column-1-from]))
	return indent + before + screen.Printable(string(r[column-1-from:])) +
		indent + strings.Repeat(" ", len([]rune(before))) + "^"
}

// described returns the text of an error, with excerpts for the problems of rules in it.
func described(err error) string {
	switch e := err.(type) { //nolint:errorlint // what wraps a problem says more than the problem
	case *rules.Problem:
		return Problem(e)
	case interface{ Unwrap() []error }:
		var texts []string
		for _, of := range e.Unwrap() {
			texts = append(texts, described(of))
		}
		return strings.Join(texts, "\n")
	}
	return screen.Lines(Text(err)) // it may quote a hostile log
}

// Text returns the text of an error without the name that the library's begin with, as Run does.
func Text(err error) string {
	text := err.Error()
	for ; err != nil; err = errors.Unwrap(err) {
		before, ends := strings.CutSuffix(text, err.Error())
		if rest, named := strings.CutPrefix(err.Error(), "weir: "); ends && named {
			text = before + rest
		}
	}
	return text
}
