// Command attack plays a bad day of a service behind weir proxy, and says what an honest caller
// sees of it. It also serves the upstream, which has 24 places: all others wait in line.
//
// A thousand honest callers send 360 requests a second. Beside them are
//
//   - an office of 30 people behind one address, and a scraper among them: another user agent,
//     and thousands of paths;
//   - one loud address on an expensive route, which sends little and holds half of the places;
//   - twenty addresses near each other that guess passwords, and an honest neighbour of theirs.
//
// Nobody is over a limit of 3000/1m, so that the limit denies nobody. Who is denied by hand, and
// how soon the honest callers notice, is up to whoever sits before the page. In two terminals, and
// with http://127.0.0.1:8081/-/ in a browser:
//
//	go run ./proofs/attack --upstream 127.0.0.1:9000 --proxy http://127.0.0.1:8080
//	weir proxy --upstream http://127.0.0.1:9000 --limit 3000/1m --trust 127.0.0.1 --access-log off
//
// Callers have their addresses by X-Forwarded-For, so the proxy must trust 127.0.0.1. The requests
// are the same ones for one --seed. On a small machine --scale 0.25 sends a quarter of them, which
// take the upstream four times as long. TestAnOperatorWithOnlyThePage of cmd/weir plays the attack,
// and the operator, too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

// run plays until ctx ends, which is no error.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("attack", flag.ContinueOnError)
	proxy := flags.String("proxy", "http://127.0.0.1:8080", "`URL` that all requests go to")
	listen := flags.String("upstream", "127.0.0.1:9000", "`ADDRESS` to serve the upstream at")
	scale := flags.Float64("scale", 1, "`SHARE` of all requests, which take so much longer")
	seed := flags.Uint64("seed", 1, "`NUMBER` that the requests depend on")
	patience := flags.Duration("patience", 10*time.Second, "`TIME` after which people give up: from a half to twice of it")
	every := flags.Duration("every", 10*time.Second, "`TIME` between two lines")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *scale <= 0 || *every <= 0 || *patience <= 0 {
		return fmt.Errorf("--scale %v, --every %v and --patience %v must be positive",
			*scale, *every, *patience)
	}
	u := newUpstream(*scale)
	address, closeUpstream, err := serve(ctx, u, *listen)
	if err != nil {
		return err
	}
	defer closeUpstream()
	kinds := callersOfAllKinds()
	fmt.Fprintf(out, "upstream http://%s: %d places, and a line\n", address, places)
	for i := range kinds {
		fmt.Fprintln(out, kinds[i].about(*scale))
	}
	p := &play{
		to: strings.TrimSuffix(*proxy, "/"), patience: *patience,
		client: &http.Transport{MaxIdleConnsPerHost: 1 << 14, DisableCompression: true},
		score:  newScore(kinds),
	}
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx, plan(kinds, *scale, *seed)) })
	report(ctx, out, *every, p.score, u)
	running.Wait()
	fmt.Fprintln(out, "in all", p.score.all())
	return nil
}

// serve serves the upstream until what it returns is called.
func serve(
	ctx context.Context, u *upstream, address string,
) (at net.Addr, closeAll func(), err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	s := &http.Server{Handler: u, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	return l.Addr(), func() {
		s.Close()
		serving.Wait()
	}, nil
}

// report prints what happened in each interval until ctx ends.
func report(ctx context.Context, out io.Writer, every time.Duration, s *score, u *upstream) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	started := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			fmt.Fprintf(out, "%-5s %s | %d of %d places taken, %d wait\n",
				now.Sub(started).Round(time.Second/10), s.next(), len(u.places), places, u.waiting.Load())
		}
	}
}
