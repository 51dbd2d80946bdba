package httplimit

import (
	"crypto/rand"
	"strconv"
	"time"

	"github.com/weirgo/weir/internal/core/throttle"
)

// logSecret prevents reversing the digests in the log by trying all addresses.
var logSecret = rand.Text()

// logEvery bounds the log: a failing store fails every request.
const logEvery = time.Second

// throttles has one throttle for each kind of record, so that a flood of one kind does not hide
// another.
type throttles struct {
	failure, full, penalty, shared, release, decider, overload throttle.Throttle
}

// escape escapes bytes that could forge a line of a log or control a terminal, and leaves plain
// text unchanged.
func escape(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return quoted[1 : len(quoted)-1]
}
