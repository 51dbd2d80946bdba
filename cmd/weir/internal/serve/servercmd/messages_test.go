package servercmd

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
)

// TestMessagesAsPrinted has command lines and files that were taken in silence, or refused without
// a remedy, and the first line that is printed. A comma stands for a space within a word.
func TestMessagesAsPrinted(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("rules.yaml", []byte("domain: d\ndescriptors: []\n"), 0o600))
	require.NoError(t, os.WriteFile("tab.yaml", []byte("route:\n\t- /a\n"), 0o600))
	require.NoError(t, os.WriteFile("requests.yaml", []byte("domain: d\nrate_limits: []\n"), 0o600))
	for args, want := range map[string]string{
		"proxy rules.yaml": "weir: rules.yaml:1:1: these are rules, not settings: give --rules rules.yaml",
		"proxy tab.yaml": "weir: tab.yaml:2:1: found character that cannot start any token; the line is indented by a tab: " +
			"YAML wants spaces",
		"proxy requests.yaml":                          "weir: requests.yaml:1:1: these are rules, not settings: give --rules requests.yaml",
		"serve rules.yaml":                             `weir: weir serve takes no arguments, such as "rules.yaml": did you mean --rules rules.yaml?`,
		"proxy --limit 5/1m --try 5/1m":                "weir: --try 5/1m sliding is a --limit already: try another one",
		"proxy --limit 5/1m --try b=6/1m --try a=6/1m": "weir: --try 6/1m sliding is a --try already: try another one",
		"proxy --limit 5/1m --burst 5": "weir: --burst is for the strategy token, which no limit has: give --strategy " +
			"token, or a limit such as 100/1m:token",
		"proxy --by pattern --route /a,limit=5/1m:leaky --burst 5": "weir: --burst is for the strategy token, which no " +
			"limit has: give --strategy token, or a limit such as 100/1m:token",
		"proxy --limit 5/1m:token --queue 5": "weir: --queue is for the strategy leaky, which no limit has: give " +
			"--strategy leaky, or a limit such as 100/1m:leaky",
		"proxy --limit 5/1m --route /a,limit=1/1m --route /a,limit=2/1m": `weir: route "/a" is given twice: leave one ` +
			"out, or give one route with all limits",
		"proxy --limit 5/1m --route GET,/A,cost=2 --route get,/a/,cost=2 --route GET,/a,cost=2": `weir: route "GET /a" is the same as "GET /A": leave one out, or give one route with all limits`,
		"proxy --limit 5/1m --route /a/{x},cost=2 --route /a/{y},cost=3": `weir: route "/a/{y}": pattern "/a/{y}" ` +
			`conflicts with pattern "/a/{x}"; leave one out, or make it more specific`,
	} {
		var printed strings.Builder
		root := cli.Root("", newProxy(), newServe())
		words := strings.Fields(args)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], ",", " ")
		}
		assert.Equal(t, cli.ExitUsage, cli.Run(root, words, nil, &printed, &printed), args)
		first, _, _ := strings.Cut(printed.String(), "\n")
		assert.Equal(t, want, first, args)
	}
}
