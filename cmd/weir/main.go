// Command weir shows what a rate limit would do to real traffic, and enforces rate limits.
//
//	weir replay --limit 100/1m access.log
//	weir proxy --limit 100/1m --upstream http://127.0.0.1:9000
//
// The first reports what the limit would have done to the requests of an access log; the second is
// a reverse proxy that enforces it. weir why asks it why a caller is denied. weir rules checks and
// explains rules in YAML, and weir serve answers Envoy by them. See their --help. weir proxy and
// weir serve run a second program, weir-server, so that the others do not need its libraries.
//
// It exits with 1 on a failure, with 2 if its arguments or its input are wrong, with 3 if a replay
// is in doubt of its input, and with 130 if one was interrupted. Data goes to the standard output,
// everything else to the standard error.
package main

import (
	"io"
	"os"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
)

// startHere is what the help begins with, in the order of use.
const startHere = `

Start here:
  weir replay access.log                                      which limit fits what is in a log
  weir proxy --limit 100/1m --upstream http://127.0.0.1:9000  set it in front of a server
  weir why 203.0.113.7                                        ask why it denies a caller`

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs the command line args and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := cli.Root("See what a rate limit does to real traffic, and set one",
		newReplay(), newServer("proxy", "Put a limit in front of a server", args), newWhy(), newHealth(),
		newRules(),
		newServer("serve", "Answer Envoy's rate limit protocol by rules", args))
	root.Long = root.Short + startHere
	cli.Complete(root, map[string][]string{
		"by":       {"ip", "user", "path", "agent", "ip+path"},
		"format":   accesslog.Formats(),
		"output":   outputs,
		"strategy": rule.Strategies,
	})
	return cli.Run(root, args, stdin, stdout, stderr)
}
