package slow

import (
	"context"
	"os/exec"
)

// Command returns the command of go, such as build or run, with these arguments. It builds with the
// race detector if that runs here, so that packages that were compiled for this test need not be
// compiled another time.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	all := []string{name}
	if Race {
		all = append(all, "-race")
	}
	return exec.CommandContext(ctx, "go", append(all, args...)...)
}
