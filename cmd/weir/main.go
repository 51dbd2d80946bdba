// Command weir shows what a rate limit does to real traffic, and sets one.
//
//	weir replay --limit 100/1m access.log
//	weir proxy --limit 100/1m --upstream http://127.0.0.1:9000
//
// The first asks what the limit would have done to the requests of an access log; the second is a
// reverse proxy that holds it. See their --help.
//
// It exits with 0 if all went well, with 1 if it failed, and with 2 if it was called the wrong way
// or given input that it cannot use. Data goes to the standard output, everything else to the
// standard error.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/report"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// failure is an error of a command that was called the right way, and so exits with 1. All others
// exit with 2.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// run runs the command line args and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "weir: %s\n", printable(err.Error())) // it may quote a hostile log
	if errors.As(err, new(failure)) {
		return exitFailure
	}
	fmt.Fprintf(stderr, "Try %q.\n", cmd.CommandPath()+" --help")
	return exitUsage
}

// printable is report.Printable of each line.
func printable(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = report.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}
