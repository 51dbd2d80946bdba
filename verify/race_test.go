//go:build race

package verify

// raceDetector reports whether the race detector runs.
const raceDetector = true
