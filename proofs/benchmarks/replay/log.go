package main

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// agents are the user agents of the log.
var agents = []string{
	"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) " +
		"Version/18.0 Safari/605.1.15",
	"python-requests/2.32.3",
}

// request is one line of the log.
type request struct {
	second int64
	caller uint32
	random uint32
}

// writeLog writes a log, the same on every run, in order of time or shuffled. It has 20 requests a
// second: three in four from callers by Zipf's law, the others from uniformly chosen callers.
func writeLog(file string, shuffled bool) error {
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.1, 10, uint64(*callers-1))
	all := make([]request, *lines)
	at := time.Date(2026, 11, 13, 0, 0, 0, 0, time.UTC).UnixNano()
	for i := range all {
		at += r.Int64N(100_000_000)
		caller := uint32(zipf.Uint64())
		switch {
		case i < *callers:
			caller = uint32(i) // every caller at least once
		case r.IntN(4) == 0:
			caller = uint32(r.IntN(*callers))
		}
		all[i] = request{at / 1e9, caller, r.Uint32()}
	}
	if shuffled {
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for i := range all {
		all[i].write(w)
	}
	return errors.Join(w.Flush(), f.Close())
}

func (r *request) write(w *bufio.Writer) {
	stamp := time.Unix(r.second, 0).UTC().Format("02/Jan/2006:15:04:05 -0700")
	fmt.Fprintf(w, "10.%d.%d.%d - - [%s] \"GET /p/%d/item-%d?x=1 HTTP/1.1\" 200 %d "+
		"\"https://example.com/p/%d\" \"%s\"\n",
		r.caller>>16, r.caller>>8&255, r.caller&255, stamp, r.random%50, r.random%5000, r.random%100_000,
		r.random%47, agents[r.random%3])
}
