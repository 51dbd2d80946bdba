package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/rules"
)

func TestTheCaretIsBelowTheColumn(t *testing.T) {
	long := strings.Repeat("a", 70) + "X" + strings.Repeat("b", 70)
	for _, of := range []struct {
		line   string
		column int
		want   string // below the caret
	}{
		{"abXd", 3, "X"}, {"\t\tX", 3, "X"}, {"äöX", 3, "X"}, {"\x1b[31mX", 6, "X"}, {"ab", 3, ""},
		{"ab", 99, ""}, {"", 1, ""}, {long, 71, "X"}, {strings.Repeat("c", 1000) + "X", 1001, "X"},
		{"X" + strings.Repeat("c", 1000), 1, "X"}, {"X\r", 1, "X"},
	} {
		lines := strings.Split(excerpt(of.line, of.column), "\n")
		require.Len(t, lines, 3, of.line)
		assert.LessOrEqual(t, len([]rune(lines[1])), maxExcerpt+20)
		below := []rune(lines[1])[len(lines[2])-1:]
		assert.True(t, strings.HasPrefix(string(below), of.want) && (of.want != "" || len(below) == 0),
			"%q\n%q", lines[1], lines[2])
	}
}

func TestErrorsInRulesHaveExcerpts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(file, []byte("domain: d\ndescriptors: [{kye: a}, {key: b, valu: c}]\n"), 0o600))
	root := Root("", &cobra.Command{Use: "load", RunE: func(*cobra.Command, []string) error {
		_, err := rules.LoadFiles(file)
		return err
	}})
	var errs bytes.Buffer
	assert.Equal(t, ExitUsage, Run(root, []string{"load"}, nil, nil, &errs))
	assert.Equal(t, 3, strings.Count(errs.String(), "^\n"), errs.String())
	assert.NotContains(t, errs.String(), "Try ")

	gone := &rules.Problem{File: file + ".gone", Line: 3, Column: 4, Message: "lost\x1b"}
	assert.Equal(t, file+`.gone:3:4: lost\x1b`+"\nx", described(errors.Join(gone, errors.New("x"))))
}

// Run says weir, and then what the library says, which begins so too.
func TestTheProgramIsNamedOnce(t *testing.T) {
	of := fmt.Errorf("%w: 0s", weir.ErrScale)
	for want, err := range map[string]error{
		"bad scale: 0s":         of,
		"--try: bad scale: 0s":  Failure(&FlagError{Err: fmt.Errorf("--try: %w", of)}),
		"bad scale: 0s\nbad id": errors.Join(of, weir.ErrID),
		`"x: weir: bad"`:        errors.New(`"x: weir: bad"`),
	} {
		assert.Equal(t, want, described(err))
	}
}
