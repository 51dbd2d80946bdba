package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		var out, errs bytes.Buffer
		args := append([]string{"__complete"}, strings.Fields(row.command)...)
		require.Equal(t, exitOK, run(append(args, "--"+row.flag, ""), strings.NewReader(""), &out, &errs),
			errs.String())
		offered, _, _ := strings.Cut(out.String(), ":4\n") // no names of files
		assert.ElementsMatch(t, strings.Fields(row.want), strings.Fields(offered), "%s --%s", row.command,
			row.flag)
	}
}

func TestVersionIsACommandToo(t *testing.T) {
	var command, flag, errs bytes.Buffer
	require.Equal(t, exitOK, run([]string{"version"}, strings.NewReader(""), &command, &errs))
	require.Equal(t, exitOK, run([]string{"--version"}, strings.NewReader(""), &flag, &errs))
	assert.Equal(t, flag.String(), command.String())
	assert.Regexp(t, `^weir \S+.* go1\.`, command.String())
}
