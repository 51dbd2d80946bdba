package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// mixed checks that modules of two releases work together, as the go command selects them if a
// program requires a newer version of one: it checks the published modules of the last release with
// the root module of t, and those of t with the root module of the last release. Without a release
// it does nothing.
func mixed(t *Tree) error {
	last, err := t.lastRelease()
	if err != nil || last == "" {
		return err
	}
	dir, err := os.MkdirTemp("", "weir-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	released := filepath.Join(dir, "released")
	if _, err := t.git("worktree", "add", "--detach", released, last); err != nil {
		return err
	}
	defer func() { _, _ = t.git("worktree", "remove", "--force", released) }()
	old, err := Open(released)
	if err != nil {
		return err
	}
	var failed []error
	for what, trees := range map[string][2]*Tree{
		"the root of this tree with the other modules of " + last:      {t, old},
		"the root of " + last + " with the other modules of this tree": {old, t},
	} {
		fmt.Println("==", what)
		dst, err := os.MkdirTemp(dir, "mixed-")
		if err != nil {
			return err
		}
		if err := mix(trees[0], trees[1], dst); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
		}
	}
	return errors.Join(failed...)
}

// mix copies the root module of one tree and the other modules of another one to dst, and
// type-checks these, with their tests.
func mix(root, others *Tree, dst string) error {
	for _, from := range []*Tree{root, others} {
		files, err := from.files()
		if err != nil {
			return err
		}
		for _, name := range files {
			workspace := strings.HasPrefix(path.Base(name), "go.work")
			if inRoot := from.moduleOf(name) == "." && !workspace; inRoot != (from == root) {
				continue
			}
			if err := copyFile(filepath.Join(from.Dir, name), filepath.Join(dst, name)); err != nil {
				return err
			}
		}
	}
	c := newChecker(dst)
	var failed []error
	for _, m := range others.Published() {
		if m.Dir == "." {
			continue
		}
		env := []string{"GOWORK=", "CGO_ENABLED=0"}
		if err := c.check(filepath.Join(dst, m.Dir), env, true, "./..."); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", m.Dir, err))
		}
	}
	return errors.Join(failed...)
}
