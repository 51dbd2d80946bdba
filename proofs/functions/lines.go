package main

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// core are the packages whose lines are counted. Those that do not exist have none.
var core = []string{".", "limits", "internal/core/algorithm", "internal/core/clock",
	"internal/core/engine",
	"internal/core/ids", "internal/core/room", "internal/core/slots",
	"internal/core/snapshot", "internal/core/states", "internal/core/tally", "internal/core/turns",
	"internal/core/windows"}

// lines returns the lines of code in a directory: without tests, comments and blank lines.
func lines(dir string) (n int, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		n += linesOf(src)
	}
	return n, err
}

// linesOf returns how many lines of a source have a token.
func linesOf(src []byte) (n int) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(src))
	s.Init(file, src, nil, 0) // skips comments
	for last := 0; ; {
		pos, tok, lit := s.Scan()
		switch {
		case tok == token.EOF:
			return n
		case tok == token.SEMICOLON && lit == "\n": // not in the source
			continue
		}
		first := file.Line(pos)
		end := first + strings.Count(lit, "\n") // a raw string may be longer than a line
		n += end - max(last, first-1)
		last = end
	}
}
