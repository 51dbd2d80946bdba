package redislimit_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// hostile are replies that no script returns.
var hostile = []string{
	"$-1\r\n", "*-1\r\n", "_\r\n", "+OK\r\n", "+\r\n", "$0\r\n\r\n", ":1\r\n", ":-1\r\n",
	":9223372036854775808\r\n", "*0\r\n", "*3\r\n:1\r\n:1\r\n:1\r\n", "*1\r\n*1\r\n*1\r\n$1\r\na\r\n",
	"%1\r\n+a\r\n+b\r\n", "~1\r\n+a\r\n", ",1.5\r\n", "#t\r\n", "(123\r\n", "-ERR no\r\n", "-\r\n",
	"-NOSCRIPT still not\r\n", "-MOVED 1 127.0.0.1:1\r\n", "-ASK 1 127.0.0.1:1\r\n",
	"-WRONGTYPE no\r\n",
	"!5\r\nERR x\r\n", "=7\r\ntxt:abc\r\n", "\r\n", "\n", "garbage\r\n", "$3\r\nabc",
	"$100\r\n1 1 1\r\n",
	"$5\r\n1 1 1", "$9223372036854775807\r\n", "$1099511627776\r\n", "$-2\r\n", "*2147483647\r\n",
	"*9223372036854775807\r\n", "*4294967296\r\n:1\r\n", ">2\r\n+message\r\n+x\r\n",
	"|1\r\n+a\r\n+b\r\n$1\r\n1\r\n", bulk(""), bulk("1"), bulk("1 1"), bulk("1  1 1"), bulk(" 1 1 1"),
	bulk("1 1 1 "), bulk("1\x001 1"), bulk("one two three"), bulk("2 1 1"), bulk("-1 1 1 1"),
	bulk("1 -1 1"),
	bulk("1 -1 1 1"), bulk("1 -5 1 1 1"), bulk("1 1.5 1"), bulk("1 1e3 1 1"), bulk("nan inf -inf"),
	bulk("1 9223372036854775807 1"), bulk("1 9223372036854775808 1 1"), bulk("1 9007199254740993 1 1"),
	bulk("1 999999 0"), bulk("1 999999 0 0"), bulk("1 999999 0 0 0"), bulk("1 0 0"), bulk("1 0 0 0"),
	bulk("1 1 9007199254740991"), bulk("1 6 0 -1"), bulk("1 6 0 1000000000"),
	bulk("1 0 1000000000 0 0"),
	bulk("1 99 1 1"), bulk("1 7 1 1"), bulk(strings.Repeat("1 ", 60)), bulk(strings.Repeat("9", 127)),
	bulk(strings.Repeat("x", 1<<20)), strings.Repeat("*1\r\n", 100_000), strings.Repeat("+", 1<<20),
	"+" + strings.Repeat("1", 1<<20) + "\r\n",
}

func bulk(s string) string { return "$" + strconv.Itoa(len(s)) + "\r\n" + s + "\r\n" }

// storeReplying returns a Store whose server replies to every script with reply.
func storeReplying(t testing.TB, reply *atomic.Pointer[string]) *redislimit.Store {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	proxy.Answer(func(command []string) ([]byte, bool) {
		return []byte(*reply.Load()), strings.HasPrefix(command[0], "eval")
	})
	return open(t, proxy.Addr, redislimit.Config{Timeout: redislimit.DefaultTimeout})
}

// A reply that no script returns gives an error in time, and never an admission.
func TestHostileRepliesNeverAdmit(t *testing.T) {
	slow.Test(t)
	var answer atomic.Pointer[string]
	store := storeReplying(t, &answer)
	r := &weir.Request{Key: "a", Limit: 5, Duration: time.Minute}
	var slowest time.Duration
	late := redistest.Watch()
	defer func() { assert.LessOrEqual(t, slowest, 5*redislimit.DefaultTimeout+late()) }()
	for _, reply := range hostile {
		answer.Store(&reply)
		for name, s := range everyStrategy(t, store, r) {
			start := time.Now()
			res, err := s.Run(context.Background(), r)
			slowest = max(slowest, time.Since(start))
			if err == nil {
				// Scripts return different numbers of values, so an invalid reply of one may be a
				// denial by another.
				assert.False(t, res.Allowed(), "%s: %.80q", name, reply)
				continue
			}
			assert.Nil(t, res)
			assert.Contains(t, []redislimit.Class{redislimit.Down, redislimit.Bug}, redislimit.Classify(err),
				"%v", err)
		}
	}
}

// FuzzReplies tests arbitrary replies. What they admit must be within the limit.
func FuzzReplies(f *testing.F) {
	for _, reply := range hostile {
		if len(reply) < 1000 {
			f.Add([]byte(reply))
		}
	}
	var answer atomic.Pointer[string]
	store := storeReplying(f, &answer)
	r := &weir.Request{Key: "a", Limit: 5, Duration: time.Minute}
	all := everyStrategy(f, store, r)
	f.Fuzz(func(t *testing.T, given []byte) {
		reply := string(given) + "\r\n" // the line end avoids a timeout for most replies
		answer.Store(&reply)
		for name, s := range all {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
			res, err := s.Run(ctx, r)
			cancel()
			if err == nil && res.Allowed() {
				assert.LessOrEqual(t, res.TotalRequests, uint64(10), "%s: %q", name, reply)
			}
		}
	})
}

// Random replies made of pieces of real ones never cause a panic or an admission over the limit.
func TestRandomRepliesNeverExceedLimit(t *testing.T) {
	pieces := []string{"*", "$", "+", "-", ":", "%", "~", ">", "_", "#", ",", "(", "=", "!", "|",
		"\r\n", "\n",
		" ", "0", "1", "3", "5", "-1",
		"16", "60000", "9007199254740991", "9223372036854775807", "MOVED", "ERR", "NOSCRIPT",
		"$5\r\n1 1 1\r\n",
		"$7\r\n1 1 1 1\r\n", "abc", "\x00", "\xff"}
	random := rand.New(rand.NewPCG(41, 41))
	var answer atomic.Pointer[string]
	store := storeReplying(t, &answer)
	r := &weir.Request{Key: "a", Limit: 5, Duration: time.Minute}
	all := everyStrategy(t, store, r)
	tried := 0
	for start := time.Now(); time.Since(start) < time.Duration(slow.N(1, 2, 60))*time.Second; {
		for name, s := range all {
			var b strings.Builder
			for range random.IntN(12) {
				b.WriteString(pieces[random.IntN(len(pieces))])
			}
			reply := b.String() + "\r\n" // the line end avoids a timeout for most replies
			answer.Store(&reply)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
			res, err := s.Run(ctx, r)
			cancel()
			tried++
			if err == nil && res.Allowed() {
				assert.LessOrEqual(t, res.TotalRequests, uint64(10), "%s: %q", name, reply)
			}
		}
	}
	t.Logf("%d replies", tried)
}
