package main

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/servercmd"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weir": main, serverProgram: func() {
		serveControl()
		os.Exit(cli.Run(servercmd.Root(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}})
}

func TestScripts(t *testing.T) {
	sample, err := filepath.Abs("../../testdata/access.log")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("SAMPLE", sample)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // saves a second for each command
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "gzip": pack},
	})
}

// exits CODE COMMAND... runs a command and checks its exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if err != nil {
		code = err.Error()
	}
	if want := map[string]string{"0": "0", "1": "exit status 1",
		"2": "exit status 2", "3": "exit status 3"}[args[0]]; code != want {
		ts.Fatalf("%q: %s, want %s", args[1:], code, want)
	}
}

// pack FILE TARGET compresses a file with gzip.
func pack(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.Create(ts.MkAbs(args[1]))
	ts.Check(err)
	z := gzip.NewWriter(f)
	_, err = z.Write([]byte(ts.ReadFile(args[0])))
	ts.Check(err)
	ts.Check(z.Close())
	ts.Check(f.Close())
}
