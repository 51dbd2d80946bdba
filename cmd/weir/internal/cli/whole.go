package cli

import (
	"errors"
	"fmt"
	"strings"
)

// EndLine at the end of a file says that the file is whole.
const EndLine = "# end"

// ErrCut is the error of a file that may have been cut.
var ErrCut = errors.New("the file may have been cut")

// Whole reports whether text ends with EndLine.
func Whole(text string) bool {
	text = strings.TrimRight(text, " \t\r\n")
	return text[strings.LastIndexByte(text, '\n')+1:] == EndLine
}

// CheckCut returns an error if text, the new one of a file that is read again, may have been cut.
// It has less than half of the things that the old one had; or no more of them, where the old one
// was whole; or it is the old one up to the middle of a line. It is not in doubt if it is whole.
func CheckCut(name, things string, had, has int, old, text string) error {
	broken := text != old && strings.HasPrefix(old, text) && !strings.HasSuffix(text, "\n")
	if Whole(text) || !broken && (has > had || 2*has >= had && !Whole(old)) {
		return nil
	}
	return fmt.Errorf("%s has %d %s, and %d before: %w; if it is whole, end it with the line %q",
		name, has, things, had, ErrCut, EndLine)
}
