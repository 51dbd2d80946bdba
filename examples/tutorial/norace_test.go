//go:build !race

package tutorial

var raceFlag []string
