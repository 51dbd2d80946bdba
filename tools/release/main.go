// Command release packs, checks and tags the modules of the workspaces.
//
//	release standalone             type-check every module without the workspace
//	release platforms linux/amd64… type-check the published modules for platforms
//	release tidy                   run go mod tidy in every module
//	release mixed                  check that modules of this tree and of the last release fit
//	release pack DIR VERSION       pack the published modules into a module proxy in DIR
//	release tag VERSION            commit and tag a release of every published module
//
// Published modules require versions of each other that may not be released yet. Tidy and the tests
// pack them into a file-based module proxy, in which the go command finds them; standalone has each
// find the others beside it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const usage = "usage: release standalone | platforms PLATFORM… | tidy | mixed | " +
	"pack DIR VERSION | tag VERSION"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	root, err := command(".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	tree, err := Open(strings.TrimSpace(string(root)))
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "standalone":
		return standalone(tree)
	case len(args) > 1 && args[0] == "platforms":
		return platforms(tree, args[1:]...)
	case len(args) == 1 && args[0] == "tidy":
		return tidy(tree)
	case len(args) == 1 && args[0] == "mixed":
		return mixed(tree)
	case len(args) == 3 && args[0] == "pack":
		return packCopy(tree, args[1], args[2])
	case len(args) == 2 && args[0] == "tag":
		tags, err := (&release{tree, args[1]}).tag()
		if err == nil {
			fmt.Println("git push --atomic origin HEAD " + strings.Join(tags, " "))
		}
		return err
	}
	return fmt.Errorf("%s", usage)
}

// packCopy packs a copy of the tree: packing changes go.mod and go.sum.
func packCopy(t *Tree, proxy, version string) error {
	proxy, err := filepath.Abs(proxy)
	if err != nil {
		return err
	}
	return t.inCopy(func(_ string, copied *Tree) error { return pack(copied, proxy, version) })
}
