package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/servercmd"
)

// The shell offers the values of a flag, and each of them is accepted by the command.
func TestTheShellOffersValues(t *testing.T) {
	for _, row := range []struct{ command, flag, want string }{
		{"proxy --limit 5/1m", "strategy", "fixed sliding log token leaky"},
		{"proxy --limit 5/1m", "by", "ip header: host user path pattern ip+pattern"},
		{"proxy --limit 5/1m", "headers", "draft legacy none original"},
		{"proxy --limit 5/1m", "on-full", "admit refuse"},
		{"proxy --limit 5/1m", "fail", "open closed"},
		{"replay --limit 5/1m", "by", "ip user path agent ip+path"},
		{"serve", "log", "text json"},
	} {
		args := append([]string{"__complete"}, strings.Fields(row.command)...)
		out, err := exec.Command("weir", append(args, "--"+row.flag, "")...).Output()
		require.NoError(t, err)
		offered, _, _ := strings.Cut(string(out), ":4\n") // no names of files
		assert.ElementsMatch(t, strings.Fields(row.want), strings.Fields(offered), "%s --%s", row.command, row.flag)
	}
}

func TestVersionIsACommandToo(t *testing.T) {
	var command, flag, errs bytes.Buffer
	require.Equal(t, cli.ExitOK, run([]string{"version"}, strings.NewReader(""), &command, &errs))
	require.Equal(t, cli.ExitOK, run([]string{"--version"}, strings.NewReader(""), &flag, &errs))
	assert.Equal(t, flag.String(), command.String())
	assert.Regexp(t, `^weir \S+.* go1\.`, command.String())
}

func TestHelpFitsIn100Columns(t *testing.T) {
	var out bytes.Buffer
	for _, cmd := range []*cobra.Command{newReplay(), newRulesExplain(), newWhy()} {
		before := out.Len()
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"--help"})
		require.NoError(t, cmd.Execute())
		head, _, found := strings.Cut(out.String()[before:], ":\n  ")
		assert.True(t, found)
		assert.Less(t, strings.Count(head, "\n"), 24, "a screen before the flags of %s", cmd.Name())
	}
	for line := range strings.Lines(out.String()) {
		assert.LessOrEqual(t, len(strings.TrimRight(line, "\n")), 100, line)
	}
}

// Each flag stands on a page of the documentation, and not in the help alone.
func TestEveryFlagIsOnAPage(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	var text []byte
	for _, page := range append(pages, "../../README.md") {
		read, err := os.ReadFile(page)
		require.NoError(t, err)
		text = append(text, read...)
	}
	commands := append(append(newRules().Commands(), newReplay()), servercmd.Root().Commands()...)
	seen := 0
	for _, cmd := range commands {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			seen++
			assert.Regexp(t, "--"+f.Name+`\b`, string(text), "weir %s", cmd.Name())
		})
	}
	assert.Greater(t, seen, 100)
}

func TestDefaultStrategyOfAReplay(t *testing.T) {
	assert.Equal(t, "["+rule.Default+"]", newReplay().Flags().Lookup("strategy").DefValue, "as of the proxy")
}
