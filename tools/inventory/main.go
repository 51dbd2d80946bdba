// Command inventory writes what belongs to programs that are given away: the licences of all that
// they link, and a software bill of materials of each.
//
//	inventory [-licenses FILE] PROGRAM…
//
// PROGRAM.cdx.json is a bill of materials in CycloneDX's JSON, with the modules that the go command
// has noted in the program. FILE, LICENSES.txt beside the first program, has the texts of their
// licences, of the project's own and of Go's. The texts are those of the module cache, into which
// missing modules are downloaded. It fails at a module that has no licence, and at one whose sum is
// not that of the program. What it writes depends on the programs alone, and so has equal bytes in
// every run.
//
// Run it in the root of the repository, with the Go that has built the programs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	licenses := flag.String("licenses", "", "`file` for the texts of licences")
	flag.Parse()
	if err := run(*licenses, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "inventory:", err)
		os.Exit(1)
	}
}

func run(file string, names []string) error {
	if len(names) == 0 {
		return errors.New("usage: inventory [-licenses FILE] PROGRAM…")
	}
	if file == "" {
		file = filepath.Join(filepath.Dir(names[0]), "LICENSES.txt")
	}
	programs := make([]*program, len(names))
	for i, name := range names {
		var err error
		programs[i], err = read(name)
		if err != nil {
			return err
		}
		bom, err := bomOf(programs[i])
		if err != nil {
			return err
		}
		if err := os.WriteFile(name+".cdx.json", bom, 0o644); err != nil {
			return err
		}
	}
	modules, err := located(programs)
	if err != nil {
		return err
	}
	text, err := licensesOf(modules)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
