package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

type outcome string

const (
	killed      outcome = "killed"
	timedOut    outcome = "timed out"
	survived    outcome = "survived"
	equivalent  outcome = "equivalent" // listed, and not tested
	notCompiled outcome = "did not compile"
)

type result struct {
	mutant  mutant
	outcome outcome
}

// suite is a package whose tests are run, the fastest first.
type suite struct {
	dir  string // from the root
	args []string
}

// suites are those for the core. The tests of verify are those of the core, without the ones that
// measure memory or look at the repository.
var suites = []suite{
	{".", []string{".", "./limits", "./internal/core/..."}}, // go test skips those without the mutant
	{".", []string{"./weirtest"}},
	{"proofs/verify", []string{"-run",
		"^Test(Core|Strategies|Exact|Linearizable$|RaceFree|Stalled|Never|IDs|Flood|Full|Known" +
			"|Window|AtMost|Denial|Retry|Keys)", "."}},
}

type tester struct {
	cfg    config
	suites []suite
	prefix []string // of a command
}

func newTester(cfg config) *tester {
	t := &tester{cfg: cfg, suites: suites}
	if cfg.pkg != "." {
		t.suites = []suite{{".", []string{"./" + cfg.pkg}}}
	}
	if nice, err := exec.LookPath("nice"); err == nil {
		t.prefix = []string{nice, "-n", "19"}
	}
	return t
}

// unmutated fails if a test fails without a mutant: it would kill them all.
func (t *tester) unmutated() error {
	for _, s := range t.suites {
		if out, err := t.test(s, "", false); err != nil {
			return fmt.Errorf("the tests in %s fail without a mutant: %w\n%s", s.dir, err, out)
		}
	}
	return nil
}

// test runs a suite with the overlay in a file, or without one. With race it does so under the race
// detector, which lets others run between two stores as no processor does.
func (t *tester) test(s suite, overlay string, race bool) (string, error) {
	// Twice the limit is for what the limit does not stop: the build, and a test that cannot be
	// interrupted.
	ctx, cancel := context.WithTimeout(context.Background(), 2*t.cfg.timeout+time.Minute)
	defer cancel()
	args := slices.Concat(t.prefix, []string{
		"go", "test", "-vet=off", "-failfast", "-ldflags=-s -w", "-timeout", t.cfg.timeout.String(),
	})
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	switch {
	case race:
		args = append(args, "-race")
	case overlay != "": // a mutant may allocate without end
		args = append(args, "-exec", `sh -c 'ulimit -v 4000000; exec "$0" "$@"'`)
	}
	args = append(args, s.args...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = filepath.Join(t.cfg.root, s.dir)
	cmd.Env = append(os.Environ(), "WEIR_VERIFY=")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return string(out), err
}

// run tests the mutants, and prints each outcome.
func (t *tester) run(chosen []mutant, equivalents map[string]string) []result {
	results := make([]result, len(chosen))
	var mu sync.Mutex
	done := 0
	var workers errgroup.Group
	workers.SetLimit(t.cfg.workers)
	for i, m := range chosen {
		workers.Go(func() error {
			r := result{m, equivalent}
			by := ""
			if equivalents[m.id] == "" || t.cfg.all {
				r.outcome, by = t.kill(m)
			}
			mu.Lock()
			defer mu.Unlock()
			results[i] = r
			done++
			fmt.Printf("%d/%d %s: %s %s\n", done, len(chosen), r.outcome, m, by)
			return nil
		})
	}
	_ = workers.Wait() // none fails
	return results
}

// kill runs the suites with one mutant until a test fails, and returns what became of it and the
// test.
func (t *tester) kill(m mutant) (outcome, string) {
	overlay, remove, err := m.pkg.overlay(m)
	if err != nil {
		panic(err)
	}
	defer remove()
	suites := m.suites
	if suites == nil {
		suites = t.suites
	}
	for _, s := range suites {
		out, err := t.test(s, overlay, m.operator == "order")
		switch {
		case err == nil:
		case strings.Contains(out, "[build failed]"):
			return notCompiled, out
		case errors.Is(err, context.DeadlineExceeded) || strings.Contains(out, "panic: test timed out"):
			return timedOut, ""
		default:
			return killed, "by " + firstFailure(out)
		}
	}
	return survived, ""
}

func firstFailure(out string) string {
	for line := range strings.Lines(out) {
		if _, test, ok := strings.Cut(line, "--- FAIL: "); ok {
			return strings.TrimSpace(test)
		}
	}
	return "a crash"
}
