// Package docblocks is for tests that keep the code in the docs true.
package docblocks

import (
	"os"
	"strings"
	"testing"
)

// Check fails t unless each block of code in a section of a page, "## Gin" and all below it, stands
// in one of the files, whose tests compile and run it. Indentation does not matter.
func Check(t testing.TB, page, section string, files ...string) {
	t.Helper()
	var code []string
	for _, name := range files {
		code = append(code, flat(read(t, name)))
	}
	blocks := blocksOf(read(t, page), section)
	if len(blocks) == 0 {
		t.Errorf("%s has no code in %q", page, section)
	}
next:
	for _, block := range blocks {
		for _, c := range code {
			if strings.Contains(c, flat(block)) {
				continue next
			}
		}
		t.Errorf("%s, %q: no file of %v has this block:\n%s", page, section, files, block)
	}
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
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// blocksOf returns the fenced blocks from the heading on to the next one of its level.
func blocksOf(page, heading string) (blocks []string) {
	level, _, _ := strings.Cut(heading, " ")
	var block *strings.Builder
	inside := false
	for line := range strings.Lines(page) {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(text, "```") && block != nil:
			blocks = append(blocks, block.String())
			block = nil
		case block != nil:
			block.WriteString(line)
		case strings.HasPrefix(text, "```") && inside:
			block = new(strings.Builder)
		case strings.HasPrefix(text, "#") && len(strings.TrimLeft(text, "#"))+len(level) >= len(text):
			inside = text == heading
		}
	}
	return blocks
}
