//go:build race

package verify

// raceDetector tells whether the race detector runs.
const raceDetector = true
