//go:build race

package slow

// Race reports whether the race detector runs.
const Race = true
