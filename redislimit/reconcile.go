package redislimit

import (
	"hash/fnv"
	"math"
	"time"

	"github.com/weirgo/weir/internal/core/arith"
)

// numberOf returns the number of a reset that the source has missed. A source has missed only one:
// the next has another source.
func numberOf(source string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(source))
	return 1 + int64(h.Sum64()%maxCount)
}

// slack is by how much a count is taken to be older than it is, and for each 1024 s of its age a
// second more: clocks differ, and commands take time to arrive.
const slack = 100 * time.Millisecond

// knownAt returns how long ago an instant was, and the instant by the script's clock, in ms, both
// rather too long ago. A command may arrive long after it was sent, when only the instant is right,
// and the server's clock may have been set, when only the difference is right. The zero time says
// that it is not known, and gives numbers by which nothing was taken back since.
func knownAt(at time.Time, now reading) (age, unix int64) {
	if at.IsZero() {
		return -1 << 52, 1 << 52
	}
	ago := min(max(0, now.now.Sub(at)), math.MaxInt64/2)
	ago += slack + ago/1024
	known, _ := arith.FloorDiv(now.server(now.now.Add(-ago)).unixNano(), msec)
	return int64(ago / time.Millisecond), known
}
