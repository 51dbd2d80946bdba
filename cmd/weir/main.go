// Command weir shows what a rate limit would do to real traffic, and enforces rate limits.
//
//	weir replay --limit 100/1m access.log
//	weir proxy --limit 100/1m --upstream http://127.0.0.1:9000
//
// The first reports what the limit would have done to the requests of an access log; the second is
// a reverse proxy that enforces it. See their --help.
//
// It exits with 1 on a failure, with 2 if its arguments or its input are wrong, and with 3 if a
// replay is in doubt of its input. Data goes to the standard output, everything else to the
// standard error.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	_ "time/tzdata" // limits by the calendar of a time zone, also where the system has no zones

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
	exitDoubt   = 3
)

// failure is an error of a command with correct arguments and input, which exits with 1. All other
// errors exit with 2.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// doubt is an error of a command whose input was read, but whose result is probably not what was
// asked for. It exits with 3.
type doubt struct{ error }

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
	fmt.Fprintf(stderr, "weir: %s\n", printable(err.Error())) // err may quote a hostile log
	switch {
	case errors.As(err, new(failure)):
		return exitFailure
	case errors.As(err, new(doubt)):
		return exitDoubt
	}
	fmt.Fprintf(stderr, "Try %q.\n", cmd.CommandPath()+" --help")
	return exitUsage
}

// printable applies report.Printable to each line.
func printable(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = report.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}
