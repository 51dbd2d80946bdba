// Package docblocks is for tests that keep the code in the docs true.
package docblocks

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Check fails t unless each block of code in a section of a page, "## Gin" and all below it, stands
// in one of the files, whose tests compile and run it. Indentation does not matter.
func Check(t testing.TB, page, section string, files ...string) {
	t.Helper()
	code := Read(t, files...)
	for _, block := range Of(t, page, section) {
		if !code.Has(block.Code) {
			t.Errorf("%s, %q: no file of %v has this block:\n%s", page, section, files, block.Code)
		}
	}
}

// CheckRows fails t unless each row of a page's tables for a name, "| Gin | `code` |" or
// "| Echo, Gin | …", has code that stands in one of the files: that which is quoted first. There is
// at least one such row.
func CheckRows(t testing.TB, page, name string, files ...string) {
	t.Helper()
	code, found := Read(t, files...), false
	for line := range strings.Lines(read(t, page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !slices.Contains(strings.Split(strings.TrimSpace(cells[1]), ", "), name) {
			continue
		}
		found = true
		if quoted := strings.SplitN(line, "`", 3); len(quoted) < 3 || !code.HasPart(quoted[1]) {
			t.Errorf("%s: no file of %v has the code of this row:\n%s", page, files, line)
		}
	}
	if !found {
		t.Errorf("%s has no row for %s", page, name)
	}
}

// Code is the text of files.
type Code []string

// Read reads files.
func Read(t testing.TB, files ...string) (code Code) {
	t.Helper()
	for _, name := range files {
		code = append(code, flat(read(t, name)))
	}
	return code
}

// Has reports whether a block stands in one of the files. Indentation does not matter.
func (c Code) Has(block string) bool {
	return slices.ContainsFunc(c, func(code string) bool {
		return strings.Contains(code, flat(block))
	})
}

// HasPart reports whether a part of a line stands in one of the files.
func (c Code) HasPart(part string) bool {
	return slices.ContainsFunc(c, func(code string) bool { return strings.Contains(code, part) })
}

// Block is a block of code on a page.
type Block struct {
	Heading  string // the nearest one above it, "### Below A"
	Language string // as the fence names it
	Code     string
}

// Of returns the blocks in a section of a page, "## Gin" and all below it. It fails t if there are
// none.
func Of(t testing.TB, page, section string) []Block {
	t.Helper()
	blocks := blocksOf(read(t, page), section)
	if len(blocks) == 0 {
		t.Errorf("%s has no code in %q", page, section)
	}
	return blocks
}

// Shows reports whether a block shows an output. In a block … stands for anything, also for lines.
func Shows(block, output string) bool {
	parts := strings.Split(strings.ReplaceAll(block, "…\n", "…"), "…")
	for i, part := range parts {
		switch {
		case i == 0:
			rest, ok := strings.CutPrefix(output, part)
			output = rest
			if !ok {
				return false
			}
		case i == len(parts)-1:
			return strings.HasSuffix(output, part)
		default:
			_, rest, ok := strings.Cut(output, part)
			output = rest
			if !ok {
				return false
			}
		}
	}
	return output == ""
}

func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// flat removes the indentation, and the blank lines that gofmt may add.
func flat(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		line = strings.TrimSpace(line)
		if line != "" {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// blocksOf returns the fenced blocks from the heading on to the next one of its level.
func blocksOf(page, heading string) (blocks []Block) {
	level, _, _ := strings.Cut(heading, " ")
	var block *Block
	inside, nearest := false, ""
	for line := range strings.Lines(page) {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(text, "```") && block != nil:
			blocks = append(blocks, *block)
			block = nil
		case block != nil:
			block.Code += line
		case strings.HasPrefix(text, "```") && inside:
			block = &Block{Heading: nearest, Language: strings.TrimPrefix(text, "```")}
		case strings.HasPrefix(text, "#"):
			nearest = text
			if len(strings.TrimLeft(text, "#"))+len(level) >= len(text) {
				inside = text == heading
			}
		}
	}
	return blocks
}
