package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
)

// serverProgram has the commands that serve. It is built from the directory of its name.
const serverProgram = "weir-server"

// newServer returns a command of serverProgram, which runs the whole command line args there, also
// for its help and for the shell's completion.
func newServer(name, short string, args []string) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short,
		DisableFlagParsing: true,
		RunE:               func(*cobra.Command, []string) error { return runServer(name, args) },
		ValidArgsFunction: func(*cobra.Command, []string, string) (
			[]cobra.Completion, cobra.ShellCompDirective,
		) {
			_ = runServer(name, args) // without the program there is nothing to offer
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		if err := runServer(name, args); err != nil {
			cmd.PrintErrln(err)
		}
	})
	return cmd
}

// runServer runs serverProgram, on Unix in place of this process. It returns only if it fails.
func runServer(name string, args []string) error {
	path, err := findServer()
	if err != nil {
		return cli.Failure(fmt.Errorf("%s is a command of %s, which is neither beside this program nor "+
			"in the PATH; go run ./cmd/weir/%[2]s in a clone, or: "+
			"go install github.com/weirgo/weir/cmd/weir/%[2]s@latest", name, serverProgram))
	}
	return cli.Failure(execute(path, args))
}

// findServer returns the path of serverProgram, which was installed with this program or elsewhere.
func findServer() (string, error) {
	if own, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(own), serverProgram)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(serverProgram)
}
