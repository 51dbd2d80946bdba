package redislimit

import (
	"bytes"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

//go:embed lua/*.lua
var sources embed.FS

// script is one of lua/*.lua, with its includes.
type script struct {
	source string
	digest any // a string, ready to be an argument: SHA-1 in hex, the name EVALSHA knows the script by
	values int // how many numbers it returns: of one that decides the last two are its clock

	// Where the cost stands among the script's own arguments, from 1, and in how many: 1, or 2 if
	// it is a time.
	cost, width int

	once                               sync.Once
	reconciling, admitting, takingBack *script // set by once
}

var (
	fixedWindow    = load("fixed_window", 5, 3, 1)
	inFlight       = load("in_flight", 6, 4, 1)
	calendarWindow = load("calendar", 5, 6, 1)
	slidingWindow  = load("sliding_window", 6, 3, 1)
	slidingLog     = load("sliding_log", 6, 3, 1)
	sortedSet      = load("sorted_set", 6, 3, 1)
	tokenBucket    = load("token_bucket", 7, 1, 2)
	tiered         = load("tiers", 6, 2, 1)
	counter        = load("counter", 6, 4, 1)
	list           = load("list", 6, 4, 1)
	reset          = load("reset", 1, 0, 0)
	heartbeat      = load("heartbeat", 2, 0, 0)
)

func load(name string, values, cost, width int) *script {
	sc := newScript(source(name), values)
	sc.cost, sc.width = cost, width
	return sc
}

func newScript(text string, values int) *script {
	sum := sha1.Sum([]byte(text))
	return &script{source: text, digest: hex.EncodeToString(sum[:]), values: values}
}

// source is the text of a file, in which a line "--include name" stands for the file of that name.
func source(name string) string {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded: it is there, or every use of the package ends here
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if included, ok := strings.CutPrefix(line, "--include "); ok {
			line = source(strings.TrimSpace(included))
		}
		b.WriteString(line)
	}
	return b.String()
}

// step returns a script in which this one is the function step, which the file of that name calls.
func (sc *script) step(name string, values int) *script {
	return newScript("local function step(ARGV)\n"+sc.source+"\nend\n"+source(name), values)
}

// load makes, once, the scripts that this one is a step of.
func (sc *script) load() *script {
	sc.once.Do(func() {
		sc.reconciling = sc.step("reconcile", sc.values+admissionValues)
		sc.admitting = sc.step("admission", sc.values+admissionValues)
		sc.takingBack = sc.step("take_back", 1)
	})
	return sc
}

// numbers are the reply of a script.
type numbers [maxNumbers]int64

const maxNumbers = 7 + admissionValues

// clock returns the clock that a reply of a deciding script ends with.
func (sc *script) clock(v numbers) instant { return instant{v[sc.values-2], v[sc.values-1]} }

// parse reads exactly n whole numbers with one space between, as the scripts write them. The first
// is 0 or 1.
func parse(reply []byte, n int) (v numbers, err error) {
	rest := reply
	for i := range n {
		word, after, more := bytes.Cut(rest, []byte{' '})
		v[i], err = strconv.ParseInt(string(word), 10, 64)
		if err != nil || more != (i < n-1) || v[i] > maxCount || v[i] < -maxCount {
			return v, fmt.Errorf("%w: %.100q", ErrReply, reply)
		}
		rest = after
	}
	if v[0] != 0 && v[0] != 1 {
		return v, fmt.Errorf("%w: %.100q", ErrReply, reply)
	}
	return v, nil
}
