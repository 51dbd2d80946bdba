package main

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"time"
)

// kind is callers who do the same.
type kind struct {
	name    string
	perSec  float64 // requests of all of them together
	callers []caller
	people  bool // who give up, each after another time; programs do much later
	next    func(r *rand.Rand) (method, path string)
}

// caller has an address, which others may have, too, and a user agent.
type caller struct{ addr, agent string }

// request is one of a caller, some time after the start.
type request struct {
	at           time.Duration
	kind         int // its place among the kinds
	caller       caller
	method, path string
	patience     float64 // in multiples of what play has
}

// The addresses that an operator should find, and one that should not be denied.
const (
	officeAddr  = "198.51.100.20"
	loudAddr    = "203.0.113.7"
	guessersNet = "192.0.2."
	neighbour   = guessersNet + "30"
)

const honest = 0 // the place of the honest callers among the kinds

func callersOfAllKinds() []kind {
	scraper, loud := caller{officeAddr, "python-requests/2.32.3"}, caller{loudAddr, "curl/8.5.0"}
	return []kind{
		{name: "honest", perSec: 360, people: true, callers: honestCallers(1000), next: browse},
		{name: "office", perSec: 11, people: true, callers: people(30), next: browse},
		{name: "scraper", perSec: 30, callers: []caller{scraper}, next: scrape},
		{name: "loud", perSec: 12, callers: []caller{loud}, next: export},
		{name: "guessers", perSec: 40, callers: guessers(20), next: logIn},
	}
}

// about says how many callers of a kind send how much.
func (k *kind) about(scale float64) string {
	addrs := map[string]bool{}
	for _, c := range k.callers {
		addrs[c.addr] = true
	}
	return fmt.Sprintf("%s: callers %d, addresses %d, requests a second %.1f",
		k.name, len(k.callers), len(addrs), k.perSec*scale)
}

// honestCallers returns n callers, of whom no three are in one /24, and one is near the guessers.
func honestCallers(n int) []caller {
	all := []caller{{neighbour, agent(0)}}
	for i := 1; i < n; i++ {
		all = append(all, caller{fmt.Sprintf("198.%d.%d.%d", 18+i%2, i/2%256, 1+i*7%250), agent(i)})
	}
	return all
}

// people returns n people of the office.
func people(n int) (all []caller) {
	for i := range n {
		all = append(all, caller{officeAddr, agent(i)})
	}
	return all
}

func guessers(n int) (all []caller) {
	for i := range n {
		all = append(all, caller{guessersNet + fmt.Sprint(1+i*29/n), "Mozilla/5.0"})
	}
	return all
}

// agent returns one of twenty user agents.
func agent(i int) string {
	systems := []string{"Windows NT 10.0; Win64; x64", "Macintosh; Intel Mac OS X 10_15_7",
		"X11; Linux x86_64", "Linux; Android 15"}
	return fmt.Sprintf("Mozilla/5.0 (%s) AppleWebKit/537.36 Chrome/%d.0.0.0 Safari/537.36",
		systems[i%len(systems)], 136+i%5)
}

// The paths, which say what they cost.
const loginPath, exportPath, itemPath = "/login", "/export", "/items/"

func browse(r *rand.Rand) (method, path string) {
	switch n := r.IntN(20); {
	case n == 0:
		return "POST", "/cart"
	case n < 4:
		return "GET", "/"
	default:
		return "GET", fmt.Sprint(itemPath, r.IntN(40))
	}
}

func scrape(r *rand.Rand) (method, path string) {
	return "GET", fmt.Sprint(itemPath, r.IntN(5000))
}

func export(*rand.Rand) (method, path string) { return "GET", exportPath + "?from=2020-01-01" }

func logIn(*rand.Rand) (method, path string) { return "POST", loginPath }

// plan returns all requests in the order of their instants, which are those of a Poisson process.
// They depend on the arguments alone.
func plan(kinds []kind, scale float64, seed uint64) iter.Seq[request] {
	total := 0.
	for i := range kinds {
		total += kinds[i].perSec
	}
	return func(yield func(request) bool) {
		r := rand.New(rand.NewPCG(seed, 0))
		next := request{}
		for {
			next.at += time.Duration(r.ExpFloat64() / (total * scale) * float64(time.Second))
			x := r.Float64() * total
			for next.kind = 0; next.kind < len(kinds)-1 && x >= kinds[next.kind].perSec; next.kind++ {
				x -= kinds[next.kind].perSec
			}
			k := &kinds[next.kind]
			next.caller = k.callers[r.IntN(len(k.callers))]
			next.method, next.path = k.next(r)
			next.patience = 6
			if k.people {
				next.patience = .5 + 1.5*r.Float64()
			}
			if !yield(next) {
				return
			}
		}
	}
}

// work returns how long the upstream works on a request, on average.
func work(method, path string) time.Duration {
	switch {
	case method == "POST" && path == loginPath:
		return 100 * time.Millisecond // a password is hashed
	case strings.HasPrefix(path, exportPath):
		return time.Second
	}
	return 40 * time.Millisecond
}
