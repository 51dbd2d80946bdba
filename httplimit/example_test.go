package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/weirtest"
)

// atNoon returns a limiter and its clock, which stands at noon, so that the examples always print
// the same.
func atNoon() (*weir.Limiter, *weirtest.Clock) {
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	if err != nil {
		log.Fatal(err)
	}
	return limiter, clock
}

// send sends a request from the peer with the given header lines. It prints the status and the
// given fields of the response.
func send(h http.Handler, peer string, lines []string, fields ...string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, from(peer+":5000", lines...))
	fmt.Print(w.Code)
	for _, name := range fields {
		for _, value := range w.Header().Values(name) {
			fmt.Printf(" | %s: %s", name, value)
		}
	}
	fmt.Println()
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func Example() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	guard := httplimit.New(limiter.SlidingWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Hour,
	})
	handler := guard(http.HandlerFunc(ok)) // http.ListenAndServe(":8080", handler)

	send(handler, "203.0.113.7", nil)
	send(handler, "203.0.113.7", nil)
	send(handler, "203.0.113.7", nil)
	send(handler, "203.0.113.8", nil)
	// Output:
	// 200
	// 200
	// 429
	// 200
}

func ExampleNew() {
	limiter, clock := atNoon()
	defer limiter.Close()
	guard := httplimit.New(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Now: clock.Now,
	})
	handler := guard(http.HandlerFunc(ok))

	clock.Advance(15 * time.Second)
	send(handler, "203.0.113.7", nil, "RateLimit-Policy", "RateLimit")
	send(handler, "203.0.113.7", nil, "RateLimit", "Retry-After", "Content-Type")
	clock.Advance(45 * time.Second)
	send(handler, "203.0.113.7", nil, "RateLimit")
	// Output:
	// 200 | RateLimit-Policy: "1/1m";q=1;w=60 | RateLimit: "1/1m";r=0;t=45
	// 429 | RateLimit: "1/1m";r=0;t=45 | Retry-After: 45 | Content-Type: application/problem+json
	// 200 | RateLimit: "1/1m";r=0;t=60
}

func ExampleConfig_policies() {
	limiter, clock := atNoon()
	defer limiter.Close()
	guard := httplimit.New(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(),
		Policies: []httplimit.Policy{
			{Name: "burst", Limit: 2, Duration: time.Second},
			{Name: "daily", Limit: 1000, Duration: 24 * time.Hour},
		},
		Now: clock.Now,
	})
	handler := guard(http.HandlerFunc(ok))
	for range 3 {
		send(handler, "203.0.113.7", nil, "RateLimit", "Retry-After")
	}
	clock.Advance(time.Second)
	// the denied request did not count toward the daily policy
	send(handler, "203.0.113.7", nil, "RateLimit")
	// Output:
	// 200 | RateLimit: "burst";r=1;t=1, "daily";r=999;t=43200
	// 200 | RateLimit: "burst";r=0;t=1, "daily";r=998;t=43200
	// 429 | RateLimit: "burst";r=0;t=1, "daily";r=998 | Retry-After: 1
	// 200 | RateLimit: "burst";r=1;t=1, "daily";r=997;t=43199
}

// A user has a limit, and so has his organisation.
func ExamplePolicy() {
	limiter, clock := atNoon()
	defer limiter.Close()
	guard := httplimit.New(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.Headers("X-User"), // set by a proxy that has authenticated them
		Policies: []httplimit.Policy{
			{Name: "user", Limit: 2, Duration: time.Second},
			{Name: "org", Limit: 3, Duration: time.Minute, Extractor: httplimit.Headers("X-Org")},
		},
		OnDecision: func(_ *http.Request, d httplimit.Decision) {
			if d.Kind == httplimit.Denied {
				fmt.Printf("%s is over %q\n", d.Key, d.Policy)
			}
		},
		Now: clock.Now,
	})
	handler := guard(http.HandlerFunc(ok))
	for _, user := range []string{"ann", "ann", "ann", "bob", "bob"} {
		send(handler, "203.0.113.7", []string{"X-User: " + user, "X-Org: acme"}, "RateLimit",
			"Retry-After")
	}
	// Output:
	// 200 | RateLimit: "user";r=1;t=1, "org";r=2;t=60
	// 200 | RateLimit: "user";r=0;t=1, "org";r=1;t=60
	// ann is over "user"
	// 429 | RateLimit: "user";r=0;t=1, "org";r=1 | Retry-After: 1
	// 200 | RateLimit: "user";r=1;t=1, "org";r=0;t=60
	// acme is over "org"
	// 429 | RateLimit: "user";r=1, "org";r=0;t=60 | Retry-After: 60
}

func ExampleConfig_limitFunc() {
	limiter, clock := atNoon()
	defer limiter.Close()
	free := limiter.SlidingWindow().Limit(10, time.Hour)
	paid := limiter.SlidingWindow().Limit(1000, time.Hour)
	guard := httplimit.New(free, httplimit.Config{
		Extractor: httplimit.Headers("X-User"), // set by the authentication in front of it
		Name:      "plan",
		LimitFunc: func(r *http.Request) *weir.Limit {
			if r.Header.Get("X-User") == "alice" {
				return paid
			}
			return nil // that of New
		},
		Now: clock.Now,
	})
	handler := guard(http.HandlerFunc(ok))
	send(handler, "203.0.113.7", []string{"X-User: alice"}, "RateLimit-Policy", "RateLimit")
	send(handler, "203.0.113.7", []string{"X-User: bob"}, "RateLimit-Policy", "RateLimit")
	// Output:
	// 200 | RateLimit-Policy: "plan";q=1000;w=3600 | RateLimit: "plan";r=999;t=7200
	// 200 | RateLimit-Policy: "plan";q=10;w=3600 | RateLimit: "plan";r=9;t=7200
}

func ExampleConfig_costFunc() {
	limiter, clock := atNoon()
	defer limiter.Close()
	guard := httplimit.New(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 100, Duration: time.Minute,
		CostFunc: func(r *http.Request) uint64 {
			switch {
			case r.Pattern == "GET /search":
				return 10
			case r.ContentLength < 0: // unknown: take the most that the server accepts
				return 32
			}
			return 1 + uint64(r.ContentLength)>>20 // and one for each MiB of the body
		},
		Now: clock.Now,
	})
	mux := http.NewServeMux() // it sets the Pattern before guard runs
	mux.Handle("GET /search", guard(http.HandlerFunc(ok)))
	mux.Handle("/", guard(http.HandlerFunc(ok)))
	for _, r := range []*http.Request{
		httptest.NewRequest("GET", "/", nil),
		httptest.NewRequest("GET", "/search", nil),
		httptest.NewRequest("PUT", "/photo", strings.NewReader(strings.Repeat("x", 5<<20))),
		httptest.NewRequest("PUT", "/stream", io.MultiReader(strings.NewReader("x"))),
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(r.Method, r.URL, r.ContentLength, w.Header().Get("RateLimit"))
	}
	// Output:
	// GET / 0 "100/1m";r=99;t=60
	// GET /search 0 "100/1m";r=89;t=60
	// PUT /photo 5242880 "100/1m";r=83;t=60
	// PUT /stream -1 "100/1m";r=51;t=60
}

func ExampleConfig_countIf() {
	limiter, clock := atNoon()
	defer limiter.Close()
	guard := httplimit.New(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Name: "failed logins", Limit: 2, Duration: time.Hour,
		CountIf: func(status int) bool { return status == http.StatusUnauthorized },
		Now:     clock.Now,
	})
	handler := guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	for _, password := range []string{"right", "right", "right", "wrong", "right", "wrong", "right"} {
		send(handler, "203.0.113.7", []string{"X-Password: " + password})
	}
	// Output:
	// 200
	// 200
	// 200
	// 401
	// 200
	// 401
	// 429
}

func ExampleConfig_shadow() {
	limiter, clock := atNoon()
	defer limiter.Close()
	stats := &httplimit.Stats{}
	guard := httplimit.New(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Shadow: true, Stats: stats,
		Now: clock.Now,
		OnDecision: func(_ *http.Request, d httplimit.Decision) {
			fmt.Printf("%v by %q, ", d.Kind, d.Policy)
		},
	})
	handler := guard(http.HandlerFunc(ok))
	send(handler, "203.0.113.7", nil)
	send(handler, "203.0.113.7", nil)
	fmt.Println(stats.Count(httplimit.Denied), "would have been denied")
	// Output:
	// admitted by "1/1m", 200
	// denied by "1/1m", 200
	// 1 would have been denied
}

func ExampleIsBypassed() {
	down := weirtest.FailAll(errors.New("the store is down"))
	guard := httplimit.New(down, httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 100, Duration: time.Minute, FailOpen: true,
		Logger: slog.New(slog.DiscardHandler),
	})
	handler := guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("undecided:", httplimit.IsBypassed(r.Context()))
	}))
	send(handler, "203.0.113.7", nil, "RateLimit-Bypassed")
	// Output:
	// undecided: true
	// 200 | RateLimit-Bypassed: "100/1m"
}

func ExampleHeaderStyle() {
	for _, style := range []httplimit.HeaderStyle{httplimit.HeadersLegacy, httplimit.HeadersOriginal} {
		limiter, clock := atNoon()
		guard := httplimit.New(limiter.FixedWindow(), httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Headers: style,
			Now: clock.Now,
		})
		handler := guard(http.HandlerFunc(ok))
		for range 2 {
			send(handler, "203.0.113.7", nil,
				"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-Ratelimit-Retry-After",
				"Rate-Limiting-Total-Requests", "Rate-Limiting-State", "Rate-Limiting-Expires-At")
		}
		limiter.Close()
	}
	// Output:
	// 200 | X-RateLimit-Limit: 1 | X-RateLimit-Remaining: 0 | X-RateLimit-Reset: 1795176060
	// 429 | X-RateLimit-Limit: 1 | X-RateLimit-Remaining: 0 | X-RateLimit-Reset: 1795176060 | X-Ratelimit-Retry-After: 60
	// 200 | Rate-Limiting-Total-Requests: 1 | Rate-Limiting-State: Allow | Rate-Limiting-Expires-At: 2026-11-20T12:01:00Z
	// 429 | Rate-Limiting-Total-Requests: 1 | Rate-Limiting-State: Deny | Rate-Limiting-Expires-At: 2026-11-20T12:01:00Z
}

func ExampleMochiweb() {
	limiter, clock := atNoon()
	defer limiter.Close()
	cfg := httplimit.Mochiweb()
	cfg.Extractor, cfg.Limit, cfg.Duration, cfg.Now = httplimit.RemoteAddr(), 500, 30*time.Second,
		clock.Now
	handler := httplimit.New(limiter.FixedWindow(), cfg)(http.HandlerFunc(ok))
	for range 500 {
		handler.ServeHTTP(httptest.NewRecorder(), from("203.0.113.7:5000"))
	}
	send(handler, "203.0.113.7", nil, "Content-Type", "Retry-After")
	// Output:
	// 413 | Content-Type: text/html | Retry-After: 30
}

func extract(e httplimit.Extractor, r *http.Request) {
	key, err := e.Extract(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%q\n", key)
}

func ExampleRemoteAddr() {
	extract(httplimit.RemoteAddr(), from("203.0.113.7:5000", "X-Forwarded-For: 198.51.100.1"))
	extract(httplimit.RemoteAddr(), from("[::ffff:203.0.113.7]:5000"))
	extract(httplimit.RemoteAddr(), from("[2001:db8:1:2:3::4]:5000"))
	extract(httplimit.RemoteAddr(), from("@"))
	// Output:
	// "203.0.113.7"
	// "203.0.113.7"
	// "2001:db8:1:2::/64"
	// httplimit: no key: the peer's address "@" is no IP address
}

func ExampleClientIP() {
	byProxy := httplimit.ClientIP([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	extract(byProxy, from("10.0.0.1:5000", "X-Forwarded-For: 198.51.100.1, 203.0.113.7, 10.0.0.2"))
	// not through a trusted proxy
	extract(byProxy, from("203.0.113.9:5000", "X-Forwarded-For: 198.51.100.1"))
	extract(byProxy, from("10.0.0.1:5000", "X-Forwarded-For: unknown"))
	// Output:
	// "203.0.113.7"
	// "203.0.113.9"
	// httplimit: no key: forwarded for "unknown", which is no IP address
}

func ExampleIP_ServeHTTP() {
	show := func(ip httplimit.IP, forwarded string) {
		w := httptest.NewRecorder()
		ip.ServeHTTP(w, from("10.0.0.1:5000", "X-Forwarded-For: "+forwarded))
		fmt.Println(w.Body)
	}
	show(httplimit.RemoteAddr(), "203.0.113.7") // all clients of this proxy share one key
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	show(httplimit.ClientIP(proxies), "203.0.113.7")
	show(httplimit.ClientIP(proxies), "localhost")
	// Output:
	// key: 10.0.0.1
	// peer: 10.0.0.1:5000, not trusted
	// X-Forwarded-For: "203.0.113.7", not read
	//
	// key: 203.0.113.7
	// peer: 10.0.0.1:5000, trusted
	// X-Forwarded-For: "203.0.113.7"
	//
	// key: httplimit: no key: forwarded for "localhost", which is no IP address
	// peer: 10.0.0.1:5000, trusted
	// X-Forwarded-For: "localhost"
}

func ExampleIP_Forwarded() {
	byProxy := httplimit.ClientIP([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}).Forwarded()
	extract(byProxy, from("10.0.0.1:5000",
		`Forwarded: for=198.51.100.1, for="[2001:db8::7]:4711";proto=https`,
		"X-Forwarded-For: 192.0.2.1"))
	// Output: "2001:db8::/64"
}

func ExampleIP_IPv6Bits() {
	extract(httplimit.RemoteAddr().IPv6Bits(48), from("[2001:db8:1:2:3::4]:5000"))
	// Output: "2001:db8:1::/48"
}

func ExampleIP_Addr() {
	addr, err := httplimit.RemoteAddr().Addr(from("[2001:db8:1:2:3::4%eth0]:5000"))
	fmt.Println(addr, err)
	// Output: 2001:db8:1:2:3::4 <nil>
}

func ExampleHeaders() {
	extract(httplimit.Headers("X-User"), from("203.0.113.7:5000", "X-User: alice"))
	extract(httplimit.Headers("X-Org", "X-User"),
		from("203.0.113.7:5000", "X-Org: acme", "X-User: alice"))
	extract(httplimit.Headers("X-Org", "X-User"), from("203.0.113.7:5000", "X-User: alice"))
	// Output:
	// "alice"
	// "4:acme5:alice"
	// httplimit: no key: 0 X-Org headers, not one
}

func ExamplePattern() {
	guard := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			extract(httplimit.Pattern(), r)
		})
	}
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", guard(http.HandlerFunc(ok))) // inside the mux
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/users/7", nil))
	// Outside the mux no route has matched yet.
	guard(mux).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/users/7", nil))
	// Output:
	// "GET /users/{id}"
	// httplimit: no key: no route has matched yet; the middleware belongs inside the mux
}

func ExampleJoin() {
	perUserAndAddress := httplimit.Join(httplimit.Headers("X-User"), httplimit.RemoteAddr())
	extract(perUserAndAddress, from("203.0.113.7:5000", "X-User: alice"))
	// Output: "5:alice11:203.0.113.7"
}

func ExampleExtractorFunc() {
	type session struct{ user string }
	byUser := httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
		s, ok := r.Context().Value(session{}).(session) // set by the authentication in front of it
		if !ok {
			return "", errors.New("nobody is logged in")
		}
		return s.user, nil
	})
	r := from("203.0.113.7:5000")
	extract(byUser, r)
	extract(byUser, r.WithContext(context.WithValue(r.Context(), session{}, session{"alice"})))
	// Output:
	// nobody is logged in
	// "alice"
}

func ExampleDenyList() {
	limiter, clock := atNoon()
	defer limiter.Close()
	list := httplimit.NewDenyList(httplimit.DenyListConfig{Now: clock.Now})
	guard := httplimit.New(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Minute, Now: clock.Now,
		DenyList: list,
		Penalty: httplimit.Penalty{Strategy: limiter.FixedWindow(), Denials: 2, Within: time.Minute,
			For: time.Hour},
	})
	handler := guard(http.HandlerFunc(ok))

	scanners := httplimit.DenyEntry{Prefix: netip.MustParsePrefix("198.51.100.0/24")}
	if err := list.Add(scanners); err != nil {
		log.Fatal(err)
	}
	send(handler, "198.51.100.9", nil)
	list.Remove(scanners)
	send(handler, "198.51.100.9", nil)

	for range 5 { // two pass, two are denied, and then the caller is listed
		send(handler, "203.0.113.7", nil, "Retry-After")
	}
	for _, e := range list.Entries() {
		fmt.Println(e.Key, "until", e.Until.Format(time.TimeOnly))
	}
	// Output:
	// 403
	// 200
	// 200
	// 200
	// 429 | Retry-After: 60
	// 429 | Retry-After: 60
	// 429 | Retry-After: 3600
	// 203.0.113.7 until 13:00:00
}

func ExamplePerIP() {
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hello")
	})
	h := httplimit.PerIP(2, time.Hour)(hello)
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// 200 "2/1h";q=2;w=3600
	// 200 "2/1h";q=2;w=3600
	// 429 "2/1h";q=2;w=3600
}

func ExamplePerHeader() {
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hello")
	})
	h := httplimit.PerHeader("X-User", 1, time.Hour)(hello) // set by a proxy that has authenticated it
	for _, user := range []string{"alice", "bob", "alice"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-User", user)
		h.ServeHTTP(w, r)
		fmt.Println(user, w.Code)
	}
	// Output:
	// alice 200
	// bob 200
	// alice 429
}

// A guard in three steps, for a handler that is no http.Handler.
func ExampleGuard() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	guard := httplimit.NewGuard(limiter.FixedWindow().Limit(1, 24*time.Hour), httplimit.Config{
		Extractor: httplimit.Headers("X-User"),
	})
	handle := func(w http.ResponseWriter, r *http.Request) {
		ticket := guard.Begin(r)
		defer ticket.Abort() // of a handler that panics
		if !ticket.Passes() {
			ticket.Answer(w)
			ticket.End(0)
			return
		}
		ticket.SetFields(w.Header())
		w.WriteHeader(http.StatusNoContent)
		ticket.End(http.StatusNoContent)
	}
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set("X-User", "ann")
	for range 2 {
		w := httptest.NewRecorder()
		handle(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// 204 "1/24h";q=1;w=86400
	// 429 "1/24h";q=1;w=86400
}
