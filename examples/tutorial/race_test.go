//go:build race

package tutorial

// raceFlag builds the programs with what the tests were built with, which is compiled already.
var raceFlag = []string{"-race"}
