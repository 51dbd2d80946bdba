//go:build !race

package httplimit

const RaceEnabled = false
